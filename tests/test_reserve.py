"""The room that the database keeps for itself. What it is good for is in test_disk.py."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sysjobs.payload import Payload
from sysjobs.store import Filter, Store, reserve
from tests.models import new_job


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sysjobs.db"


def test_the_log_s_blocks_stay_reserved(path: Path) -> None:
    """While no daemon runs too, and also where it was killed."""
    wal, kept = path.with_name("sysjobs.db-wal"), path.with_name("sysjobs.db-reserve")
    with closing(Store(path)) as store:
        store.add(new_job())
        store.commit()
        blocks = wal.stat()
        assert blocks.st_blocks * 512 >= reserve.LOG_SIZE
    assert not wal.exists()
    assert kept.stat().st_ino == blocks.st_ino
    # As a kill between the two steps of closing would leave it.
    os.link(kept, wal)
    for _ in range(2):
        with closing(Store(path)) as store:
            assert not kept.exists()
            assert (wal.stat().st_ino, wal.stat().st_blocks) == (blocks.st_ino, blocks.st_blocks)
            assert store.get(1) is not None


def test_the_reserve_says_nothing_to_another_database(path: Path, tmp_path: Path) -> None:
    with closing(Store(path)) as store:
        store.add(new_job(name="of the first"))
        store.commit()
    path.unlink()
    other = tmp_path / "other.db"
    with closing(Store(other)) as store:
        store.add(new_job(name="of the other"))
        store.commit()
    other.rename(path)
    with closing(Store(path)) as store:
        assert [job.name for job in store.find(Filter())[0]] == ["of the other"]


def test_free_pages_stay_reserved(path: Path) -> None:
    def free() -> int:
        return int(store._db.execute("PRAGMA freelist_count").fetchone()[0])

    with closing(Store(path)) as store:
        assert free() >= reserve.FREE_PAGES * 0.9
        for _ in range(2000):
            store.add(new_job(payload=Payload((b"x" * 1000,))))
            store.commit()
            assert free() > reserve.FREE_PAGES // 3


def test_a_daemon_was_killed_while_it_took_up_room(path: Path) -> None:
    with closing(Store(path)):
        pass
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE reserve (room)")
        db.execute("VACUUM")
    with closing(Store(path)) as store:
        assert reserve.free_pages(store._db) >= reserve.FREE_PAGES // 2


def test_what_is_on_disk_is_not_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Because of what comes after the commit."""

    def broken(connection: sqlite3.Connection) -> int:
        raise sqlite3.OperationalError("disk I/O error")

    with closing(Store(path)) as store:
        monkeypatch.setattr(reserve, "free_pages", broken)
        for _ in range(20):
            store.add(new_job())
            store.commit()
