"""The queue on disk: what it keeps, finds and refuses. How it is opened is in test_database.py."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.conditions import Hold
from sysjobs.jobs import Cancellation, Exit, Job, Reason, Status, Usage
from sysjobs.payload import Payload
from sysjobs.ports import RowRefused
from sysjobs.resources import Amount
from sysjobs.store import Filter, Store
from sysjobs.store.database import schema_sql
from tests.models import BOOT, INVOCATION, NOW, new_job


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for tests that roll back."""
    with closing(Store(tmp_path_factory.mktemp("store") / "sysjobs.db")) as store:
        yield store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sysjobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(Store(path)) as store:
        yield store


# Some of `states`.
PENDING, SETTING_UP, RUNNING, SUCCEEDED, FAILED = 1, 2, 3, 5, 6


def states(job: Job) -> list[Job]:
    """This job in every status, with all that can be known of it. tests/data/v1.db has the first twelve."""
    failed = Reason("exit-code", "Ended with exit code 3.")
    launched = replace(job, boot_id=BOOT, shard=7, started_at=NOW + 1, deadline=60)
    running = replace(launched, status=Status.RUNNING, invocation_id=INVOCATION, running_at=NOW + 2)
    ended = replace(running, deadline=None, ended_at=NOW + 3, reason=failed)
    wish = Cancellation(0, "root", "", NOW + 2, 5.5)
    return [
        replace(job, status=Status.INIT, reason=Reason("held", "It is held.")),
        job,
        replace(launched, status=Status.SETTING_UP, attempt=2),
        running,
        replace(running, cancellation=wish, kill_at=99, timed_out=True, deadline=None),
        replace(ended, status=Status.SUCCEEDED, reason=None, main=Exit(0), setup=Exit(0)),
        replace(ended, status=Status.FAILED, main=Exit(3)),
        replace(ended, status=Status.FAILED, main=Exit(signal=6, dumped=True), setup=Exit(0)),
        replace(ended, status=Status.FAILED_SETUP, running_at=None, setup=Exit(signal=11, dumped=True)),
        replace(ended, status=Status.FAILED_DRIVER),
        replace(ended, status=Status.CANCELLED, cancellation=wish, main=Exit(signal=15)),
        replace(job, status=Status.CANCELLED, ended_at=NOW, reason=failed, cancellation=wish),
        replace(ended, status=Status.FAILED_DRIVER, main=Exit(signal=9), usage=Usage(7, 1 << 40, 8, 9)),
        replace(job, status=Status.INIT, hold=Hold(0, "root")),
    ]


def test_every_state_is_read_back(store: Store) -> None:
    job = store.add(new_job(payload=Payload((b"x",), setup=b"make")))
    assert {state.status for state in states(job)} == set(Status)
    for state in states(job):
        store.save(state)
        assert store.get(job.id) == state
        store.commit()
        assert store.get(job.id) == state


short = st.binary(max_size=12).map(lambda data: data.replace(b"\0", b""))
payloads = st.builds(
    Payload,
    command=st.lists(short, min_size=1, max_size=4).map(tuple),
    shell=st.none() | short,
    setup=st.none() | short,
    workdir=short,
    env=st.lists(st.tuples(short, short), max_size=3).map(tuple),
    umask=st.none() | st.integers(0, 0o777),
    limits=st.dictionaries(st.text(max_size=6), st.integers(-1, 2**63 - 1), max_size=3),
    environment=st.none() | st.lists(short, max_size=4).map(tuple),
)
new_jobs = st.builds(
    new_job,
    uid=st.integers(0, 2**32 - 1),
    gid=st.integers(0, 2**32 - 1),
    name=st.text(st.characters(codec="utf-8"), max_size=9),
    amount=st.builds(Amount, st.integers(0, 10**9), st.integers(0, 2**60)),
    time_limit=st.none() | st.floats(1e-6, 1e10),
    grace=st.floats(0, 1e10),
    payload=payloads,
)


@given(new=new_jobs)
def test_what_was_submitted_is_read_back(shared: Store, new: object) -> None:
    assert isinstance(new, type(new_job()))
    try:
        job = shared.add(new)
        assert shared.get(job.id) == job
        assert shared.payload(job.id) == new.payload
        kept = (job.uid, job.gid, job.user, job.name, job.amount, job.time_limit, job.grace, job.submitted_at)
        assert kept == (
            *(new.uid, new.gid, new.user, new.name, new.amount, new.time_limit, new.grace, new.submitted_at),
        )
        assert (job.status, job.has_setup) == (Status.PENDING, new.payload.setup is not None)
    finally:
        shared.rollback()


