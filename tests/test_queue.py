"""The queue with a database and an engine that does nothing: what waits for other things than its turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sysjobs.conditions import Conditions, Dependency, Hold, When
from sysjobs.devices import Access
from sysjobs.engine import Boot, Observation
from sysjobs.errors import Refused
from sysjobs.events import CancelRequested, Ended
from sysjobs.handlers import Handlers
from sysjobs.jobs import Job, Notice, Outcome, Reason, Status
from sysjobs.peer import Peer
from sysjobs.protocol import Call
from sysjobs.queue import Queue
from sysjobs.resources import Amount
from sysjobs.scheduling.backfill import Rules
from sysjobs.scheduling.pool import Capacity
from sysjobs.scheduling.waiting import Drain, Waiting
from sysjobs.store import Store
from tests.models import BOOT, NOW, cancel, new_job

ALICE = Peer(1000, 1000, "alice")


class Idle:
    """An engine, a clock and room for all."""

    def __init__(self) -> None:
        self.boot = Boot(BOOT)
        self.controllers = ("memory",)
        self.access = Access()
        self.observed: list[int] = []
        self.time = 1_000_000

    def now(self) -> int:
        return NOW

    def monotonic(self) -> int:
        return self.time

    def to_submit(self) -> None: ...

    def to_start(self) -> None: ...

    def observe_all(self, jobs: Iterable[Job]) -> list[Observation]:
        self.observed = [job.id for job in jobs]
        return []

    def users(self) -> list[int]:
        return []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: None


class World:
    def __init__(self, path: Path) -> None:
        self.idle: Any = Idle()
        self.store = Store(path)
        waiting = Waiting(self.idle, self.idle, Rules())
        capacity = Capacity(1000, 8 << 30)
        self.queue = Queue(self.store, self.idle, capacity, self.idle, lambda: None, waiting)
        self.queue.load()
        self.queue.reconcile()
        settings: Any = SimpleNamespace(grace=30.0)
        none: Any = None
        self.handlers = Handlers(
            self.queue, self.store, self.idle, none, settings, self.idle, none, none, none
        )

    def close(self) -> None:
        self.store.close()

    def add(self, *dependencies: tuple[When, int], **fields: object) -> int:
        conditions = Conditions(dependencies=tuple(Dependency(when, other) for when, other in dependencies))
        job_id = self.queue.submit(new_job(conditions=conditions, **fields))
        self.queue.flush()
        return job_id

    def submit(self, **parameters: object) -> int:
        """As a client asks for it."""
        replies: list[dict[str, int]] = []
        exchange: Any = SimpleNamespace(peer=ALICE, finish=replies.append)
        call = Call("io.sysjobs.Submit", {"job": {"command": ["true"]}, **parameters})
        self.handlers.table()["io.sysjobs.Submit"](exchange, call)
        self.queue.flush()
        return replies[0]["id"]

    def change(self, job_id: int, event: CancelRequested | Ended) -> None:
        self.queue.apply(self.queue.jobs[job_id], event)
        self.queue.flush()

    def status(self, job_id: int) -> Status:
        job = self.store.get(job_id)
        assert job is not None
        return job.status


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(World(tmp_path / "sysjobs.db")) as world:
        yield world


DONE = Ended(NOW + 2, Outcome(Status.FAILED_DRIVER))


def test_units_are_looked_for_of_jobs_that_were_launched_alone(world: World) -> None:
    runs = world.add()
    waits = world.add(amount=Amount(1000, 0))
    held = world.add(hold=Hold(1000, "alice"))
    assert [world.status(job) for job in (runs, waits, held)] == [
        Status.RUNNING,
        Status.PENDING,
        Status.INIT,
    ]
    world.queue.check()
    assert world.idle.observed == [runs]


def test_a_dependency_that_cannot_be_read_for_now(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes of it but that it is looked at again; all others go on."""
    first = world.add()
    world.change(first, cancel())
    world.change(first, DONE)
    world.queue.jobs.clear()

    def fails(job_id: int) -> Job:
        raise Store.failure("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "get", fails)
        later = world.add((When.ANY, first))
        assert world.queue.jobs[later].status is Status.INIT
        other = world.add(amount=Amount(0, 0))
        assert world.queue.jobs[other].status is Status.RUNNING
    world.queue.flush()
    assert world.status(later) is not Status.INIT


def test_a_repeated_submit_is_the_same_job_whatever_has_become_of_what_it_names(world: World) -> None:
    first = world.submit(job={"command": ["true"], "name": "prepare", "hold": True})
    job = {"command": ["true"], "afterany": ["prepare"]}
    later = world.submit(job=job, key="k")
    world.change(first, cancel())
    assert world.status(first) is Status.CANCELLED
    assert world.submit(job=job, key="k") == later


def test_what_jobs_come_after_is_bounded_for_each_user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """For it is kept in memory, also once it has come."""
    monkeypatch.setattr("sysjobs.scheduling.waiting.MOST_DEPENDENCIES", 3)
    first = world.add()
    after = [(When.AFTER, first), (When.ANY, first)]
    started, other = world.add(*after[:1], amount=Amount(0, 0)), world.add(*after)
    assert (world.status(started), world.status(other)) == (Status.RUNNING, Status.INIT)
    met = world.add(*after[:1], amount=Amount(1000, 0))
    assert world.status(met) is Status.PENDING
    with pytest.raises(Refused) as caught:
        world.add(*after[:1])
    assert caught.value.code == "too-many"
    world.add()
    world.add(*after, uid=7)
    world.queue.load()
    world.queue.reconcile()
    world.queue.flush()
    for job in (met, other):
        with pytest.raises(Refused):
            world.add(*after, (When.OK, first))
        world.queue.change(world.queue.jobs[job], cancel())
    world.add(*after, (When.OK, first))


def test_a_drained_node_waits_for_no_moment_at_which_it_starts_nothing(world: World) -> None:
    """Else the daemon would look again and again."""
    world.add()
    assert world.status(world.add(amount=Amount(1000, 0))) is Status.PENDING
    world.queue.waiting.postpone(Reason("no-room", "There is no room."))
    assert world.queue.waiting.next_time() is not None
    world.queue.waiting.drain = Drain("root", NOW)
    assert world.queue.waiting.next_time() is None
    world.queue.waiting.drain = None
    assert world.queue.waiting.next_time() is not None


def test_a_time_limit_that_has_passed_together_with_the_signal_before_it(world: World) -> None:
    """As where the daemon was away meanwhile: it is held to it all the same."""
    job_id = world.add(time_limit=10.0, notice=Notice(10, 5.0))
    world.idle.time += 7_000_000
    world.queue.tick()
    world.queue.flush()
    assert world.queue.jobs[job_id].noticed
    late = world.add(time_limit=10.0, notice=Notice(10, 5.0))
    world.idle.time += 11_000_000
    for _ in range(2):
        world.queue.tick()
        world.queue.flush()
    assert [world.queue.jobs[each].timed_out for each in (job_id, late)] == [True, True]
