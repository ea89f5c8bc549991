"""Arrays on disk and in the queue: what they cost, and what is known of them after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sysjobs.conditions import Conditions, Dependency, When
from sysjobs.engine import Boot
from sysjobs.engine.files import JobFiles
from sysjobs.events import CancelRequested, Ended, TasksCancelled, TimeLimitReached
from sysjobs.indices import Indices, Places
from sysjobs.jobs import Array, Exit, Outcome, Reason, Status, Task
from sysjobs.payload import Payload
from sysjobs.ports import RowDamaged
from sysjobs.protocol import Call
from sysjobs.resources import Amount
from sysjobs.store import Filter, Kind, Store
from sysjobs.sweep import Param
from sysjobs.tasks import task_of, without_turn
from tests.models import NOW, new_job
from tests.test_array import BY_ALICE, ROOT, places
from tests.test_queue import ALICE, World

# On disk


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "sysjobs.db")) as store:
        yield store


SWEEP = Array(
    Indices((range(0, 40, 10), range(7, 8))),
    Places((range(1, 3),)),
    10,
    (Param(b"lr", (b"0.1", b"\xff")),),
    ((places(3), ROOT),),
    ((places(4), BY_ALICE),),
    ((Status.SUCCEEDED, 1),),
)


def test_an_array_comes_back_as_it_was_written(store: Store) -> None:
    job = store.add(new_job(array=SWEEP))
    assert store.get(job.id) == job
    changed = replace(job, array=replace(SWEEP, waiting=Places(), held=(), limit=None))
    store.save(changed)
    assert store.get(job.id) == changed


def test_tasks_on_disk(store: Store) -> None:
    plain = store.add(new_job())
    payload = Payload((b"run", b"{lr}"), env=((b"A", b"1"),), environment=(b"B=2",))
    job = store.add(new_job(array=SWEEP, payload=payload))
    ids = {index: store.add_task(job, index).id for index in (10, 0, 7)}
    store.commit()
    task = store.get(ids[0])
    assert task == task_of(job, 0, ids[0])
    got = store.payload(ids[0])
    assert got.command == (b"run", b"0.1")
    assert got.environment == (b"B=2",)
    assert dict(got.env)[b"SYSJOBS_ARRAY_TASK_ID"] == b"0"
    assert store.payload(job.id) == payload
    assert store.find_tasks(job.id, SWEEP.indices) == {index: ids[index] for index in (0, 7, 10)}
    assert store.find_tasks(job.id, Indices((range(1), range(5, 12)))) == ids
    assert store.find_tasks(job.id, Indices((range(11, 40),))) == {}

    def found(kind: Kind, uid: int | None = 1000) -> list[int]:
        return [*store.find_ids(Filter(uid=uid, kind=kind))[0]]

    tasks = sorted(ids.values())
    assert found(Kind.ALL) == [plain.id, job.id, *tasks]
    assert found(Kind.JOBS) == found(Kind.JOBS, None) == [plain.id, job.id]
    assert found(Kind.ARRAYS) == [job.id]
    assert found(Kind.UNITS, None) == [plain.id, *tasks]
    ranges = [range(plain.id, ids[7] + 1)]
    assert [*store.find_ids(Filter(ids=ranges, kind=Kind.JOBS))[0]] == [plain.id, job.id]


@pytest.mark.parametrize(
    ("spec", "state", "said"),
    [
        ('{"indices": "x"}', '{"waiting": ""}', "its tasks are"),
        ("{}", '{"waiting": ""}', "its tasks are"),
        ("[]", '{"waiting": ""}', "its tasks are"),
        ('{"indices": "0-3", "params": "[]"}', '{"waiting": ""}', "its parameters are"),
        ('{"indices": "0-3"}', "{}", "how far its tasks are"),
        ('{"indices": "0-3"}', "x", "how far its tasks are"),
        ('{"indices": "0-3"}', '{"waiting": "0-4"}', "how far its tasks are"),
        ('{"indices": "0-3"}', '{"waiting": "0-1", "limit": "x"}', "how far its tasks are"),
        ('{"indices": "0-3"}', '{"waiting": "0-1", "limit": 0}', "how far its tasks are"),
        ('{"indices": "0-3"}', '{"waiting": "0-1", "ended": {"x": 1}}', "how far its tasks are"),
        ('{"indices": "0-3"}', '{"waiting": "0-1", "held": [["7-7", 0, "root"]]}', "how far its tasks are"),
        ('{"indices": "0-3"}', '{"waiting": "0-1", "cancelled": [["1-1"]]}', "how far its tasks are"),
    ],
)
def test_a_damaged_array_is_refused_by_name(store: Store, spec: str, state: str, said: str) -> None:
    job = store.add(new_job(array=SWEEP))
    store._db.execute("UPDATE jobs SET array_spec = ?, array_state = ? WHERE id = ?", [spec, state, job.id])
    with pytest.raises(RowDamaged, match=said):
        store.get(job.id)


# In the queue


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(World(tmp_path / "sysjobs.db")) as world:
        yield world


def tasks_of(world: World, job_id: int) -> dict[int, str]:
    job = world.store.get(job_id)
    assert job is not None
    assert job.array is not None
    ids = world.store.find_tasks(job_id, job.array.indices)
    return {index: world.status(task_id).value for index, task_id in ids.items()}


def end(world: World, job_id: int, index: int, status: Status = Status.SUCCEEDED) -> None:
    task = next(job for job in world.queue.jobs.values() if job.task == Task(job_id, index))
    outcome = Outcome(status, Reason("x", "x") if status is not Status.SUCCEEDED else None, Exit(0))
    world.queue.done(world.queue.apply(task, Ended(NOW + 3, outcome)))
    world.queue.flush()


def test_an_array_costs_what_runs_of_it(world: World) -> None:
    """The node has one CPU."""
    job = world.submit(job={"command": ["true"], "array": "0-99999%3", "cpus": 0.25})
    assert tasks_of(world, job) == {0: "RUNNING", 1: "RUNNING", 2: "RUNNING"}
    assert len(world.queue.jobs) == 4
    end(world, job, 1)
    assert tasks_of(world, job) == {0: "RUNNING", 1: "SUCCEEDED", 2: "RUNNING", 3: "RUNNING"}
    assert (len(world.queue.jobs), len(world.queue.waiting)) == (4, 1)
    assert world.store.last_id() == job + 4
    (stored,) = world.store._db.execute("SELECT length(array_state) FROM jobs WHERE id = ?", [job]).fetchone()
    assert stored < 100


def test_a_queue_that_is_read_again_goes_on_where_it_was(world: World) -> None:
    job = world.submit(job={"command": ["true"], "array": "0-4%2", "cpus": 0.25})
    end(world, job, 0)
    world.queue.load()
    world.queue.reconcile()
    array = world.queue.jobs[job].array
    assert array is not None
    assert (array.live, array.waiting.dump(), array.ended) == (2, "3-4", ((Status.SUCCEEDED, 1),))
    for index in range(1, 5):
        end(world, job, index)
    assert world.status(job) is Status.SUCCEEDED
    assert not world.queue.jobs


def test_after_a_reboot_the_tasks_that_ran_are_lost_and_the_others_go_on(world: World) -> None:
    job = world.submit(job={"command": ["true"], "array": "0-3%2", "cpus": 0.25})
    world.idle.boot = Boot("another")
    world.queue.load()
    world.queue.reconcile()
    world.queue.flush()
    assert tasks_of(world, job) == {0: "FAILED_DRIVER", 1: "FAILED_DRIVER", 2: "RUNNING", 3: "RUNNING"}
    end(world, job, 2)
    end(world, job, 3)
    assert world.status(job) is Status.FAILED_DRIVER


def test_what_comes_after_an_array_and_after_its_tasks(world: World) -> None:
    job = world.submit(job={"command": ["true"], "array": "0-2%1", "cpus": 0.25})

    def after_it(when: When, index: int | None = None) -> int:
        conditions = Conditions(dependencies=(Dependency(when, job, index),))
        job_id = world.queue.submit(new_job(conditions=conditions, amount=Amount(0, 0)))
        world.queue.flush()
        return job_id

    waits = [
        (When.AFTER, None),
        (When.OK, 0),
        (When.OK, None),
        (When.NOT_OK, 1),
        (When.NOT_OK, None),
        (When.OK, 2),
    ]
    others = [after_it(*each) for each in waits]

    def seen() -> str:
        return " ".join(world.status(each).value for each in others)

    assert seen() == "RUNNING INIT INIT INIT INIT INIT"
    assert world.queue.waiting.why(world.queue.jobs[others[3]], world.queue.holdings).text == (
        f"Waits for job {job}_1 to fail."
    )
    end(world, job, 0)
    assert seen() == "RUNNING RUNNING INIT INIT INIT INIT"
    world.queue.apply(world.queue.jobs[job], TasksCancelled(places(2), BY_ALICE))
    world.queue.flush()
    assert seen() == "RUNNING RUNNING INIT INIT INIT CANCELLED"
    end(world, job, 1, Status.FAILED)
    assert seen() == "RUNNING RUNNING CANCELLED RUNNING RUNNING CANCELLED"


def test_a_whole_cancel_is_one(world: World) -> None:
    job = world.submit(job={"command": ["true"], "array": "0-9%2", "cpus": 0.25})
    whole = world.queue.jobs[job]
    wish = CancelRequested(BY_ALICE, 99)
    world.queue.change(whole, wish)
    for task in world.queue.tasks_of(whole):
        world.queue.change(task, wish)
    world.queue.flush()
    assert world.status(job) is Status.RUNNING
    assert [job.cancellation for job in world.queue.jobs.values()] == [BY_ALICE] * 3
    end(world, job, 0, Status.FAILED)
    end(world, job, 1, Status.FAILED)
    assert world.status(job) is Status.CANCELLED
    found = world.store.get(job)
    assert found is not None
    assert found.reason is not None
    assert found.reason.text == "Cancelled by its owner; of its 10 tasks 10 CANCELLED."


def call(world: World, method: str, **parameters: object) -> dict[str, Any]:
    replies: list[dict[str, Any]] = []
    exchange: Any = SimpleNamespace(peer=ALICE, finish=replies.append)
    world.handlers.table()[f"io.sysjobs.{method}"](exchange, Call(f"io.sysjobs.{method}", parameters))
    world.queue.flush()
    return replies[0]


def test_a_damaged_array_is_no_misfortune_of_its_tasks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.handlers, "files", JobFiles(Path("/scripts"), Path("/logs")))
    job = world.submit(job={"command": ["true"], "params": ["x=1-2"], "cpus": 0})
    end(world, job, 0)
    end(world, job, 1)
    listed = call(world, "List", tasks=True)["jobs"]
    assert [each.get("params") for each in listed] == [None, {"x": "1"}, {"x": "2"}]
    world.store._db.execute("UPDATE jobs SET array_state = '{}' WHERE id = ?", [job])
    world.handlers._sweep = (0, ())
    reply = call(world, "List", tasks=True)
    assert [each["task"] for each in reply["jobs"]] == [0, 1]
    assert reply["damaged"] == [job]


def test_what_waits_for_a_task_that_never_comes(world: World) -> None:
    """Its array was to come after what failed, or was cancelled as a whole."""
    first = world.add()
    never = world.submit(job={"command": ["true"], "array": "0-2", "afterok": [str(first)]})
    given_up = world.submit(job={"command": ["true"], "array": "0-2", "hold": True})
    others = [
        world.submit(job={"command": ["true"], "afterok": [f"{array}_1"]}) for array in (never, given_up)
    ]
    world.queue.change(world.queue.jobs[given_up], CancelRequested(BY_ALICE, 99))
    world.queue.done(
        world.queue.apply(world.queue.jobs[first], Ended(NOW + 3, Outcome(Status.FAILED_DRIVER)))
    )
    world.queue.flush()
    assert [world.status(each) for each in (never, given_up, *others)] == [Status.CANCELLED] * 4


def test_whoever_watches_tasks_is_told_of_those_that_are_given_up(world: World) -> None:
    job = world.submit(job={"command": ["true"], "array": "0-9%1", "cpus": 0})
    told: list[tuple[str, str]] = []
    for index in (0, 3, 4, 5):
        world.queue.watchers.add((job, index), lambda each: told.append((each.label, each.status.value)))
    call(world, "Cancel", ids=[f"{job}_3"])
    assert told == [(f"{job}_3", "CANCELLED")]
    end(world, job, 0)
    assert told[1:] == [(f"{job}_0", "SUCCEEDED")], "no news is none"
    call(world, "Cancel", ids=[str(job)])
    assert {*told[2:]} == {(f"{job}_{index}", "CANCELLED") for index in (3, 4, 5)}


def test_what_a_wish_for_an_array_or_a_task_is_answered_with(world: World) -> None:
    job = world.submit(job={"command": ["true"], "array": "0-9%1", "cpus": 0, "time": "1h"})
    (task,) = world.queue.tasks_of(world.queue.jobs[job])

    def outcome(method: str, name: str, **more: object) -> str:
        found: str = call(world, method, ids=[name], **more)["results"][0]["outcome"]
        return found

    assert outcome("Set", f"{job}_5", priority=1) == "part"
    assert outcome("Requeue", f"{job}_5") == "unstarted"
    assert outcome("Hold", f"{job}_[1-9]") == "held"
    assert outcome("Hold", str(job)) == "held"
    assert outcome("Release", f"{job}_3") == "released"
    assert outcome("Release", f"{job}_3") == "not_held"
    rest = world.submit(job={"command": ["true"], "array": "0-9%1", "cpus": 0})
    call(world, "Hold", ids=[str(rest)])
    end(world, rest, 0)
    assert outcome("Cancel", str(rest)) == "given_up"
    other = world.add(amount=Amount(0, 0))
    world.queue.apply(world.queue.jobs[other], TimeLimitReached(99))
    assert outcome("Requeue", str(other)) == "ending"
    assert outcome("Requeue", str(job)) == "requeued"
    world.queue.apply(world.queue.jobs[task.id], TimeLimitReached(99))
    assert outcome("Requeue", task.label) == "requeued", "once more is no other wish"
    assert outcome("Signal", f"{job}_5", signal="USR1") == "waits"
    held = world.submit(job={"command": ["true"], "array": "0-3", "hold": True})
    assert outcome("Release", f"{held}_2") == "array_held"
    task = without_turn(world.queue.jobs[held], 2)
    why = world.queue.waiting.why(task, world.queue.holdings)
    assert why.text == f"Held by its owner; `sysjobs release {held}` lets it go on."
