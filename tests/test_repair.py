"""Damaged databases: one bad row is refused by name, and what can be read of a bad file is saved."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sysjobs.errors import StoreError
from sysjobs.jobs import Job
from sysjobs.payload import Payload
from sysjobs.ports import RowDamaged
from sysjobs.selectors import ranges
from sysjobs.store import Filter, Store
from sysjobs.store.repair import repair
from tests.models import new_job
from tests.test_store import states

JOBS = 300
PAGE = 4096
REPO = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with jobs in all states, and some pages of environments."""
    path = tmp_path_factory.mktemp("made") / "sysjobs.db"
    with closing(Store(path)) as store:
        for number in range(JOBS):
            environment = (b"A=%d" % (number // 50), b"B=" + b"x" * 5000)
            payload = Payload((b"echo", b"x" * 200), setup=b"make", environment=environment)
            job = store.add(new_job(payload=payload))
            state = states(job)[number % 12]
            store.save(replace(state, invocation_id=f"{number:032x}" if state.invocation_id else None))
        store.commit()
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path))


def change(path: Path, job_id: int, what: str) -> None:
    """Write what the database's checks would refuse, as a broken disk does."""
    find = "SELECT sql FROM sqlite_master WHERE name = 'jobs'"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        sql: str = db.execute(find).fetchone()[0]
        lax = re.sub(r"\b(INTEGER|TEXT|REAL) NOT NULL", r"\1", sql).replace("STRICT", "")
    for schema, statement in ((lax, f"UPDATE jobs SET {what} WHERE id = {job_id}"), (sql, "SELECT 1")):
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA writable_schema = ON")
            db.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'jobs'", [schema])
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA ignore_check_constraints = ON")
            db.execute(statement)


# Job 4 runs, job 2 waits, job 7 has failed.
BAD_ROWS = [
    (4, "status = 'RUNNIMG'", "'RUNNIMG' is not a valid Status"),
    (4, "status = CAST(x'52ff' AS TEXT)", "surrogates not allowed"),
    (4, "status = NULL", "its status is None"),
    (4, "uid = 'x'", "its uid is 'x'"),
    (4, "grace = NULL", "its grace is None"),
    (4, "boot_id = NULL, shard = NULL, started_at = NULL", "it is RUNNING, but was never started"),
    (4, "held_uid = 0, held_user = 'root'", "it is RUNNING, but held"),
    (4, "shard = NULL", "of boot_id, shard, started_at only some are there"),
    (4, "status = 'FAILED'", "it is FAILED, but its end is None"),
    (7, "ended_at = NULL", "it is FAILED, but its end is None"),
    (7, "reason = NULL", "of reason_code, reason only some are there"),
]


@pytest.mark.parametrize(("job_id", "what", "said"), BAD_ROWS)
def test_one_bad_row(path: Path, job_id: int, what: str, said: str) -> None:
    change(path, job_id, what)
    with closing(Store(path)) as store:
        with pytest.raises(RowDamaged) as caught:
            store.get(job_id)
        assert caught.value.message.startswith(f"The record of job {job_id} in the database is damaged: ")
        assert said in caught.value.message
        # The others are read, and it keeps its id.
        others = [number for number in range(1, JOBS + 1) if number != job_id]
        jobs, damaged = store.get_all(range(1, JOBS + 1))
        assert ([job.id for job in jobs], damaged) == (others, [job_id])
        unfinished = list(store.unfinished())
        bad = [each.job_id for each in unfinished if isinstance(each, RowDamaged)]
        assert bad in ([], [job_id])
        assert sum(isinstance(each, Job) for each in unfinished) >= JOBS * 4 // 12
        assert store.add(new_job()).id == JOBS + 1


BAD_PAYLOADS = [
    "payload = '{'",
    "payload = '7'",
    "payload = NULL",
    'payload = \'{"command": 3, "workdir": "/"}\'',
    'payload = \'{"command": ["x"], "workdir": "/", "umask": "x"}\'',
    "environment_id = 999",
]


@pytest.mark.parametrize("what", BAD_PAYLOADS)
def test_a_bad_payload(path: Path, what: str) -> None:
    change(path, 2, what)
    with closing(Store(path)) as store, pytest.raises(RowDamaged, match="what it runs can't be read"):
        store.payload(2)


def saved(path: Path) -> dict[int, Job]:
    with closing(Store(path)) as store:
        return {job.id: job for job in store.find(Filter())[0]}


def test_nothing_is_wrong(path: Path) -> None:
    before = path.read_bytes()
    done = repair(path, 0, "now")
    assert (done.saved, done.lost, done.wrong, done.kept) == (JOBS, [], None, None)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_bad_rows_are_set_aside(path: Path) -> None:
    before = saved(path)
    change(path, 4, "status = 'RUNNIMG'")
    change(path, 2, "environment_id = 999")
    done = repair(path, 0, "now")
    assert (done.saved, done.lost) == (JOBS - 2, [2, 4])
    assert done.kept == path.with_name("sysjobs.db.damaged-now")
    after = saved(path)
    assert after == {job_id: job for job_id, job in before.items() if job_id not in (2, 4)}
    with closing(Store(path)) as store:
        assert store.payload(3).environment == (b"A=0", b"B=" + b"x" * 5000)
        assert store.add(new_job()).id == JOBS + 1
        store.rollback()
    assert repair(path, 0, "later").wrong is None


def zeroed_end(data: bytearray) -> None:
    data[-10 * PAGE :] = bytes(10 * PAGE)


