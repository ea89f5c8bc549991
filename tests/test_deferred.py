"""When a job may wait for its turn: after others, after a time, and unless it is held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.conditions import (
    Conditions,
    Dependency,
    Hold,
    When,
    dump_dependencies,
    load_dependencies,
)
from sysjobs.events import Eligible, Event, Unmet
from sysjobs.jobs import Job, Key, Status
from sysjobs.ports import StorageFailed
from sysjobs.scheduling.deferred import Deferred, is_met
from sysjobs.transition import transition
from tests.models import NOW, queued

HOUR = 3_600_000_000

# Of each option: whether it is met by another job of each status; "never" where that is all over.
MET = """
              after   afterok  afterany  afternotok  singleton
INIT          no      no       no        no          no
PENDING       no      no       no        no          no
SETTING_UP    yes     no       no        no          no
RUNNING       yes     no       no        no          no
SUCCEEDED     yes     yes      yes       never       yes
FAILED        yes     never    yes       yes         yes
FAILED_SETUP  yes     never    yes       yes         yes
FAILED_DRIVER yes     never    yes       yes         yes
CANCELLED     yes     never    yes       yes         yes
"""
ANSWERS = {"yes": True, "no": False, "never": None}


@pytest.mark.parametrize("row", MET.strip().splitlines()[1:], ids=lambda row: row.split()[0])
def test_is_met(row: str) -> None:
    status, *answers = row.split()
    options = MET.split()[:5]
    assert options == [*When]
    for when, answer in zip(options, answers, strict=True):
        assert is_met(Dependency(When(when), 1), queued(Status(status))) is ANSWERS[answer], when
        assert is_met(Dependency(When(when), 1), None) is None, "it is gone"


class World:
    """Jobs, and what becomes of those that are deferred."""

    def __init__(self, *jobs: Job) -> None:
        self.jobs = {job.id: job for job in jobs}
        self.deferred = Deferred()
        for job in jobs:
            if job.status is Status.INIT:
                self.deferred.put(job)

    def set(self, job: Job) -> None:
        before = self.jobs[job.id]
        self.jobs[job.id] = job
        if before.status is not job.status:
            self.deferred.changed(job.id)
        if job.status is Status.INIT:
            self.deferred.put(job)
        else:
            self.deferred.discard(job.id)

    def set_new(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.deferred.put(job)

    def look_up(self, key: Key) -> Job | None:
        return self.jobs.get(key) if isinstance(key, int) else None

    def settle(self, now: int = NOW) -> dict[int, Event]:
        events = {}
        for job, event in self.deferred.verdicts(now, self.look_up):
            events[job.id] = event
            self.set(transition(job, event))
        return events

    def why(self, job_id: int, now: int = NOW) -> tuple[str, str]:
        reason = self.deferred.why(self.jobs[job_id], now)
        return reason.code, reason.text


def job(number: int, status: Status = Status.PENDING, **fields: object) -> Job:
    return replace(queued(status), id=number, **fields)  # type: ignore[arg-type]


def after(number: int, *dependencies: tuple[When, int], **fields: object) -> Job:
    conditions = Conditions(dependencies=tuple(Dependency(when, other) for when, other in dependencies))
    return job(number, Status.INIT, conditions=conditions, **fields)


def test_a_chain() -> None:
    world = World(job(1), after(2, (When.OK, 1)), after(3, (When.OK, 2)), after(4, (When.NOT_OK, 2)))
    assert world.settle() == {}
    assert world.why(2) == ("dependency", "Waits for job 1 to succeed.")
    assert world.why(4) == ("dependency", "Waits for job 2 to fail.")
    world.set(job(1, Status.SUCCEEDED))
    assert world.settle() == {2: Eligible()}
    world.set(replace(queued(Status.FAILED), id=2))
    events = world.settle()
    assert events[4] == Eligible()
    assert isinstance(events[3], Unmet)
    reason = world.jobs[3].reason
    assert reason is not None
    assert (reason.code, reason.text) == (
        "dependency",
        "Was to start after job 2 (afterok), which ended as FAILED.",
    )
    assert world.jobs[3].status is Status.CANCELLED


def test_what_never_comes_ends_all_that_waits_for_it() -> None:
    links = [after(number, (When.OK, number - 1)) for number in range(2, 5000)]
    world = World(job(1), *links)
    world.settle()
    world.set(job(1, Status.CANCELLED))
    events = world.settle()
    assert len(events) == len(links)
    assert {each.status for each in world.jobs.values()} == {Status.CANCELLED}
    assert len(world.deferred) == 0


def test_several() -> None:
    world = World(job(1), job(2), after(3, (When.ANY, 1), (When.AFTER, 2), (When.ANY, 1)))
    world.set(job(2, Status.RUNNING))
    assert world.settle() == {}
    assert world.why(3) == ("dependency", "Waits for job 1 to end.")
    world.set(job(1, Status.FAILED))
    assert world.settle() == {3: Eligible()}


def test_a_job_that_is_gone() -> None:
    world = World(after(2, (When.ANY, 1)))
    assert world.settle().keys() == {2}
    assert world.jobs[2].reason is not None
    assert (
        world.jobs[2].reason.text == "Was to start after job 1 (afterany), which is gone, or can't be read."
    )


def test_one_that_cannot_be_read_for_now_is_looked_at_again() -> None:
    """A bad sector must neither decide about a job nor keep the others waiting."""
    first, other = (after(number, (When.ANY, number - 2)) for number in (3, 4))
    world = World(job(1, Status.FAILED), job(2, Status.FAILED), first, other)

    def look_up(key: Key) -> Job | None:
        if key == 1:
            raise StorageFailed("disk I/O error")
        return world.look_up(key)

    for decided in ([4], []):
        events = [*world.deferred.verdicts(NOW, look_up)]
        assert [each.id for each, _ in events] == decided
        for each, event in events:
            world.set(transition(each, event))
    assert world.why(3) == ("dependency", "Waits for job 1 to end.")
    assert world.settle() == {3: Eligible()}


def test_a_hold() -> None:
    held = job(1, Status.INIT, hold=Hold(1000, "alice"))
    world = World(held)
    assert world.settle() == {}
    assert world.why(1) == ("held", "Held by its owner; `sysjobs release 1` lets it go on.")
    world.set(replace(held, hold=Hold(0, "root")))
    assert world.why(1) == (
        "held",
        "Held by root; root's `sysjobs release 1` lets it go on.",
    )
    world.set(replace(held, hold=None))
    assert world.settle() == {1: Eligible()}


def test_a_hold_does_not_keep_what_can_never_be() -> None:
    world = World(job(1, Status.FAILED), after(2, (When.OK, 1), hold=Hold(1000, "alice")))
    assert isinstance(world.settle()[2], Unmet)


def test_a_time() -> None:
    world = World(job(1, Status.INIT, conditions=Conditions(NOW + HOUR)))
    assert world.settle() == {}
    assert world.deferred.next_begin() == NOW + HOUR
    assert world.why(1) == ("begin", "Is to begin in 1h.")
    assert world.settle(NOW + HOUR - 1) == {}
    assert world.settle(NOW + HOUR) == {1: Eligible()}
    assert world.deferred.next_begin() is None


def test_a_time_that_comes_twice() -> None:
    """As somebody sets the clock back."""
    first = Conditions(NOW + HOUR, (Dependency(When.ANY, 1),))
    world = World(job(1), job(2, Status.INIT, conditions=first))
    assert world.settle(NOW + HOUR) == {}
    world.set(job(1, Status.SUCCEEDED))
    assert world.settle(NOW) == {}
    assert world.deferred.next_begin() == NOW + HOUR
    assert world.settle(NOW + HOUR) == {2: Eligible()}


def test_one_that_is_cancelled_waits_for_nothing() -> None:
    world = World(job(1), after(2, (When.ANY, 1)), job(3, Status.INIT, conditions=Conditions(NOW + HOUR)))
    world.settle()
    assert (len(world.deferred), world.deferred.of_user(1000)) == (2, 2)
    for number in (2, 3, 3):
        world.set(job(number, Status.CANCELLED))
    world.set(job(1, Status.SUCCEEDED))
    assert world.settle(NOW + 2 * HOUR) == {}
    assert (len(world.deferred), world.deferred.of_user(1000)) == (0, 0)


def test_a_singleton_stands_for_those_before_it_even_if_it_never_began() -> None:
    world = World(job(1, Status.RUNNING, started_at=NOW), after(2, (When.SINGLETON, 1)))
    world.set_new(after(3, (When.SINGLETON, 2)))
    world.set_new(after(4, (When.SINGLETON, 3), (When.ANY, 2)))
    assert world.settle() == {}
    for number in (2, 3):
        world.set(replace(world.jobs[number], status=Status.CANCELLED, ended_at=NOW))
    assert world.settle() == {}
    assert world.why(4) == ("dependency", "Waits for job 1 to end, which has the same name.")
    world.set(job(1, Status.FAILED, started_at=NOW))
    assert world.settle() == {4: Eligible()}


def test_only_what_has_changed_is_looked_up() -> None:
    looked: list[int] = []
    world = World(*(job(number) for number in range(1, 101)))
    world.set_new(after(200, *((When.ANY, number) for number in range(1, 101))))
    world.settle()
    world.jobs = _Noting(world.jobs, looked)
    for number in (7, 50, 7):
        world.set(job(number, Status.FAILED))
        assert world.settle() == {}
    assert looked == [7, 50]


class _Noting(dict[int, Job]):
    def __init__(self, jobs: dict[int, Job], looked: list[int]) -> None:
        super().__init__(jobs)
        self._looked = looked

    def get(self, job_id: int, default: Any = None) -> Any:
        self._looked.append(job_id)
        return super().get(job_id, default)


def test_moments_of_jobs_that_are_gone_take_no_memory() -> None:
    deferred = Deferred()
    for number in range(5000):
        one = job(number, Status.INIT, conditions=Conditions(NOW + HOUR))
        deferred.put(one)
        deferred.discard(one.id)
    assert len(deferred._begin) <= 1001


dependencies = st.lists(
    st.builds(Dependency, st.sampled_from(When), st.integers(1, 2**63 - 1)), max_size=4
).map(tuple)


@given(dependencies)
def test_dependencies_are_read_back(given: tuple[Dependency, ...]) -> None:
    assert load_dependencies(dump_dependencies(given)) == given


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "[7]",
        '[["soon", 7]]',
        '[["after", "7"]]',
        '[["after", 7, "7"]]',
        '[["after", 7, -1]]',
        '[["after", 7, 7, 7]]',
        '[["after", 0]]',
        '[["after", 9223372036854775808]]',
        "{",
        "[[[], 7]]",
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_what_are_no_dependencies(text: str) -> None:
    with pytest.raises(ValueError, match="its dependencies are"):
        load_dependencies(text)
