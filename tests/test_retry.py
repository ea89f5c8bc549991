"""Which failures a job begins again after, how soon, and what is kept of the attempts before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sysjobs.engine import Boot, Observation
from sysjobs.errors import Refused
from sysjobs.events import (
    Again,
    CancelRequested,
    Ended,
    Event,
    Launched,
    NotStarted,
    RequeueRequested,
    TimeLimitReached,
)
from sysjobs.jobs import Attempt, Cancellation, Exit, Job, Outcome, Reason, Status, Usage
from sysjobs.ports import RowDamaged
from sysjobs.reconcile import events_of, lost_to_reboot
from sysjobs.retry import Retry, dump_retry, load_retry, parse_retry
from sysjobs.store import Store
from sysjobs.transition import transition
from sysjobs.views import ending_reason
from tests.models import BOOT, NOW, cancel, new_job, queued

LAUNCHED = Launched(NOW + 1, BOOT, 0, 60)
WISH = Cancellation(0, "root", "new data", NOW + 5, 30.0)
REQUEUE = RequeueRequested(WISH, 40_000_000)
# At 20 s, to be over by 25 s.
CUT_SHORT = CancelRequested(Cancellation(1000, "alice", "", NOW + 6, 5.0), 25_000_000)
BY_ROOT = "Requeued by root: new data."


def ended(
    code: int | None = 3, signal: int | None = None, monotonic: int | None = None, **fields: Any
) -> Ended:
    status = Status.SUCCEEDED if code == 0 else Status.FAILED
    reason = None if code == 0 else Reason("exit-code" if code else "signal", "It failed.")
    outcome = Outcome(status, reason, Exit(code, signal))
    return Ended(NOW + 10, replace(outcome, **fields), monotonic)


def after(job: Job, *events: Event) -> Job:
    for event in events:
        job = transition(job, event)
    return job


def running(retry: Retry | None = None, **fields: Any) -> Job:
    return replace(queued(Status.RUNNING, has_setup=True), retry=retry, **fields)


KILLED = ended(None, 15)
EARLIER, WELL_EARLIER = ended(3, monotonic=9_999_999), ended(0, monotonic=9_999_999)
LOST = ended(None, status=Status.FAILED_DRIVER, reason=Reason("reboot", "x"), main=None)
OOM = ended(None, 9, status=Status.FAILED_DRIVER, reason=Reason("oom-slice", "x"))
SETUP = ended(None, status=Status.FAILED_SETUP, reason=Reason("setup", "x"), main=None, setup=Exit(5))
COVERED: list[tuple[list[str], Ended, bool]] = [
    ([], ended(3), True),
    ([], ended(None, 11), True),
    ([], LOST, True),
    ([], SETUP, True),
    ([], ended(0), False),
    ([], ended(status=Status.CANCELLED, reason=Reason("stopped", "x")), False),
    (["3"], ended(3), True),
    (["1-2", "4"], ended(3), False),
    (["1-2", "3-9"], ended(3), True),
    (["139"], ended(None, 11), True),
    (["11"], ended(None, 11), False),
    (["5"], SETUP, True),
    (["setup"], SETUP, True),
    (["oom"], OOM, True),
    (["oom"], LOST, False),
    (["reboot", "power-cut"], LOST, True),
    (["signal"], ended(None, 11), True),
    (["signal"], ended(3), False),
]


@pytest.mark.parametrize(("on", "end", "again"), COVERED)
def test_after_which_ends_it_begins_again(on: list[str], end: Ended, again: bool) -> None:
    job = after(running(parse_retry(1, 2.0, on)), end)
    assert (job.over, job.status.terminal) == (again, not again)
    if again:
        waits = after(job, Again(NOW + 11))
        assert (waits.status, waits.attempt, waits.conditions.begin_at) == (
            Status.INIT,
            2,
            NOW + 10 + 2_000_000,
        )
        (past,) = waits.past
        assert (past.number, past.status, past.reason, past.main) == (
            1, end.outcome.status, end.outcome.reason, end.outcome.main
        )  # fmt: skip


def test_it_is_tried_so_often_and_no_more() -> None:
    job, starts = replace(queued(), retry=Retry(3, 0.0)), 0
    while not job.status.terminal:
        job = after(replace(job, status=Status.PENDING), LAUNCHED, ended(), Again(NOW + 11))
        starts += 1
    assert (starts, job.attempt, len(job.past), job.status) == (4, 4, 3, Status.FAILED)


def test_requeues_count_as_no_failures() -> None:
    job = after(
        running(Retry(1)),
        REQUEUE,
        KILLED,
        Again(NOW),
        LAUNCHED,
        REQUEUE,
        ended(),
        Again(NOW),
        LAUNCHED,
    )
    assert (job.attempt, job.failures) == (3, 0)
    assert after(job, ended()).over


PAUSES: list[tuple[float, list[float]]] = [
    (1.0, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
    (0.0, [0, 0, 0]),
    (3600.0, [3600, 3600]),
]


@pytest.mark.parametrize(("delay", "pauses"), PAUSES)
def test_pauses_grow(delay: float, pauses: list[float]) -> None:
    retry = Retry(99, delay)
    assert [retry.pause(number) for number in range(1, len(pauses) + 1)] == pauses


REQUEUED: list[tuple[str, Job, Sequence[Event], tuple[Status, int, str | None]]] = [
    (
        "it is ended",
        running(),
        [REQUEUE, KILLED],
        (Status.PENDING, 2, BY_ROOT),
    ),
    (
        "it ends well after that",
        running(),
        [REQUEUE, ended(0)],
        (Status.PENDING, 2, BY_ROOT),
    ),
    ("it had ended before", running(), [REQUEUE, WELL_EARLIER], (Status.SUCCEEDED, 1, None)),
    ("it had failed before", running(), [REQUEUE, EARLIER], (Status.FAILED, 1, None)),
    (
        "and would be tried again",
        running(Retry(1)),
        [REQUEUE, EARLIER],
        (Status.INIT, 2, "It failed."),
    ),
    (
        "twice",
        running(),
        [REQUEUE, REQUEUE, KILLED],
        (Status.PENDING, 2, BY_ROOT),
    ),
    ("it never began", running(), [REQUEUE, NotStarted()], (Status.PENDING, 1, None)),
    ("it is cancelled, too", running(), [REQUEUE, cancel(), KILLED], (Status.CANCELLED, 1, None)),
    (
        "cancelled before that was seen",
        running(),
        [REQUEUE, cancel(NOW + 6, kill_at=50_000_000), ended(None, 15, monotonic=12_000_000)],
        (Status.CANCELLED, 1, BY_ROOT),
    ),
    (
        "cancelled with a shorter grace before that was seen",
        running(),
        [REQUEUE, CUT_SHORT, ended(None, 15, monotonic=12_000_000)],
        (Status.CANCELLED, 1, BY_ROOT),
    ),
    (
        "cancelled after it had ended by itself",
        running(),
        [REQUEUE, CUT_SHORT, EARLIER],
        (Status.FAILED, 1, None),
    ),
    ("it was cancelled before", running(), [cancel(), REQUEUE, KILLED], (Status.CANCELLED, 1, None)),
    (
        "cancelled when it was over",
        running(),
        [REQUEUE, KILLED, cancel()],
        (Status.CANCELLED, 1, BY_ROOT),
    ),
    (
        "its time is up",
        running(),
        [REQUEUE, TimeLimitReached(1), KILLED],
        (Status.PENDING, 2, BY_ROOT),
    ),
    ("it waits", queued(), [REQUEUE], (Status.PENDING, 1, None)),
    ("it has ended", queued(Status.FAILED), [REQUEUE], (Status.FAILED, 1, None)),
    (
        "it is stopped by others",
        running(),
        [REQUEUE, ended(status=Status.CANCELLED)],
        (Status.CANCELLED, 1, None),
    ),
]


@pytest.mark.parametrize(
    ("job", "events", "seen"), [row[1:] for row in REQUEUED], ids=[row[0] for row in REQUEUED]
)
def test_requeue(job: Job, events: Sequence[Event], seen: tuple[Status, int, str | None]) -> None:
    job = after(job, *events, Again(NOW + 11))
    said = job.past[-1].reason.text if job.past and job.past[-1].reason else None
    assert (job.status, job.attempt, said) == seen
    assert (job.over, job.requeue if job.waits else None) == (False, None)


def test_what_is_seen_of_an_attempt_that_is_over() -> None:
    job = after(running(Retry(1)), ended())
    assert events_of(job, Observation(42, begun=False, held=False), NOW) == []
    assert events_of(job, Observation(42, outcome=Outcome(Status.FAILED)), NOW) == []
    assert lost_to_reboot(job, Boot(BOOT)) is None
    assert lost_to_reboot(job, Boot("another", NOW + 99)) == Again(NOW + 99)
    why = ending_reason(job, 0)
    assert why == Reason("again", "Attempt 1 ended as FAILED: It failed. Another one follows.")
    assert ending_reason(after(running(), REQUEUE), 35_000_000) == Reason(
        "requeueing", "Being requeued by root: new data; SIGKILL follows in 5s."
    )


TRIED = replace(
    after(running(Retry(7, 0.5, (range(1, 2), range(64, 79)), ("oom",))), ended(), Again(NOW + 11)),
    id=1,
    past=(
        Attempt(1, NOW, NOW + 2, Status.FAILED, Reason("x", "y"), Exit(3), Exit(0), Usage(1, 2, 3, 4)),
        Attempt(2, NOW, NOW + 2, Status.FAILED_DRIVER, None, Exit(signal=9, dumped=True)),
    ),
    attempt=3,
)


def test_attempts_come_back_as_they_were_written(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "sysjobs.db")) as store:
        job = store.add(new_job(retry=TRIED.retry))
        assert store.get(job.id) == job
        tried = replace(TRIED, has_setup=False)
        store.save(tried)
        assert store.get(job.id) == tried
        wished = replace(after(running(), REQUEUE), id=1, retry=TRIED.retry, has_setup=False)
        store.save(wished)
        assert store.get(1) == wished
        for column, value in (
            ("past", "[7]"), ("past", "[{}]"), ("past", '[{"number": "1"}]'),
            ("requeue", "[1]"), ("requeue", "{}"),
            ("retry", "[1]"), ("retry", "[0, 1, []]"), ("retry", '[1, 1, ["x"]]'), ("retry", "7"),
        ):  # fmt: skip
            store.save(wished)
            store._db.execute(f"UPDATE jobs SET {column} = ? WHERE id = 1", [value])
            with pytest.raises(RowDamaged, match=r"its attempts are|begin again is|tried again is"):
                store.get(1)
            store._db.execute("UPDATE jobs SET retry = NULL, past = NULL, requeue = NULL")


@pytest.mark.parametrize(
    ("times", "delay", "on"),
    [
        (-1, None, []),
        (101, None, []),
        (None, 1.0, []),
        (0, None, ["1"]),
        (1, 86_401.0, []),
        (1, None, ["0"]),
        (1, None, ["256"]),
        (1, None, ["9-3"]),
        (1, None, ["exit"]),
        (1, None, [""]),
        (1, None, ["1,2"]),
    ],
)
def test_what_is_no_retry(times: int | None, delay: float | None, on: list[str]) -> None:
    with pytest.raises(Refused) as caught:
        parse_retry(times, delay, on)
    assert (caught.value.code, bool(caught.value.hint)) == ("bad-retry", True)


def test_retries_in_words() -> None:
    assert parse_retry(0, None, []) is parse_retry(None, None, []) is None
    retry = parse_retry(3, None, ["75", "64-78", "OOM"])
    assert str(retry) == "3 times after 75,64-78,oom, first in 1s"
    assert load_retry(dump_retry(retry)) == retry
