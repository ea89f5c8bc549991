"""Whole workloads through the scheduler: who has a reservation keeps it, and all start in bounded time."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.devices import Device
from sysjobs.limits import Limits
from sysjobs.scheduling.backfill import Rules
from sysjobs.scheduling.fairshare import FairShares
from tests.simulation import FIRST_COME, Task, Workload, read, run

DATA = Path(__file__).parent / "data" / "small.swf"


@pytest.fixture(scope="module")
def small() -> Workload:
    with DATA.open(encoding="ascii") as file:
        return read(file)


def test_read() -> None:
    lines = [
        "; MaxNodes: 8",
        "; MaxProcs: 16",
        ";",
        "",
        "2 30 -1 50 4 -1 -1 8 60 -1 1 7 -1 -1 -1 -1 -1 -1",
        "1 20 -1 10.0 2 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1",
        # Cancelled before they began.
        "3 40 -1 -1 4 -1 -1 4 60 -1 5 7 -1 -1 -1 -1 -1 -1",
        "4 50 -1 10 -1 -1 -1 -1 60 -1 5 7 -1 -1 -1 -1 -1 -1",
    ]
    assert read(lines) == Workload(16, [Task(1, 20, 10, 2, 10), Task(2, 30, 50, 8, 60, 7)])


def test_backfill_is_worth_it(small: Workload) -> None:
    first_come, backfilled = run(small, FIRST_COME), run(small)
    assert len(first_come.waits) == len(backfilled.waits) == len(small.tasks)
    assert first_come.starts == [task.id for task in small.tasks], "nobody is overtaken"
    assert backfilled.mean < first_come.mean / 2
    assert backfilled.reserved > 10


def test_the_same_comes_of_the_same(small: Workload) -> None:
    assert run(small) == run(small)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    processors = draw(st.integers(1, 8))
    drawn = draw(
        st.lists(
            st.tuples(
                st.integers(0, 20), st.integers(1, 9), st.integers(1, processors), st.integers(0, 4),
                st.none() | st.integers(0, 9),
            ),
            min_size=1,
            max_size=25,
        )
    )  # fmt: skip
    drawn.sort(key=lambda row: row[0])
    tasks = [
        Task(number, at, runs, size, None if more is None else runs + more, number % 3, memory)
        for number, (at, runs, size, memory, more) in enumerate(drawn, 1)
    ]
    return Workload(processors, tasks, memory=4)


def lasts(task: Task) -> int:
    """How long others have to count on, though it may end before."""
    return task.limit or task.runs


@given(workloads())
def test_everybody_starts_in_bounded_time(workload: Workload) -> None:
    """Whoever is ahead of a job holds it up once, for no longer than the longest job runs."""
    course = run(workload)
    longest = max(map(lasts, workload.tasks))
    for ahead, task in enumerate(workload.tasks):
        assert course.waits[task.id] <= (ahead + 1) * longest


@given(workloads(), st.randoms(use_true_random=False))
def test_priorities(workload: Workload, chance: random.Random) -> None:
    """Those of the highest are kept waiting by each other alone, and by what runs as they come."""
    tasks = [replace(task, priority=chance.randint(0, 1)) for task in workload.tasks]
    course = run(Workload(workload.processors, tasks, workload.memory))
    longest = max(map(lasts, tasks))
    ahead = 0
    for task in tasks:
        if task.priority == 1:
            assert course.waits[task.id] <= (ahead + 1) * longest
            ahead += 1


@given(workloads(), st.none() | st.integers(8, 12), st.none() | st.integers(1, 3), st.booleans())
def test_everybody_starts_whatever_users_may_have(
    workload: Workload, cpus: int | None, running: int | None, fair: bool
) -> None:
    """Each job feasible: others hold it up, one after the other, and never for good."""
    limits = Limits(cpus_per_user=None if cpus is None else 1000 * cpus, running_per_user=running)
    course = run(workload, Rules(limits, FairShares(10.0) if fair else None))
    assert course.waits.keys() == {task.id for task in workload.tasks}
    assert max(course.waits.values()) <= sum(map(lasts, workload.tasks))


@st.composite
def device_workloads(draw: st.DrawFn) -> Workload:
    """Jobs for parts of devices, for whole ones and for all, on CPUs that they may be kept to."""
    devices = tuple(Device(f"gpu{number}", model) for number, model in enumerate(["L4", "L4", "L4", "T4"]))
    drawn = draw(
        st.lists(
            st.tuples(
                st.integers(0, 20), st.integers(1, 9), st.integers(0, 2), st.none() | st.integers(0, 9),
                st.sampled_from([0, 300, 500, 750, 1000, 2000, 3000]), st.sampled_from(["", "L4"]),
            ),
            min_size=1,
            max_size=25,
        )
    )  # fmt: skip
    drawn.sort(key=lambda row: row[0])
    tasks = [
        Task(number, at, runs, size, None if more is None else runs + more, gpus=gpus, model=model)
        for number, (at, runs, size, more, gpus, model) in enumerate(drawn, 1)
    ]
    return Workload(8, tasks, devices=devices, pinned=draw(st.booleans()))


@given(device_workloads())
def test_everybody_gets_devices_in_bounded_time(workload: Workload) -> None:
    course = run(workload)
    longest = max(task.limit or task.runs for task in workload.tasks)
    for ahead, task in enumerate(workload.tasks):
        assert course.waits[task.id] <= (ahead + 1) * longest


RELAYS = [
    ("halves of one device", 1, 2, 500, 1000),
    ("halves of all", 4, 8, 500, 4000),
    ("parts that leave too little", 2, 4, 400, 750),
    ("whole ones", 4, 4, 1000, 4000),
]


@pytest.mark.parametrize(
    ("count", "places", "part", "asked"), [r[1:] for r in RELAYS], ids=[r[0] for r in RELAYS]
)
def test_no_relay_of_small_jobs_keeps_devices_from_a_large_one(
    count: int, places: int, part: int, asked: int
) -> None:
    """Nobody says how long they run, and whenever one ends another one comes."""
    devices = tuple(Device(f"gpu{number}", "L4") for number in range(count))
    small = [Task(1 + at, at, places, 0, None, gpus=part) for at in range(20 * places)]
    # Before the small one that comes at the same time.
    small.insert(2 * places, Task(9999, 2 * places, 1, 0, None, gpus=asked))
    tasks = [replace(task, id=number) for number, task in enumerate(small, 1)]
    course = run(Workload(1, tasks, devices=devices))
    assert course.waits[2 * places + 1] <= places
