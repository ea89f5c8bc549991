"""A workload in the Standard Workload Format, run through the scheduler in no time.

    python3 -m tests.simulation FILE

says what backfill is worth: how long jobs wait with it and without. The format is that of the Parallel
Workloads Archive (https://www.cs.huji.ac.il/labs/parallel/workload/swf.html).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path
from statistics import fmean

from sysjobs.devices import Device, Share
from sysjobs.jobs import Job
from sysjobs.limits import Limits
from sysjobs.resources import Amount
from sysjobs.scheduling.backfill import Rules, choose, outlook
from sysjobs.scheduling.holdings import Holdings
from sysjobs.scheduling.pending import Pending
from sysjobs.scheduling.pool import Capacity

SECOND = 1_000_000
AT_ONCE = 16
RULES, FIRST_COME = Rules(), Rules(looks=0)
"""Those that sysjobs has by default, and those of a queue in which nobody is overtaken."""


@dataclass(frozen=True, slots=True)
class Task:
    """One line: times in seconds. `limit`: what its submitter asked for, else what it took; None for none."""

    id: int
    submitted: int
    runs: int
    processors: int
    limit: int | None
    uid: int = 0
    memory: int = 0
    priority: int = 0
    gpus: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    processors: int
    tasks: list[Task]
    memory: int = 0
    devices: tuple[Device, ...] = ()
    pinned: bool = False


@dataclass(slots=True)
class Course:
    """What came of it: waits in seconds by id, and how many jobs had a reservation as heads of the queue."""

    waits: dict[int, int] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    reserved: int = 0
    decisions: int = 0

    @property
    def mean(self) -> float:
        return fmean(self.waits.values())


def read(lines: Iterable[str]) -> Workload:
    """Jobs without a time or processors, which were cancelled before they began, are left out."""
    processors, tasks = 0, []
    for line in lines:
        if line.startswith(";"):
            name, _, value = line[1:].partition(":")
            if name.strip() in ("MaxNodes", "MaxProcs"):
                processors = max(processors, int(value.split()[0]))
        elif line.strip():
            numbers = [int(float(word)) for word in line.split()]
            runs, size = numbers[3], max(numbers[4], numbers[7])
            if runs > 0 and size > 0:
                limit = max(numbers[8], runs)
                tasks.append(Task(numbers[0], numbers[1], runs, size, limit, max(numbers[11], 0)))
    tasks.sort(key=lambda task: (task.submitted, task.id))
    return Workload(processors or max(task.processors for task in tasks), tasks)


def run(workload: Workload, rules: Rules = RULES) -> Course:
    """Raises AssertionError where the head of the queue is put off by one that doesn't go before it."""
    cores = tuple(range(workload.processors)) if workload.pinned else ()
    holdings = Holdings(Capacity(1000 * workload.processors, workload.memory, workload.devices, cores=cores))
    pending, course, promises = Pending(), Course(), _Promises()
    # Limits of users and their shares make another one the head.
    promised = rules.limits == Limits() and rules.shares is None
    jobs: dict[int, Job] = {}
    tasks = {task.id: task for task in workload.tasks}
    ends: list[tuple[int, int]] = []
    coming = iter(workload.tasks)
    following = next(coming, None)
    while following is not None or ends:
        now = min([end for end, _ in ends[:1]] + [task.submitted for task in (following,) if task])
        while ends and ends[0][0] == now:
            holdings.give_back(jobs[heappop(ends)[1]])
        while following is not None and following.submitted == now:
            jobs[following.id] = _job(following)
            pending.add(jobs[following.id])
            following = next(coming, None)
        chosen: dict[int, list[tuple[Share, ...]]] | None = None
        # Each start changes who has had how much, and so the order: the queue looks again.
        while chosen is None or len(chosen) == AT_ONCE or (chosen and rules.shares is not None):
            course.decisions += 1
            _advance(rules, now, holdings)
            chosen = choose(pending, holdings, rules, now * SECOND, AT_ONCE)
            for job_id, (shares,) in chosen.items():
                task = tasks[job_id]
                if promised:
                    promises.starts(task, now)
                course.waits[job_id] = now - task.submitted
                course.starts.append(job_id)
                pending.remove(job_id)
                deadline = None if task.limit is None else (now + task.limit) * SECOND
                jobs[job_id] = replace(jobs[job_id], shard=0, deadline=deadline, shares=shares)
                holdings.take(jobs[job_id])
                assert min(holdings.free.parts.values(), default=0) >= 0, "a device has more users than parts"
                heappush(ends, (now + task.runs, job_id))
        _advance(rules, now, holdings)
        seen = outlook(pending, holdings, rules, now * SECOND)
        if seen.head is not None:
            assert seen.reserved is not None, "a job that could start waits"
            if promised and seen.reserved.at is not None:
                promises.made(tasks[seen.head], seen.reserved.at // SECOND)
    course.reserved = promises.count
    assert holdings.free == holdings.all, "all is given back"
    return course


def _advance(rules: Rules, now: int, holdings: Holdings) -> None:
    """As the queue does whenever something has changed."""
    if rules.shares is not None:
        rules.shares.advance(now, holdings.cpus_of_users())


class _Promises:
    """When each head of the queue could start at the latest, as it was first said."""

    def __init__(self) -> None:
        self.count = 0
        self._of: dict[int, tuple[int, int]] = {}

    def made(self, task: Task, at: int) -> None:
        self._overtake(task.priority)
        if task.id not in self._of:
            self.count += 1
        _, by = self._of.setdefault(task.id, (task.priority, at))
        assert at <= by, f"job {task.id} was put off"

    def starts(self, task: Task, now: int) -> None:
        _, by = self._of.pop(task.id, (0, now))
        assert now <= by, f"job {task.id} was to start by {by}"
        self._overtake(task.priority)

    def _overtake(self, priority: int) -> None:
        """One that goes before others puts them off."""
        self._of = {job_id: promise for job_id, promise in self._of.items() if promise[0] >= priority}


def _job(task: Task) -> Job:
    return Job(
        id=task.id, uid=task.uid, gid=task.uid, user=str(task.uid), name=str(task.id), has_setup=False,
        amount=Amount(1000 * task.processors, task.memory, task.gpus, task.model), priority=task.priority,
        time_limit=None if task.limit is None else float(task.limit), grace=0.0,
        submitted_at=task.submitted * SECOND,
    )  # fmt: skip


def main(path: str) -> None:
    with Path(path).open(encoding="ascii") as file:
        workload = read(file)
    print(f"{len(workload.tasks):,} jobs on {workload.processors} processors")
    for name, rules in (("first come, first served", FIRST_COME), ("with backfill", RULES)):
        began = time.monotonic()
        course = run(workload, rules)
        took = time.monotonic() - began
        waited = sum(wait > 0 for wait in course.waits.values())
        print(
            f"{name}: mean wait {course.mean:,.0f} s, {waited:,} waited, {course.reserved:,} had a "
            f"reservation and kept it; {course.decisions:,} decisions in {took:.1f} s"
        )


if __name__ == "__main__":
    main(sys.argv[1])