def test_what_is_not_there(store: Store) -> None:
    assert store.get(1) is None
    assert store.find_key(1000, "k") is None
    assert list(store.unfinished()) == []
    assert store.find(Filter()) == ([], 0)


def test_a_key_is_its_users(store: Store) -> None:
    job = store.add(new_job(key="k"))
    other = store.add(new_job(key="k", uid=0))
    assert (store.find_key(1000, "k"), store.find_key(0, "k")) == (job.id, other.id)
    assert store.find_key(1, "k") is None
    with pytest.raises(sqlite3.IntegrityError):
        store.add(new_job(key="k"))
    store.add(new_job(key=None))
    store.add(new_job(key=None))


def test_an_environment_is_stored_once(store: Store, path: Path) -> None:
    one, other = (b"A=1", b"B=\xff\n"), (b"A=1",)
    environments = [one, other, one, None, (), one]
    jobs = [store.add(new_job(payload=Payload((b"x",), environment=each))) for each in environments]
    assert [store.payload(job.id).environment for job in jobs] == environments
    store.commit()
    store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT data FROM environments ORDER BY id").fetchall() == [
            (b"A=1\0B=\xff\n\0",),
            (b"A=1\0",),
            (b"",),
        ]


def test_ids_are_never_used_again(store: Store) -> None:
    first = store.add(new_job())
    store.commit()
    second = store.add(new_job())
    assert (first.id, second.id) == (1, 2)


def test_ids_that_are_reserved_are_not_used(store: Store) -> None:
    store.reserve(7)
    assert store.add(new_job()).id == 8
    store.reserve(3)
    store.commit()
    assert store.add(new_job()).id == 9
    store.reserve(20)
    store.rollback()
    assert store.add(new_job()).id == 9


def test_rollback(store: Store) -> None:
    job = store.add(new_job())
    store.commit()
    store.save(replace(job, reason=Reason("a", "b")))
    store.add(new_job())
    store.rollback()
    assert store.find(Filter()) == ([job], 0)
    store.rollback()
    store.commit()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Jobs 1 to 6, of alice but for 2 and 5, which are root's; 1 and 2 are over, 6 runs."""
    with closing(Store(tmp_path_factory.mktemp("filled") / "sysjobs.db")) as store:
        for number in range(1, 7):
            job = store.add(new_job(uid=0 if number in (2, 5) else 1000))
            if number in (1, 2):
                store.save(replace(states(job)[FAILED], invocation_id=None))
            elif number == 6:
                store.save(states(job)[RUNNING])
        yield store


FOUND = [
    (Filter(), [1, 2, 3, 4, 5, 6], 0),
    (Filter(limit=2), [5, 6], 4),
    (Filter(limit=6), [1, 2, 3, 4, 5, 6], 0),
    (Filter(limit=9), [1, 2, 3, 4, 5, 6], 0),
    (Filter(uid=1000), [1, 3, 4, 6], 0),
    (Filter(uid=1000, limit=1), [6], 3),
    (Filter(uid=7), [], 0),
    (Filter(ids=[]), [], 0),
    (Filter(ids=[range(2, 4)]), [2, 3], 0),
    (Filter(ids=[range(5, 6), range(2, 4), range(1, 3), range(3, 4)]), [1, 2, 3, 5], 0),
    (Filter(ids=[range(4, 2**63)]), [4, 5, 6], 0),
    (Filter(ids=[range(1, 7)], uid=0), [2, 5], 0),
    (Filter(ids=[range(2, 6), range(1, 4)], limit=2), [4, 5], 3),
    (Filter(statuses=[Status.FAILED]), [1, 2], 0),
    (Filter(statuses=[Status.PENDING]), [3, 4, 5], 0),
    (Filter(statuses=[Status.PENDING, Status.RUNNING], uid=1000), [3, 4, 6], 0),
    (Filter(statuses=[Status.FAILED, Status.RUNNING]), [1, 2, 6], 0),
    (Filter(statuses=[]), [], 0),
]


@pytest.mark.parametrize(("wanted", "ids", "left_out"), FOUND)
def test_find(filled: Store, wanted: Filter, ids: list[int], left_out: int) -> None:
    jobs, left = filled.find(wanted)
    assert ([job.id for job in jobs], left) == (ids, left_out)


def test_unfinished(filled: Store) -> None:
    assert [job.id for job in filled.unfinished() if isinstance(job, Job)] == [3, 4, 5, 6]


def test_find_among_very_many_ids(filled: Store) -> None:
    """A name can mean thousands of jobs, and a person can list as many."""
    ids = [range(number, number + 1) for number in range(3, 40_000, 2)]
    assert [job.id for job in filled.find(Filter(ids=ids))[0]] == [3, 5]


