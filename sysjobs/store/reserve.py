"""Room that the database keeps for itself: on a full disk, what was accepted can still be finished.

SQLite writes commits to a log beside the database, and when that has grown enough, moves it into the database
and starts it over. So the log is given its blocks beforehand, and the database free pages for what changes.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

LOG_SIZE = 8 << 20
"""Bytes: twice what SQLite lets the log grow to where it has room to move it into the database."""

FREE_PAGES = 512
"""Some 6,000 running jobs can end on them, each in a commit of its own."""

_HEADER = 32


def take_up(database: Path) -> None:
    """Before the database is opened: give the log the blocks that were kept for it."""
    kept, wal = _kept(database), _wal(database)
    with suppress(OSError):
        if wal.exists():
            kept.unlink()
            return
        fd = os.open(kept, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # What it says is in the database long since, or was in another one.
            os.pwrite(fd, bytes(_HEADER), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        kept.rename(wal)


def leave(database: Path) -> None:
    """Before the database is closed, whereupon SQLite removes the log: keep its blocks under another name."""
    with suppress(OSError):
        _kept(database).hardlink_to(_wal(database))


def fill(connection: sqlite3.Connection, database: Path) -> None:
    """While it is open, and no transaction is: have all of the reserve there, as far as there is room."""
    with suppress(OSError):
        fd = os.open(_wal(database), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, LOG_SIZE)
        finally:
            os.close(fd)
    with suppress(OSError, sqlite3.Error):
        missing = FREE_PAGES - free_pages(connection)
        size = missing * connection.execute("PRAGMA page_size").fetchone()[0]
        info = os.statvfs(database)
        if is_low(connection) and info.f_bavail * info.f_frsize > 2 * size:
            # Written as pages in use, so that they get their blocks, and then freed.
            # One that was killed before it had dropped that.
            connection.execute("DROP TABLE IF EXISTS reserve")
            connection.execute("CREATE TABLE reserve AS SELECT zeroblob(?) AS room", (size,))
            connection.execute("DROP TABLE reserve")
            connection.execute("PRAGMA wal_checkpoint").fetchall()


def is_low(connection: sqlite3.Connection) -> bool:
    """Whether half of the pages are gone, as far as can be told: what was committed before is on disk."""
    with suppress(sqlite3.Error):
        return free_pages(connection) < FREE_PAGES // 2
    return False


def forget_log(database: Path) -> None:
    """The database is another one by now: its predecessor's log must not be taken for its own."""
    _wal(database).unlink(missing_ok=True)


def free_pages(connection: sqlite3.Connection) -> int:
    count: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return count


def _wal(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def _kept(database: Path) -> Path:
    return database.with_name(f"{database.name}-reserve")
