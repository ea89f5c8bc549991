"""Saves what can be read of a damaged database into a new one, and keeps the damaged one beside it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from sysjobs.errors import StoreError
from sysjobs.ports import RowDamaged
from sysjobs.store.database import SCHEMA_VERSION, connect, in_use, newer, prepare_reading, queries
from sysjobs.store.rows import Rows, payload

_SQL = queries()

GAP = 100_000
"""Ids without a row: so many at once were never given to jobs, but left out for fear of forgotten ones."""

# Where SQLite takes its locks.
_LOCK_START, _LOCK_LENGTH = 0x40000000, 512


@dataclass(slots=True)
class Repaired:
    """How many jobs are in the new database, the ids that it has no jobs of, and what was wrong.

    `kept` is where the damaged file is now; None where nothing was wrong with it, and nothing was done.
    """

    saved: int = 0
    lost: list[int] = field(default_factory=list)
    wrong: str | None = None
    kept: Path | None = None


def repair(path: Path, highest: int, stamp: str) -> Repaired:
    """Jobs up to `highest` are looked for where the database doesn't say up to which. Raises StoreError."""
    made, copy = path.with_name(f"{path.name}.new"), path.with_name(f"{path.name}.copy")
    try:
        with path.open("r+b") as file, _temporary(made), _temporary(copy):
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_LENGTH, _LOCK_START)
            except BlockingIOError:
                raise in_use(path) from None
            # Reading a database may change it, and to open the file once more would give up the lock.
            with copy.open("wb") as to:
                shutil.copyfileobj(file, to)
            with suppress(FileNotFoundError):
                shutil.copyfile(_wal(path), _wal(copy))
            done = _save(copy, made, highest, path)
            if done.wrong is not None:
                done.kept = path.with_name(f"{path.name}.damaged-{stamp}")
                done.kept.hardlink_to(path)
                with suppress(FileNotFoundError):
                    _wal(path).rename(_wal(done.kept))
                made.rename(path)
                _sync(path.parent)
            return done
    except OSError as error:
        raise StoreError(
            f"{error.filename or path} can't be used: {error.strerror}.",
            "See that it is there, and that its file system is writable and has room.",
        ) from None


def _save(copy: Path, made: Path, highest: int, path: Path) -> Repaired:
    done = Repaired()
    with closing(connect(made)) as new, closing(sqlite3.connect(copy, isolation_level=None)) as old:
        prepare_reading(old)
        # Else nothing is read of a file that is shorter than it says.
        old.execute("PRAGMA writable_schema = ON")
        new.execute("BEGIN")
        last = highest
        try:
            version: int = old.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise newer(path, version)
            rows = Rows(old)
            with suppress(sqlite3.DatabaseError, TypeError):
                last = max(last, old.execute(_SQL["last_id"]).fetchone()[0])
            _copy_jobs(old, new, rows, last, done)
            found = old.execute("PRAGMA integrity_check(1)").fetchone()[0]
            done.wrong = done.wrong or (None if found == "ok" else found)
        except sqlite3.DatabaseError as error:
            done.wrong = str(error)
        new.execute(_SQL["begin_ids"])
        new.execute(_SQL["reserve_ids"], {"id": last})
        new.execute("COMMIT")
    return done


def _copy_jobs(
    old: sqlite3.Connection, new: sqlite3.Connection, rows: Rows, last: int, done: Repaired
) -> None:
    job_id = 1
    while job_id <= last:
        try:
            row = old.execute("SELECT * FROM jobs WHERE id >= ? ORDER BY id LIMIT 1", [job_id]).fetchone()
            found = last + 1 if row is None else row["id"]
            if found - job_id < GAP:
                # In a damaged page rows can be missing without an error.
                done.lost += range(job_id, found)
            job_id = found
            if row is None:
                return
            rows.job(row)
            if "task" not in row.keys() or row["task"] is None:  # noqa: SIM118 - a row's values else
                payload(job_id, old.execute(_SQL["own_payload"], {"id": job_id}).fetchone())
            _copy_job(old, new, row)
            done.saved += 1
        except (sqlite3.DatabaseError, RowDamaged) as error:
            done.lost.append(job_id)
            done.wrong = done.wrong or str(error)
        job_id += 1


def _copy_job(old: sqlite3.Connection, new: sqlite3.Connection, row: sqlite3.Row) -> None:
    if row["environment_id"] is not None:
        found = old.execute("SELECT * FROM environments WHERE id = ?", [row["environment_id"]]).fetchone()
        if hashlib.sha256(found["data"]).digest() != found["hash"]:
            raise RowDamaged(row["id"], "its environment isn't what was written")
        new.execute("INSERT OR IGNORE INTO environments (id, hash, data) VALUES (?, ?, ?)", tuple(found))
    names = row.keys()
    new.execute(f"INSERT INTO jobs ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", tuple(row))


@contextmanager
def _temporary(path: Path) -> Iterator[None]:
    """A database that is not there before, nor afterwards."""

    def remove() -> None:
        for each in (path, _wal(path), path.with_name(f"{path.name}-shm")):
            each.unlink(missing_ok=True)

    remove()
    try:
        yield
    finally:
        remove()


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