def test_a_commit_outlives_a_kill(path: Path) -> None:
    """What was not committed is not there in part either."""
    code = """
import os, sys
from pathlib import Path
from sysjobs.store import Store
from tests.models import new_job
store = Store(Path(sys.argv[1]))
store.add(new_job(key="first"))
store.commit()
store.add(new_job(key="second"))
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code, path], cwd=Path(__file__).parent.parent, check=False)
    assert done.returncode == -signal.SIGKILL
    with closing(Store(path)) as store:
        assert store.find_key(1000, "first") == 1
        assert store.find_key(1000, "second") is None
        assert store.payload(1) == new_job().payload


def test_a_full_disk_keeps_nothing_of_a_commit(store: Store) -> None:
    job = store.add(new_job())
    store.commit()
    store._db.execute("PRAGMA max_page_count = 1")
    store.save(replace(job, reason=Reason("a", "b")))
    with pytest.raises(store.failure, match="full"):
        store.add(new_job(payload=Payload((b"x" * 5_000_000,))))
    store.rollback()
    assert store.find(Filter()) == ([job], 0)


# A row in one of the states above, what can't be true of it, and what the database says.
IMPOSSIBLE = [
    (PENDING, "uid = -1", "uid >= 0"),
    (PENDING, "gid = -1", "gid >= 0"),
    (PENDING, "uid = 'alice'", "cannot store TEXT value in INTEGER column"),
    (PENDING, "user = NULL", "NOT NULL"),
    (PENDING, "payload = '{'", "json_valid(payload)"),
    (PENDING, "environment_id = 7", "FOREIGN KEY"),
    (PENDING, "cpus = -1", "cpus >= 0"),
    (PENDING, "memory = -1", "memory >= 0"),
    (PENDING, "has_setup = 2", "has_setup IN (0, 1)"),
    (PENDING, "time_limit = 0", "time_limit > 0"),
    (PENDING, "grace = -1", "grace >= 0"),
    (PENDING, "status = 'DONE'", "status IN ("),
    (PENDING, "status = 'FAILED'", "ended_at IS NOT NULL"),
    (PENDING, "status = 'RUNNING'", "status NOT IN ('SETTING_UP', 'RUNNING') OR started_at IS NOT NULL"),
    (PENDING, "attempt = 0", "attempt >= 1"),
    (PENDING, "kill_at = 7", "kill_at IS NULL OR"),
    (PENDING, "ended_at = submitted_at", "ended_at IS NOT NULL"),
    (PENDING, "reason = 'x'", "(reason_code IS NULL) = (reason IS NULL)"),
    (PENDING, "boot_id = 'x'", "(boot_id IS NULL) = (started_at IS NULL)"),
    (PENDING, "cancel_at = 7", "(cancel_at IS NULL) = (cancel_uid IS NULL)"),
    (RUNNING, "status = 'PENDING'", "status NOT IN ('INIT', 'PENDING') OR started_at IS NULL"),
    (RUNNING, "started_at = NULL", "(boot_id IS NULL) = (started_at IS NULL)"),
    (RUNNING, "shard = NULL", "(boot_id IS NULL) = (shard IS NULL)"),
    (RUNNING, "shard = -1", "shard >= 0"),
    (RUNNING, "timed_out = 2", "timed_out IN (0, 1)"),
    (RUNNING, "ended_at = submitted_at", "ended_at IS NOT NULL"),
    (SETTING_UP, "has_setup = 0", "status <> 'SETTING_UP' OR has_setup"),
    (SUCCEEDED, "exit_code = 1", "status <> 'SUCCEEDED' OR"),
    (SUCCEEDED, "exit_code = NULL, signal = 9", "status <> 'SUCCEEDED' OR"),
    (SUCCEEDED, "exit_code = NULL", "status <> 'SUCCEEDED' OR"),
    (FAILED, "status = 'FAILED_SETUP', has_setup = 0", "status <> 'FAILED_SETUP' OR has_setup"),
    (FAILED, "reason = NULL, reason_code = NULL", "status NOT LIKE 'FAILED%' OR reason IS NOT NULL"),
    (FAILED, "ended_at = submitted_at - 1", "ended_at IS NULL OR ended_at >= submitted_at"),
    (FAILED, "ended_at = NULL", "ended_at IS NOT NULL"),
    (FAILED, "exit_code = 3, signal = 9", "exit_code IS NULL OR signal IS NULL"),
    (FAILED, "setup_exit_code = 3, setup_signal = 9", "setup_exit_code IS NULL OR setup_signal IS NULL"),
    (FAILED, "dumped = 2", "dumped IN (0, 1)"),
    (FAILED, "setup_dumped = 2", "setup_dumped IN (0, 1)"),
    (FAILED, "kill_at = 7", "kill_at IS NULL OR"),
    (FAILED, "peak_memory = -1", "peak_memory >= 0"),
    (FAILED, "cpu_time = -1", "cpu_time >= 0"),
    (FAILED, "io_read = -1", "io_read >= 0"),
    (FAILED, "io_written = -1", "io_written >= 0"),
    (FAILED, "priority = 1001", "priority BETWEEN -1000 AND 1000"),
    (1, "dependencies = 'x'", "json_valid(dependencies)"),
    (1, "gpus = -1", "gpus >= 0"),
    (1, "others = 'x'", "json_valid(others)"),
    (RUNNING, "devices = 'x'", "json_valid(devices)"),
    (1, "hard_cpus = 2", "hard_cpus IN (0, 1)"),
    (1, "notice_signal = 65, notice_before = 1.0", "notice_signal BETWEEN 1 AND 64"),
    (1, "notice_signal = 10", "(notice_before IS NULL) = (notice_signal IS NULL)"),
    (RUNNING, "noticed = 2", "noticed IN (0, 1)"),
    (RUNNING, "sent_signal = 65, sent_user = 'x', sent_at = 7", "sent_signal BETWEEN 1 AND 64"),
    (RUNNING, "sent_user = 'x'", "(sent_user IS NULL) = (sent_signal IS NULL)"),
    (RUNNING, "sent_at = 7", "(sent_at IS NULL) = (sent_signal IS NULL)"),
    (RUNNING, "sent_everybody = 2", "sent_everybody IN (0, 1)"),
    (RUNNING, "sent_due = 2", "sent_due IN (0, 1)"),
    (1, "held_uid = 0, held_user = 'root'", "held_uid IS NULL OR status = 'INIT'"),
    (0, "held_uid = 0", "(held_uid IS NULL) = (held_user IS NULL)"),
    (0, "array_spec = 'x', array_state = '{}'", "json_valid(array_spec)"),
    (0, "array_spec = '{}'", "(array_state IS NULL) = (array_spec IS NULL)"),
    (0, "task = 7", "(task IS NULL) = (array_id IS NULL)"),
    (0, "retry = 'x'", "json_valid(retry)"),
    (0, "past = 'x'", "json_valid(past)"),
    (RUNNING, "over = 2", "over IN (0, 1)"),
    (RUNNING, "requeue = 'x'", "json_valid(requeue)"),
]


def refused(store: Store, state: int, change: str) -> str:
    """What the database says to this change of a row in this state."""
    job = store.add(new_job(payload=Payload((b"x",), setup=b"make")))
    store.save(states(job)[state])
    with pytest.raises(sqlite3.IntegrityError) as caught:
        store._db.execute(f"UPDATE jobs SET {change} WHERE id = ?", [job.id])
    assert store.get(job.id) == states(job)[state]
    store.rollback()
    return str(caught.value)


@pytest.mark.parametrize(("state", "change", "said"), IMPOSSIBLE)
def test_impossible_rows(shared: Store, state: int, change: str, said: str) -> None:
    assert said in re.sub(r"\s+", " ", refused(shared, state, change))


def test_impossible_environments(shared: Store) -> None:
    shared.add(new_job(payload=Payload((b"x",), environment=(b"A=1",))))
    for change in ("hash = x'00'", "hash = NULL", "data = 'text'"):
        with pytest.raises(sqlite3.IntegrityError):
            shared._db.execute(f"UPDATE environments SET {change}")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        shared._db.execute("INSERT INTO environments (hash, data) SELECT hash, data FROM environments")
    shared.rollback()


def test_each_check_refuses_something(shared: Store) -> None:
    """A CHECK that no row above runs into could be wrong, or gone."""
    said = {refused(shared, state, change) for state, change, _ in IMPOSSIBLE}
    checks = {text for text in said if text.startswith("CHECK constraint failed")}
    # One is of the environments.
    assert len(checks) == len(re.findall(r"\bCHECK \(", schema_sql())) - 1


def test_one_invocation_is_of_one_job(shared: Store) -> None:
    one, other = shared.add(new_job()), shared.add(new_job())
    shared.save(states(one)[RUNNING])
    with pytest.raises(RowRefused, match=r"UNIQUE constraint failed: jobs\.invocation_id"):
        shared.save(states(other)[RUNNING])
    shared.rollback()
