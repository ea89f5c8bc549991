"""Arrays: what becomes of them and of their tasks, in line with other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.conditions import Hold
from sysjobs.engine import Boot
from sysjobs.events import (
    Eligible,
    Event,
    Held,
    Launched,
    LimitChanged,
    Released,
    TaskEnded,
    TaskLaunched,
    TasksCancelled,
    TasksCounted,
    TasksHeld,
    TasksReleased,
    Unmet,
)
from sysjobs.indices import Indices, Places
from sysjobs.jobs import Array, Cancellation, Exit, Job, Outcome, Reason, Status
from sysjobs.reconcile import lost_to_reboot
from sysjobs.resources import Amount
from sysjobs.scheduling.backfill import Rules, choose
from sysjobs.scheduling.pending import Pending
from sysjobs.scheduling.pool import Capacity
from sysjobs.tasks import by_status, given_up, is_without_turn, task_of, without_turn
from sysjobs.transition import transition
from tests.models import BOOT, NOW, cancel, node, queued

ALICE, ROOT = Hold(1000, "alice"), Hold(0, "root")
BY_ALICE = Cancellation(1000, "alice", "", NOW + 5, 30.0)


def array(count: int = 4, status: Status = Status.PENDING, **fields: object) -> Job:
    """Job 42, an array whose tasks are 0, 10, 20 and so on."""
    indices = Indices((range(0, count * 10, 10),))
    given = Array(indices, indices.all)
    return replace(queued(status), array=replace(given, **fields))  # type: ignore[arg-type]


def after(job: Job, *events: Event) -> Job:
    for event in events:
        job = transition(job, event)
    return job


def state(job: Job) -> tuple[str, str, int]:
    """Its status, those of its tasks that wait, how many are at work."""
    assert job.array is not None
    return job.status.value, job.array.waiting.dump(), job.array.live


LAUNCH = TaskLaunched(NOW + 1, BOOT)
GOOD, BAD, LOST, STOPPED = (
    TaskEnded(NOW + 2, status)
    for status in (Status.SUCCEEDED, Status.FAILED, Status.FAILED_DRIVER, Status.CANCELLED)
)
ALL = Places.of(range(4))
NEVER = Unmet(NOW + 3, Outcome(Status.CANCELLED, Reason("dependency", "x")))


def places(*numbers: int) -> Places:
    return Places.of(numbers)


LIVES: list[tuple[Sequence[Event], tuple[str, str, int], str | None]] = [
    ([LAUNCH], ("RUNNING", "1-3", 1), None),
    ([LAUNCH, LAUNCH, GOOD], ("RUNNING", "2-3", 1), None),
    ([LAUNCH] * 4 + [GOOD] * 3, ("RUNNING", "", 1), None),
    ([LAUNCH] * 4 + [GOOD] * 4, ("SUCCEEDED", "", 0), None),
    ([LAUNCH] * 4 + [GOOD] * 3 + [BAD], ("FAILED", "", 0), "1 of its 4 tasks ended as FAILED, 3 SUCCEEDED."),
    (
        [LAUNCH] * 4 + [LOST] * 3 + [STOPPED],
        ("FAILED_DRIVER", "", 0),
        "3 of its 4 tasks ended as FAILED_DRIVER, 1 CANCELLED.",
    ),
    ([TasksCancelled(ALL, BY_ALICE)], ("CANCELLED", "", 0), "4 of its 4 tasks ended as CANCELLED."),
    ([TasksCancelled(places(1, 2), BY_ALICE)], ("PENDING", "0-0,3-3", 0), None),
    ([LAUNCH, TasksCancelled(ALL, BY_ALICE)], ("RUNNING", "", 1), None),
    (
        [LAUNCH, TasksCancelled(ALL, BY_ALICE), GOOD],
        ("CANCELLED", "", 0),
        "3 of its 4 tasks ended as CANCELLED, 1 SUCCEEDED.",
    ),
    ([TasksHeld(places(0, 2), ALICE)], ("PENDING", "1-1,3-3", 0), None),
    ([TasksHeld(places(0, 2), ALICE), LAUNCH], ("RUNNING", "3-3", 1), None),
    (
        [TasksHeld(places(0, 2), ALICE), TasksReleased(places(2, 3), by_root=False)],
        ("PENDING", "1-3", 0),
        None,
    ),
    ([TasksHeld(places(0), ROOT), TasksReleased(places(0), by_root=False)], ("PENDING", "1-3", 0), None),
    ([TasksHeld(places(0), ROOT), TasksReleased(places(0), by_root=True)], ("PENDING", "0-3", 0), None),
    ([TasksHeld(ALL, ALICE)], ("PENDING", "", 0), None),
    ([LAUNCH, GOOD, TasksHeld(ALL, ALICE)], ("RUNNING", "", 0), None),
    ([LAUNCH, GOOD, Held(ALICE)], ("RUNNING", "", 0), None),
    ([LAUNCH, Held(ALICE), TasksReleased(places(3), by_root=False)], ("RUNNING", "3-3", 1), None),
    ([Held(ALICE)], ("INIT", "0-3", 0), None),
    ([Held(ALICE), Released(), Eligible()], ("PENDING", "0-3", 0), None),
    (
        [TasksHeld(places(0, 1), ALICE), cancel()],
        ("CANCELLED", "", 0),
        "Cancelled before it started by its owner.",
    ),
    ([LAUNCH, GOOD, LAUNCH, cancel()], ("RUNNING", "", 1), None),
    (
        [LAUNCH, GOOD, LAUNCH, cancel(), TaskEnded(NOW + 2, Status.CANCELLED)],
        ("CANCELLED", "", 0),
        "Cancelled by its owner; of its 4 tasks 1 SUCCEEDED, 3 CANCELLED.",
    ),
    ([LAUNCH, cancel(), cancel(), GOOD, GOOD], ("CANCELLED", "", 0), None),
    ([LAUNCH, LAUNCH, TasksCounted(NOW, 1)], ("RUNNING", "2-3", 1), None),
    ([LAUNCH] * 4 + [GOOD] * 3 + [TasksCounted(NOW + 3, 1)], ("RUNNING", "", 1), None),
    (
        [LAUNCH] * 4 + [GOOD] * 2 + [TasksCounted(NOW + 3, 0)],
        ("FAILED_DRIVER", "", 0),
        "2 of its 4 tasks ended as FAILED_DRIVER, 2 SUCCEEDED.",
    ),
    ([Held(ALICE), NEVER], ("CANCELLED", "0-3", 0), "x"),
]  # fmt: skip


@pytest.mark.parametrize(("events", "seen", "reason"), LIVES)
def test_the_life_of_an_array(
    events: Sequence[Event], seen: tuple[str, str, int], reason: str | None
) -> None:
    job = after(array(), *events)
    assert state(job) == seen
    if reason is not None:
        assert job.reason is not None
        assert job.reason.text == reason
    assert (job.ended_at is not None) == job.status.terminal
    assert after(job, LAUNCH, GOOD) == job if job.status.terminal else True


def test_an_array_begins_with_its_first_task_and_has_no_exit_but_a_good_one() -> None:
    begun = after(array(2), LAUNCH, TaskLaunched(NOW + 9, "later"))
    assert (begun.started_at, begun.boot_id) == (NOW + 1, BOOT)
    assert after(begun, GOOD, GOOD).main == Exit(0)
    assert after(begun, GOOD, BAD).main is None
    assert lost_to_reboot(begun, Boot("another")) is None, "its tasks are lost, and say so"


def test_how_many_may_start() -> None:
    job = array(limit=2)
    assert [after(job, *[LAUNCH] * number).array.startable for number in range(3)] == [2, 1, 0]  # type: ignore[union-attr]
    less = after(job, LAUNCH, LAUNCH, LimitChanged(1)).array
    assert less is not None
    assert (less.startable, less.live) == (0, 2), "what runs goes on"
    assert after(job, LAUNCH, LAUNCH, LimitChanged(None)).array.startable == 2  # type: ignore[union-attr]


EVENTS = st.one_of(
    st.just(LAUNCH),
    st.builds(
        TaskEnded, st.just(NOW + 2), st.sampled_from([Status.SUCCEEDED, Status.FAILED, Status.CANCELLED])
    ),
    st.builds(TasksCancelled, st.builds(Places.of, st.sets(st.integers(0, 9))), st.just(BY_ALICE)),
    st.builds(TasksHeld, st.builds(Places.of, st.sets(st.integers(0, 9))), st.sampled_from([ALICE, ROOT])),
    st.builds(TasksReleased, st.builds(Places.of, st.sets(st.integers(0, 9))), st.booleans()),
    st.sampled_from([Held(ALICE), Released(), Eligible(), cancel(), LimitChanged(2)]),
)


@given(st.lists(EVENTS, max_size=40))
def test_no_task_is_lost_or_there_twice(events: list[Event]) -> None:
    job = array(10)
    for event in events:
        assert job.array is not None
        if isinstance(event, TaskLaunched) and not job.array.waiting:
            continue
        if isinstance(event, TaskEnded) and not job.array.live:
            continue
        job = transition(job, event)
        now = job.array
        assert now is not None
        sets = [now.waiting, *(those for those, _ in now.held), *(those for those, _ in now.cancelled)]
        alone = [place for those in sets for place in those]
        assert len(alone) == len(set(alone))
        assert len(alone) + now.live + sum(count for _, count in now.ended) == 10
        assert job.status.terminal == (not now.live and not now.unstarted)


def test_tasks_that_had_no_turn() -> None:
    job = after(array(), TasksHeld(places(2), ROOT), TasksCancelled(places(3), BY_ALICE))
    assert by_status(job) == {
        Status.PENDING: places(0, 1), Status.INIT: places(2), Status.CANCELLED: places(3)
    }  # fmt: skip
    waits, held, gone = (without_turn(job, place) for place in (1, 2, 3))
    assert [(each.label, each.status, each.id) for each in (waits, held, gone)] == [
        ("42_10", "PENDING", 42),
        ("42_20", "INIT", 42),
        ("42_30", "CANCELLED", 42),
    ]
    assert (waits.hold, held.hold) == (None, ROOT)
    assert gone.reason == Reason("cancelled", "Cancelled before it started by its owner.")
    assert gone.ended_at == BY_ALICE.at
    assert all(map(is_without_turn, (waits, held, gone)))
    assert not is_without_turn(task_of(job, 10, 43))
    assert [each.label for each in given_up(job, [10, 20, 30, 31])] == ["42_30"]
    assert without_turn(after(array(), Held(ALICE)), 0).status is Status.INIT
    never = after(array(), Held(ALICE), NEVER)
    assert without_turn(never, 0).reason == Reason("dependency", "x")
    assert by_status(never)[Status.CANCELLED] == ALL


def test_a_task_is_a_job_like_its_array_but_for_what_that_waited_for() -> None:
    job = after(replace(array(), priority=7, conditions=replace(array().conditions, begin_at=7)), LAUNCH)
    task = task_of(job, 0, 43)
    assert (task.id, task.key, task.label, task.priority) == (43, (42, 0), "42_0", 7)
    assert (task.status, task.started_at, task.boot_id, task.conditions.begin_at) == (
        Status.PENDING,
        None,
        None,
        None,
    )
    assert transition(task, Launched(NOW + 1, BOOT, 0, None)).status is Status.RUNNING


# In line with others


def line(*jobs: Job) -> Pending:
    pending = Pending()
    for job in jobs:
        pending.add(job)
    return pending


def sized(job: Job, number: int, cpus: int = 1000, **fields: object) -> Job:
    return replace(job, id=number, amount=Amount(cpus), **fields)  # type: ignore[arg-type]


def test_what_root_holds_of_an_array_is_roots() -> None:
    for held in (
        [TasksHeld(places(2, 3), ALICE), TasksHeld(places(3), ROOT)],
        [TasksHeld(places(3), ROOT), TasksHeld(places(2, 3), ALICE)],
    ):
        job = after(array(), *held, TasksReleased(places(0, 1, 2, 3), by_root=False))
        assert job.array is not None
        assert job.array.held == ((places(3), ROOT),)
        assert job.array.waiting == places(0, 1, 2)


def test_tasks_start_in_turn_with_other_jobs() -> None:
    tasks = sized(array(5), 2)
    first, last, urgent = sized(queued(), 1), sized(queued(), 3), sized(queued(), 4, priority=1)

    def started(cpus: int, *jobs: Job, most: int = 9) -> dict[int, int]:
        chosen = choose(line(*jobs), node(Capacity(cpus * 1000, 0)), Rules(), 0, most)
        return {job_id: len(shares) for job_id, shares in chosen.items()}

    assert started(3, first, tasks, last) == {1: 1, 2: 2}
    assert started(9, first, tasks, last) == {1: 1, 2: 5, 3: 1}
    assert started(3, first, tasks, last, urgent) == {4: 1, 1: 1, 2: 1}
    assert started(9, tasks, last, most=3) == {2: 3}
    limited = replace(tasks, array=replace(tasks.array, limit=2))  # type: ignore[type-var]
    assert started(9, first, limited, last) == {1: 1, 2: 2, 3: 1}
    assert started(9, sized(array(3), 5), tasks) == {2: 5, 5: 3}


def test_a_line_of_an_array_that_goes() -> None:
    pending = line(sized(array(2), 2), sized(queued(), 3))
    pending.remove(2)
    assert [job_id for job_id, _ in pending.in_turn()] == [3]
    pending.add(sized(queued(), 2))
    assert [*choose(pending, node(Capacity(9000, 0)), Rules(), 0, 9).values()] == [[()], [()]]
