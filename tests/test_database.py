"""The database as a file: opened by one, brought to this version's schema, refused when it is newer.

tests/data/v1.db was written by the first version, and has to load for ever. It was made by

    python3 -c 'from tests.test_database import make_golden; make_golden("tests/data/v1.db")'

with the store as it was then. No such file is made anew; later versions are kept by kept.py, units included.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sysjobs.errors import StoreError
from sysjobs.jobs import Job, Status
from sysjobs.payload import NewJob, Payload
from sysjobs.resources import Amount
from sysjobs.store import Filter, Store, database
from sysjobs.store.database import SCHEMA_VERSION, migrations, schema_sql, statements
from tests.models import new_job
from tests.test_store import states

GOLDEN = Path(__file__).parent / "data" / "v1.db"

Schema = list[tuple[str, str, str | None]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sysjobs.db"


def schema_of(db: sqlite3.Connection) -> Schema:
    """All that is in a database, its comments and line breaks aside."""
    rows = db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    return [(kind, name, None if sql is None else plain(sql)) for kind, name, sql in rows]


def plain(sql: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"--.*", "", sql))


def made_by(*scripts: str) -> Schema:
    with closing(sqlite3.connect(":memory:")) as db:
        for script in scripts:
            for statement in statements(script):
                db.execute(statement)
        return schema_of(db)


def schema_at(path: Path) -> tuple[int, Schema]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("PRAGMA user_version").fetchone()[0], schema_of(db)


def test_the_migrations_make_the_schema() -> None:
    assert made_by(*(sql for _, sql in migrations())) == made_by(schema_sql())


def test_the_migrations_are_numbered_up_to_this_version() -> None:
    assert [number for number, _ in migrations()] == list(range(1, SCHEMA_VERSION + 1))


def test_statements() -> None:
    text = "-- a; b\nCREATE TABLE t (x TEXT DEFAULT ';'); -- c\nSELECT 1;\n\n"
    assert [plain(each).strip() for each in statements(text)][:2] == [
        "CREATE TABLE t (x TEXT DEFAULT ';');",
        "SELECT 1;",
    ]


def test_a_new_file(path: Path) -> None:
    Store(path).close()
    assert schema_at(path) == (SCHEMA_VERSION, made_by(schema_sql()))
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, f"{path.name}-reserve"]


def test_every_commit_is_on_disk(path: Path) -> None:
    with closing(Store(path)) as store:
        pragmas = {
            name: store._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "locking_mode", "foreign_keys")
        }
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "locking_mode": "exclusive",
        "foreign_keys": 1,
    }


def test_a_second_daemon_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def impatient(path: Path, **options: Any) -> sqlite3.Connection:
        return connect(path, isolation_level=None, timeout=0)

    with closing(Store(path)) as store:
        job = store.add(new_job())
        store.commit()
        monkeypatch.setattr(sqlite3, "connect", impatient)
        with pytest.raises(StoreError) as caught:
            Store(path)
        assert caught.value.code == "locked"
        assert str(path) in caught.value.message
        store.save(replace(job, name="x"))
        store.commit()
    Store(path).close()


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    Store(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        Store(path)
    assert caught.value.code == "newer-schema"
    assert f"{path} was written by a newer sysjobs: its schema is version 99" in caught.value.message
    assert path.read_bytes() == before


def test_what_is_no_database_is_left_alone(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match="is damaged") as caught:
        Store(path)
    assert caught.value.hint
    assert path.read_bytes() == b"no database" * 1000


@pytest.mark.parametrize("version", [-5, SCHEMA_VERSION])
def test_what_only_says_that_it_is_one(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    with pytest.raises((StoreError, sqlite3.Error)):
        list(Store(path).unfinished())


def test_what_cannot_be_opened(path: Path) -> None:
    path.mkdir()
    for wrong in (path, path / "no" / "such" / "directory.db"):
        with pytest.raises(StoreError, match=r"can't be opened"):
            Store(wrong)


@pytest.fixture
def next_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """A file of this version, and a sysjobs that is one further by the migration that a test adds."""
    with closing(Store(path)) as store:
        store.add(new_job())
        store.commit()
    steps = list(migrations())
    monkeypatch.setattr(database, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    monkeypatch.setattr(database, "migrations", lambda: steps)
    return steps


def test_a_migration_keeps_a_copy(path: Path, next_version: list[tuple[int, str]]) -> None:
    before = schema_at(path)
    next_version.append(
        (SCHEMA_VERSION + 1, "ALTER TABLE jobs ADD COLUMN mood TEXT; UPDATE jobs SET mood = 'new';")
    )
    for _ in range(2):
        with closing(Store(path)) as store:
            assert store.get(1) is not None
            assert store._db.execute("SELECT mood FROM jobs").fetchone()[0] == "new"
    assert schema_at(path)[0] == SCHEMA_VERSION + 1
    copy = path.with_name(f"sysjobs.db.v{SCHEMA_VERSION}")
    assert schema_at(copy) == before
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("SELECT count(*) FROM jobs").fetchone() == (1,)


def test_a_migration_that_fails_changes_nothing(path: Path, next_version: list[tuple[int, str]]) -> None:
    before = schema_at(path)
    next_version.append(
        (SCHEMA_VERSION + 1, "ALTER TABLE jobs ADD COLUMN mood TEXT; UPDATE jobs SET uid = -1;")
    )
    for _ in range(2):
        with pytest.raises(StoreError):
            Store(path)
        assert schema_at(path) == before
    next_version[-1] = (SCHEMA_VERSION + 1, "SELECT 1;")
    Store(path).close()
    assert schema_at(path)[0] == SCHEMA_VERSION + 1


# What the oldest database has in it: each state once, and each kind of payload.
GOLDEN_PAYLOAD = Payload(
    command=(b"/bin/bash", b"-c", b"echo \xff"),
    shell=b"echo \xff",
    setup=b"make\n",
    workdir=b"/home/alice/\xc3\xa4 \xfe",
    env=((b"A", b"1"), (b"B", b"\xff")),
    umask=0o27,
    limits={"nofile": 1024, "core": -1},
    environment=(b"PATH=/usr/bin", b"X=\xff\n"),
)
GOLDEN_NEW: list[NewJob] = [
    *(new_job(payload=GOLDEN_PAYLOAD, key=f"key {number}") for number in range(12)),
    new_job(
        payload=Payload((b"true",)), uid=0, gid=0, user="root", name="zwölf", amount=Amount(), time_limit=None
    ),
]


def golden_jobs(jobs: list[Job]) -> list[Job]:
    """The jobs as they were saved: one in each state, the last one as submitted."""
    found = []
    for number, job in enumerate(jobs):
        state = states(job)[number] if number < 12 else job
        found.append(replace(state, invocation_id=f"{number:032x}" if state.invocation_id else None))
    return found


def make_golden(path: str) -> None:
    with closing(Store(Path(path))) as store:
        for job in golden_jobs([store.add(new) for new in GOLDEN_NEW]):
            store.save(job)
        store.commit()


def test_the_oldest_database_loads(path: Path) -> None:
    shutil.copy(GOLDEN, path)
    with closing(Store(path)) as store:
        jobs, _ = store.find(Filter())
        assert {job.status for job in jobs} == set(Status)
        submitted = [
            Job(
                id=number,
                uid=new.uid,
                gid=new.gid,
                user=new.user,
                name=new.name,
                amount=new.amount,
                has_setup=new.payload.setup is not None,
                time_limit=new.time_limit,
                grace=new.grace,
                submitted_at=new.submitted_at,
            )
            for number, new in enumerate(GOLDEN_NEW, 1)
        ]
        assert jobs == golden_jobs(submitted)
        assert [store.payload(job.id) for job in jobs] == [new.payload for new in GOLDEN_NEW]
        assert store.find_key(1000, "key 3") == 4
        assert store.add(new_job()).id == len(jobs) + 1
        store.commit()
    assert schema_at(path) == (SCHEMA_VERSION, made_by(schema_sql()))
