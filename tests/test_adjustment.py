"""What can be changed of a job that was submitted, and what comes of it in the queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sysjobs.adjustment import KEYS, Adjustment, parse_adjustment
from sysjobs.errors import Refused
from sysjobs.jobs import Notice, Status
from sysjobs.protocol import Call, Params
from sysjobs.resources import Amount
from tests.models import queued
from tests.test_queue import ALICE, World

WANTED: list[tuple[dict[str, object], Adjustment]] = [
    ({"priority": 10}, Adjustment(priority=10)),
    ({"time": "1h"}, Adjustment(time_limit=3600.0)),
    ({"time": "none"}, Adjustment(time_limit=0.0)),
    ({"cpus": 0.25, "memory": "1G"}, Adjustment(cpus=250, memory=1 << 30)),
    ({"gpus": "L4:0.5"}, Adjustment(gpus=(500, "L4"))),
    ({"array_limit": 0}, Adjustment(array_limit=0)),
]


@pytest.mark.parametrize(("asked", "wanted"), WANTED)
def test_parse(asked: dict[str, object], wanted: Adjustment) -> None:
    assert parse_adjustment(Params(asked, KEYS)) == wanted


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({}, "nothing-to-set"),
        ({"priority": 1001}, "bad-priority"),
        ({"time": "0"}, "bad-duration"),
        ({"time": "soon"}, "bad-duration"),
        ({"cpus": -1}, "bad-cpus"),
        ({"memory": "x"}, "bad-memory"),
        ({"gpus": ""}, "bad-gpus"),
        ({"array_limit": -1}, "bad-array-limit"),
        ({"array_limit": 1_000_001}, "bad-array-limit"),
    ],
)
def test_what_is_refused(asked: dict[str, object], code: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_adjustment(Params(asked, KEYS))
    assert (caught.value.code, bool(caught.value.hint)) == (code, True)


def test_a_signal_before_the_time_limit_needs_one() -> None:
    job = replace(queued(), notice=Notice(10, 60.0), time_limit=3600.0)
    assert Adjustment(time_limit=61.0).limit(job) == 61.0
    for limit in (0.0, 60.0):
        with pytest.raises(Refused, match="is to get a signal before its time limit"):
            Adjustment(time_limit=limit).limit(job)


def test_the_amount() -> None:
    before = Amount(500, 1 << 30, 1000, "L4", (("licence", 1),))
    assert Adjustment(priority=1).amount(before) == before
    assert Adjustment(cpus=1000, gpus=(2000, "")).amount(before) == replace(
        before, cpus=1000, gpus=2000, model=""
    )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(World(tmp_path / "sysjobs.db")) as world:
        yield world


def adjust(world: World, job_id: int, **wanted: object) -> str:
    replies: list[dict[str, Any]] = []
    exchange: Any = SimpleNamespace(peer=ALICE, finish=replies.append)
    call = Call("io.sysjobs.Set", {"ids": [str(job_id)], **wanted})
    world.handlers.table()["io.sysjobs.Set"](exchange, call)
    world.queue.flush()
    outcome: str = replies[0]["results"][0]["outcome"]
    return outcome


def test_what_waits_takes_another_place(world: World) -> None:
    """The node has one CPU, and a job that has all of it."""
    runs = world.add(amount=Amount(1000, 0))
    large, small = (world.add(amount=Amount(1000, 0)) for _ in range(2))
    assert [world.queue.waiting.position(world.queue.jobs[job]) for job in (large, small)] == [(1, 2), (2, 2)]
    assert adjust(world, small, priority=5) == "set"
    assert [world.queue.waiting.position(world.queue.jobs[job]) for job in (large, small)] == [(2, 2), (1, 2)]
    assert adjust(world, small, cpus=0) == "set"
    assert world.status(small) is Status.RUNNING
    stored = world.store.get(small)
    assert stored is not None
    assert (stored.priority, stored.amount.cpus) == (5, 0)
    with pytest.raises(Refused, match="--cpus 2 is more than this node has"):
        adjust(world, large, cpus=2)
    assert adjust(world, runs, priority=1) == "has_begun"
    assert adjust(world, runs, array_limit=1) == "no_array"


def test_the_time_limit_of_what_runs(world: World) -> None:
    job = world.add(amount=Amount(0, 0), time_limit=10.0)
    began = world.idle.time
    assert world.queue.jobs[job].deadline == began + 10_000_000
    world.idle.time += 4_000_000
    for limit, deadline in (("20", began + 20_000_000), ("none", None), ("30", world.idle.time + 30_000_000)):
        assert adjust(world, job, time=limit) == "set"
        assert world.queue.jobs[job].deadline == deadline
    stored = world.store.get(job)
    assert stored is not None
    assert (stored.time_limit, stored.deadline) == (30.0, world.idle.time + 30_000_000)


def test_tasks_that_wait_are_like_their_array_by_then(world: World) -> None:
    job = world.submit(job={"command": ["true"], "array": "0-3", "cpus": 1})
    assert adjust(world, job, cpus=0, priority=7, time="1h") == "set"
    tasks = {task.task.index: task for task in world.queue.jobs.values() if task.task}
    assert {index: (task.amount.cpus, task.priority, task.time_limit) for index, task in tasks.items()} == {
        0: (1000, 0, None), 1: (0, 7, 3600.0), 2: (0, 7, 3600.0), 3: (0, 7, 3600.0)
    }  # fmt: skip