def zeroed_middle(data: bytearray) -> None:
    pages = sorted(leaves(data))
    for page in pages[len(pages) // 3 : len(pages) // 2]:
        data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)


def truncated(data: bytearray) -> None:
    del data[-10 * PAGE :]


def leaves(data: bytearray) -> Iterator[int]:
    """Pages that rows of jobs are in."""
    for page in range(1, len(data) // PAGE):
        if data[page * PAGE] == 13 and b"SUCCEEDED" in data[page * PAGE : (page + 1) * PAGE]:
            yield page


@pytest.mark.parametrize("damage", [zeroed_end, zeroed_middle, truncated])
def test_a_damaged_file(path: Path, damage: Callable[[bytearray], None]) -> None:
    before = saved(path)
    with closing(sqlite3.connect(path)) as db:
        # Nobody would miss free pages.
        db.execute("VACUUM")
    data = bytearray(path.read_bytes())
    damage(data)
    path.write_bytes(data)
    done = repair(path, 0, "now")
    assert done.wrong
    assert done.kept is not None
    assert done.kept.read_bytes() == bytes(data)
    after = saved(path)
    assert after == {job_id: job for job_id, job in before.items() if job_id not in done.lost}
    assert len(after) == done.saved > JOBS // 4
    with closing(Store(path)) as store:
        for job_id in after:
            assert store.payload(job_id).command[0] == b"echo"
        assert store.add(new_job()).id == JOBS + 1


def test_no_database_at_all(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    done = repair(path, 77, "now")
    assert (done.saved, done.kept) == (0, path.with_name("sysjobs.db.damaged-now"))
    with closing(Store(path)) as store:
        assert store.add(new_job()).id == 78


def test_what_was_not_yet_moved_from_the_log_is_saved(path: Path, tmp_path: Path) -> None:
    """As a daemon that was killed leaves it, and that of a damaged file."""
    there = tmp_path / "there"
    there.mkdir()
    with closing(Store(path)) as store:
        job = store.add(new_job(name="last"))
        store.commit()
        for name in (path.name, f"{path.name}-wal"):
            shutil.copy(path.parent / name, there)
    killed = there / path.name
    change_page = bytearray(killed.read_bytes())
    zeroed_middle(change_page)
    killed.write_bytes(change_page)
    done = repair(killed, 0, "now")
    assert done.wrong
    assert saved(killed)[job.id].name == "last"
    assert killed.with_name("sysjobs.db.damaged-now-wal").exists()


def test_a_garbled_log_loses_what_is_in_it_alone(path: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    with closing(Store(path)) as store:
        store.add(new_job())
        store.commit()
        for name in (path.name, f"{path.name}-wal"):
            shutil.copy(path.parent / name, there)
    killed = there / path.name
    killed.with_name(f"{path.name}-wal").write_bytes(b"garbage" * 10_000)
    assert len(saved(killed)) == JOBS


def test_not_while_it_is_in_use(path: Path) -> None:
    code = """
import sys
from pathlib import Path
from sysjobs.store.repair import repair
repair(Path(sys.argv[1]), 0, "now")
"""
    with closing(Store(path)):
        done = subprocess.run([sys.executable, "-c", code, path], cwd=REPO, capture_output=True, text=True)
    assert "is in use by another process" in done.stderr


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        repair(tmp_path / "sysjobs.db", 0, "now")


def test_ranges() -> None:
    assert ranges([]) == ""
    assert ranges([9, 3, 4, 5, 11, 12]) == "3-5, 9, 11-12"


def test_a_file_of_the_first_schema(tmp_path: Path) -> None:
    path = Path(shutil.copy(REPO / "tests/data/v1.db", tmp_path / "sysjobs.db"))
    with closing(sqlite3.connect(path)) as db:
        (count,) = db.execute("SELECT count(*) FROM jobs").fetchone()
    path.write_bytes(path.read_bytes() + b"x")
    change(path, 1, "status = 'RUNNIMG'")
    done = repair(path, 0, "now")
    assert (done.saved, done.lost) == (count - 1, [1])


def test_a_damaged_page_of_a_job_is_its_own_misfortune(path: Path) -> None:
    """Its row is beside those of others, and its environment on a page of others."""
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute(
            "SELECT pageno FROM dbstat WHERE name = 'environments' AND pagetype = 'leaf' LIMIT 1"
        ).fetchone()
    data = bytearray(path.read_bytes())
    data[(page - 1) * PAGE : page * PAGE] = b"\xff" * PAGE
    path.write_bytes(data)
    with closing(Store(path)) as store:
        ids = [job.id for job in store.find(Filter())[0]]
        damaged = []
        for job_id in ids:
            try:
                store.payload(job_id)
            except RowDamaged as error:
                damaged.append(error)
        assert 0 < len(damaged) < len(ids) == JOBS


def test_a_damaged_page_is_the_misfortune_of_its_jobs(path: Path) -> None:
    data = bytearray(path.read_bytes())
    page = sorted(leaves(data))[5]
    data[page * PAGE : (page + 1) * PAGE] = b"\xff" * PAGE
    before = saved(path)
    path.write_bytes(data)
    with closing(Store(path)) as store:
        jobs, damaged = store.get_all(before)
        assert {job.id: job for job in jobs} == {
            job_id: job for job_id, job in before.items() if job_id not in damaged
        }
        assert 0 < len(damaged) < 20


def test_a_check_leaves_what_is_to_be_committed_alone(path: Path) -> None:
    with closing(Store(path)) as store:
        job = store.add(new_job())
        assert store.check() is None
        store.rollback()
        assert store.get(job.id) is None
