"""The SQLite file: how it is opened, brought to this version's schema, and refused when it is newer."""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from sysjobs import __version__
from sysjobs.errors import StoreError

SCHEMA_VERSION = 5

_PACKAGE = files("sysjobs.store")


def connect(path: Path) -> sqlite3.Connection:
    """The database at `path`, made or migrated if need be. Raises `StoreError`.

    Every commit is on disk when it returns (WAL with synchronous=FULL). The lock is exclusive: a second
    daemon on the same file is refused, and no reader can make a commit wait.
    """
    try:
        connection = sqlite3.connect(path, isolation_level=None, timeout=5)
        try:
            _prepare(connection, path)
        except BaseException:
            # Its lock goes with it.
            connection.close()
            raise
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise in_use(path) from None
        raise StoreError(
            f"{path} can't be opened: {error}.",
            "See that its file system is mounted and writable, and has room. Jobs run on meanwhile; "
            "the next `sysjobs` command starts sysjobsd again.",
        ) from None
    except sqlite3.DatabaseError as error:
        raise damaged(path, error) from None
    return connection


def in_use(path: Path) -> StoreError:
    return StoreError(
        f"{path} is in use by another process.",
        "Only one sysjobsd may run on a database; `systemctl status sysjobsd` shows the other one.",
        code="locked",
    )


def newer(path: Path, version: int) -> StoreError:
    return StoreError(
        f"{path} was written by a newer sysjobs: its schema is version {version}, "
        f"sysjobs {__version__} knows up to {SCHEMA_VERSION}.",
        "Install the newer sysjobs again; nothing was changed. /var/log/dpkg.log has its version.",
        code="newer-schema",
    )


def damaged(path: Path, error: Exception) -> StoreError:
    """What to say of a database that can be opened and not be read."""
    return StoreError(
        f"{path} is damaged: {error}.",
        "`sysjobsd --repair` saves what can be read and keeps the damaged file; then start sysjobsd again. "
        "Jobs run on meanwhile.",
        code="damaged",
    )


def prepare_reading(connection: sqlite3.Connection) -> None:
    connection.row_factory = sqlite3.Row
    # Bytes that aren't UTF-8 by damage must not keep other rows from being read.
    connection.text_factory = functools.partial(str, encoding="utf-8", errors="surrogateescape")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    prepare_reading(connection)
    for pragma in (
        "locking_mode = EXCLUSIVE",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    _migrate(connection, path)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version < 0:
        raise sqlite3.DatabaseError(f"its schema's version is {version}")
    if version > SCHEMA_VERSION:
        raise newer(path, version)
    if version == SCHEMA_VERSION:
        return
    if version == 0:
        steps = [(SCHEMA_VERSION, schema_sql())]
    else:
        keep_copy(connection, path, version)
        steps = [(number, sql) for number, sql in migrations() if number > version]
    for number, sql in steps:
        # executescript() would commit the transaction; statement by statement it is one.
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements(sql):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")


def keep_copy(connection: sqlite3.Connection, path: Path, version: int) -> Path:
    """A copy of the database beside it, as it was before a migration from `version`."""
    copy = path.with_name(f"{path.name}.v{version}")
    copy.unlink(missing_ok=True)
    connection.execute("VACUUM INTO ?", (str(copy),))
    return copy


def schema_sql() -> str:
    return (_PACKAGE / "schema.sql").read_text("utf-8")


def migrations() -> list[tuple[int, str]]:
    """(version it leads to, SQL), in order."""
    found = [
        (int(match[1]), entry.read_text("utf-8"))
        for entry in (_PACKAGE / "migrations").iterdir()
        if (match := re.fullmatch(r"(\d{4})_\w+\.sql", entry.name))
    ]
    return sorted(found)


def queries() -> dict[str, str]:
    """The statements of queries.sql by name."""
    text = (_PACKAGE / "queries.sql").read_text("utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {name: sql.strip() for name, sql in zip(parts[1::2], parts[2::2], strict=True)}


def statements(sql: str) -> Iterator[str]:
    """The statements of a script, one by one."""
    pending = ""
    for piece in sql.split(";"):
        pending += piece + ";"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
