"""When to look at a job again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.events import GraceBegan
from sysjobs.jobs import Status
from sysjobs.timers import Graces, LastTimers, Timers
from tests.models import queued


def test_nothing_to_wait_for() -> None:
    timers = Timers()
    assert timers.next() is None
    assert timers.due(10**18) == []


def test_a_job_comes_up_once_at_each_look() -> None:
    timers = Timers()
    for when, job in ((5, 42), (3, 7), (4, 42), (9, 42)):
        timers.at(when, job)
    assert timers.next() == 3
    assert timers.due(2) == []
    assert timers.due(5) == [7, 42]
    assert timers.next() == 9
    assert timers.due(9) == [42]
    assert timers.next() is None


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5))), st.lists(st.integers(0, 25)))
def test_each_entry_is_due_at_the_first_look_after_its_time(
    entries: list[tuple[int, int]], looks: list[int]
) -> None:
    timers = Timers()
    for entry in entries:
        timers.at(*entry)
    waiting = entries
    for now in sorted(looks):
        due = timers.due(now)
        assert len(due) == len(set(due))
        assert set(due) == {job for when, job in waiting if when <= now}
        waiting = [entry for entry in waiting if entry[0] > now]
        assert timers.next() == min((when for when, _ in waiting), default=None)


def test_only_the_last_time_counts() -> None:
    timers = LastTimers()
    timers.at(10, 1)
    timers.at(20, 1)
    timers.at(15, 2)
    assert timers.next() == 10
    assert timers.due(12) == []
    assert timers.due(30) == [2, 1]
    assert timers.due(99) == []


# When wishes came and their SIGKILL was due, when SIGTERM was sent, and when SIGKILL follows if not as meant.
GRACES: list[tuple[list[tuple[int, int]], int, int | None]] = [
    ([(0, 1000)], 0, None),
    ([(0, 1000)], 100, None),
    ([(0, 1000)], 101, 1101),
    ([(0, 1000)], 5000, 6000),
    ([(0, 0)], 5000, None),
    # A second wish shortened it.
    ([(0, 1000), (400, 500)], 2000, 2100),
    ([(0, 1000), (400, 400)], 2000, None),
    # Nobody knows: the wish is from before a restart.
    ([], 5000, None),
]


@pytest.mark.parametrize(("wishes", "sent", "kill_at"), GRACES)
def test_a_grace_begins_with_the_sigterm(
    wishes: list[tuple[int, int]], sent: int, kill_at: int | None
) -> None:
    graces, job = Graces(), queued(Status.RUNNING, kill_at=None if wishes else 99)
    for now, when in wishes:
        before, job = job, queued(Status.RUNNING, kill_at=when)
        graces.note(before, job, now)
    assert (42 in graces) == bool(wishes)
    assert graces.begin(job, sent) == (None if kill_at is None else GraceBegan(kill_at))
    # What comes later finds it told.
    graces.note(job, queued(Status.RUNNING, kill_at=7), sent)
    assert 42 not in graces
