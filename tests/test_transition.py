"""The one place where a status changes: each status with each event, and whatever comes in whatever order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysjobs.conditions import Hold
from sysjobs.events import (
    Again,
    CancelRequested,
    Eligible,
    Ended,
    Event,
    GraceBegan,
    Held,
    Launched,
    Noticed,
    NotStarted,
    Released,
    RunningSince,
    SignalSent,
    SignalWanted,
    Started,
    TimeLimitReached,
    Unmet,
)
from sysjobs.jobs import (
    CUT_OFF,
    REBOOTED,
    Cancellation,
    Exit,
    Job,
    Notice,
    Outcome,
    Reason,
    Sent,
    Status,
    unit_name,
)
from sysjobs.retry import Retry
from sysjobs.store import Store
from sysjobs.transition import transition
from sysjobs.views import ending_reason
from tests import models
from tests.models import BOOT, INVOCATION, NOW, cancel, new_job, queued

LAUNCHED = Launched(NOW + 1, BOOT, 3, 60)
FAILED = Outcome(Status.FAILED, Reason("exit-code", "Ended with exit code 3."), Exit(3))
TERMED = Outcome(Status.FAILED, Reason("signal", "Ended by SIGTERM; sender unknown."), Exit(signal=15))

EVENTS: list[Event] = [
    LAUNCHED,
    Started(INVOCATION),
    RunningSince(NOW + 1),
    Ended(NOW + 2, FAILED),
    NotStarted(),
    cancel(NOW + 2),
    TimeLimitReached(60),
    GraceBegan(60),
    Held(Hold(1000, "alice")),
    Released(),
    Eligible(),
    Unmet(NOW + 2, Outcome(Status.CANCELLED, Reason("dependency", "Never."))),
    Noticed(NOW + 2),
]
# The status after each of EVENTS; a dot where nothing at all changes.
TABLE = """
INIT          .       .          .       .      .       CANCELLED  .          . INIT . PENDING CANCELLED .
PENDING       RUNNING .          .       .      .       CANCELLED  .          . INIT . .       .         .
SETTING_UP    .       SETTING_UP RUNNING FAILED PENDING SETTING_UP SETTING_UP . .    . .       .         .
RUNNING       .       RUNNING    RUNNING FAILED PENDING RUNNING    RUNNING    . .    . .       .         .
SUCCEEDED     .       .          .       .      .       .          .          . .    . .       .         .
FAILED        .       .          .       .      .       .          .          . .    . .       .         .
FAILED_SETUP  .       .          .       .      .       .          .          . .    . .       .         .
FAILED_DRIVER .       .          .       .      .       .          .          . .    . .       .         .
CANCELLED     .       .          .       .      .       .          .          . .    . .       .         .
"""
CASES = [
    pytest.param(Status(row[0]), event, expected, id=f"{row[0]}-{type(event).__name__}")
    for row in map(str.split, TABLE.strip().splitlines())
    for event, expected in zip(EVENTS, row[1:], strict=True)
]


@pytest.mark.parametrize(("status", "event", "expected"), CASES)
def test_table(status: Status, event: Event, expected: str) -> None:
    job = queued(status)
    after = transition(job, event)
    if expected == ".":
        assert after is job
    else:
        assert after != job
        assert after.status == expected


def test_the_table_has_every_status() -> None:
    assert {case.values[0] for case in CASES} == set(Status)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("status", Status)
def test_an_event_that_comes_twice_changes_nothing_more(status: Status, event: Event) -> None:
    once = transition(queued(status), event)
    assert transition(once, event) == once


@pytest.mark.parametrize(("setup", "status"), [(True, Status.SETTING_UP), (False, Status.RUNNING)])
def test_launch(setup: bool, status: Status) -> None:
    waiting = queued(has_setup=setup, reason=Reason("x", "y"))
    assert transition(waiting, LAUNCHED) == replace(
        waiting, status=status, reason=None, boot_id=BOOT, shard=3, started_at=NOW + 1, deadline=60
    )


def test_what_was_never_begun_waits_as_before() -> None:
    waiting = queued()
    job = waiting
    for event in (LAUNCHED, Started(INVOCATION), RunningSince(NOW), TimeLimitReached(60), NotStarted()):
        job = transition(job, event)
    assert job == waiting


def test_what_was_never_begun_and_is_cancelled_ends() -> None:
    job = transition(transition(queued(Status.RUNNING), cancel(NOW + 5)), NotStarted())
    assert (job.status, job.ended_at, job.main) == (Status.CANCELLED, NOW + 5, None)


def test_cancel_of_a_running_job_waits_for_its_end() -> None:
    wish = cancel(NOW + 5)
    job = transition(queued(Status.RUNNING), wish)
    assert (job.cancellation, job.kill_at, job.ending) == (wish.cancellation, 99, True)
    ended = transition(job, Ended(NOW + 9, TERMED))
    assert (ended.status, ended.ended_at, ended.main) == (Status.CANCELLED, NOW + 9, TERMED.main)
    assert (ended.kill_at, ended.deadline) == (None, None)


@pytest.mark.parametrize(
    ("kill_at", "second", "expected"), [(None, 50, 50), (99, 50, 50), (99, 120, 99), (40, 50, 40)]
)
def test_a_second_wish_only_shortens_the_grace(kill_at: int | None, second: int, expected: int) -> None:
    first = None if kill_at is None else cancel().cancellation
    job = queued(Status.RUNNING, kill_at=kill_at, cancellation=first)
    after = transition(job, cancel(uid=0, user="root", kill_at=second))
    assert after.kill_at == expected
    assert after.cancellation is not None
    assert after.cancellation.user == ("root" if first is None else "alice")
    assert transition(replace(job, time_limit=1.0), TimeLimitReached(second)).kill_at == expected


DAY = 86_400_000_000
MINUTE = 60_000_000
# When the wish came is kill_at - grace; the clock on the wall may show anything by the end.
WISHES = {
    "one": [cancel(kill_at=100 + MINUTE // 2)],
    "two": [cancel(kill_at=100 + MINUTE // 2), cancel(uid=0, user="root", kill_at=200)],
    "past its time limit": [TimeLimitReached(200), cancel(kill_at=100 + MINUTE // 2)],
    "and then its time limit": [cancel(kill_at=100 + MINUTE // 2), TimeLimitReached(200)],
    "heard late": [cancel(kill_at=100 + MINUTE // 2), GraceBegan(100 + 2 * MINUTE)],
}


@pytest.mark.parametrize("at", [NOW, NOW - DAY, NOW + DAY])
@pytest.mark.parametrize("wishes", WISHES.values(), ids=WISHES)
def test_whether_a_job_ended_before_the_cancel_is_told_by_no_clock_on_the_wall(
    wishes: list[Event], at: int
) -> None:
    job = queued(Status.RUNNING)
    for wish in wishes:
        job = transition(job, wish)
    own = transition(replace(job, timed_out=False), Ended(at, FAILED, 99))
    assert (own.status, own.reason) == (Status.FAILED, FAILED.reason)
    for monotonic in (100, 300, None):
        assert transition(job, Ended(at, TERMED, monotonic)).status is Status.CANCELLED


ENDING: list[tuple[dict[str, object], int, tuple[str, str] | None]] = [
    ({}, 0, None),
    (
        {"cancellation": cancel().cancellation, "kill_at": 30_000_000},
        1_000_000,
        ("cancelling", "Being cancelled by its owner; SIGKILL follows in 29s."),
    ),
    (
        {"cancellation": cancel(uid=0, user="root", reason="too long").cancellation, "kill_at": 30_000_000},
        31_000_000,
        ("stuck", "Being cancelled by root: too long; SIGKILL was sent 1s ago and hasn't ended it yet."),
    ),
    (
        {"timed_out": True, "time_limit": 60.0, "kill_at": 30_000_000},
        0,
        ("time-limit", "Past its time limit of 1m; SIGKILL follows in 30s."),
    ),
]


@pytest.mark.parametrize(("fields", "now", "expected"), ENDING)
def test_why_it_is_being_ended(fields: dict[str, object], now: int, expected: tuple[str, str] | None) -> None:
    reason = ending_reason(queued(Status.RUNNING, **fields), now)
    assert (reason and (reason.code, reason.text)) == expected


CANCELLED_BY = [
    (Status.PENDING, 1000, "", "Cancelled before it started by its owner."),
    (Status.PENDING, 0, "", "Cancelled before it started by root."),
    (Status.RUNNING, 1000, "too slow", "Cancelled by its owner: too slow."),
    (Status.RUNNING, 0, "maintenance", "Cancelled by root: maintenance."),
]


@pytest.mark.parametrize(("status", "uid", "said", "text"), CANCELLED_BY)
def test_who_cancelled(status: Status, uid: int, said: str, text: str) -> None:
    wish = CancelRequested(Cancellation(uid, "root" if uid == 0 else "alice", said, NOW, 30.0), 99)
    job = transition(transition(queued(status), wish), Ended(NOW, TERMED))
    assert job.reason == Reason("cancelled", text)


OOM = Outcome(Status.FAILED_DRIVER, Reason("oom", "It ran out of memory."), Exit(signal=9))
REBOOT = Outcome(Status.FAILED_DRIVER, REBOOTED)
CUT = Outcome(Status.FAILED_DRIVER, CUT_OFF)
TIMED_OUT = [
    ("dies by TERM", {}, TERMED, "FAILED time-limit"),
    ("ignores TERM", {}, Outcome(Status.FAILED_DRIVER, Reason("killed", "x")), "FAILED time-limit"),
    ("exits 0", {}, Outcome(Status.SUCCEEDED, None, Exit(0)), "FAILED time-limit"),
    ("in setup", {"has_setup": True}, TERMED, "FAILED_SETUP time-limit"),
    ("after setup", {"has_setup": True, "running_at": NOW}, TERMED, "FAILED time-limit"),
    ("is out of memory", {}, OOM, "FAILED_DRIVER oom"),
    ("the machine goes down", {}, REBOOT, "FAILED_DRIVER reboot"),
    ("the power is cut", {}, CUT, "FAILED_DRIVER power-cut"),
    ("and is cancelled", {"cancellation": cancel().cancellation}, TERMED, "CANCELLED cancelled"),
]


@pytest.mark.parametrize(
    ("fields", "end", "expected"), [c[1:] for c in TIMED_OUT], ids=[c[0] for c in TIMED_OUT]
)
def test_end_after_the_time_limit(fields: dict[str, object], end: Outcome, expected: str) -> None:
    job = transition(queued(Status.RUNNING, **fields), TimeLimitReached(60))
    job = transition(job, Ended(NOW + 9, end))
    assert job.reason is not None
    assert f"{job.status} {job.reason.code}" == expected
    if job.reason.code == "time-limit":
        assert job.reason.text == "Ran into its time limit of 1h."


def test_no_job_ends_before_its_submit() -> None:
    """The clock may have been set back."""
    assert transition(queued(Status.RUNNING), Ended(NOW - 5, FAILED)).ended_at == NOW


def test_a_failed_setup_of_others_is_not_the_jobs_own() -> None:
    """An administrator's drop-in can add an ExecStartPre to a job that has no setup."""
    end = Outcome(Status.FAILED_SETUP, Reason("setup", "Setup ended with exit code 1."), None, Exit(1))
    assert transition(queued(Status.RUNNING), Ended(NOW, end)).status is Status.FAILED_DRIVER


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("store") / "sysjobs.db")
    yield store
    store.close()


@settings(max_examples=300)
@given(
    events=st.builds(
        list.__add__, st.sampled_from([[], [LAUNCHED], [LAUNCHED, Started(INVOCATION)]]), models.histories
    ),
    has_setup=st.booleans(),
    time_limit=st.sampled_from([None, 0.5, 3600.0]),
    retry=st.sampled_from([None, Retry(1, 0.0), Retry(3, 1.0, (range(1, 4),), ("oom",))]),
)
def test_whatever_happens(
    store: Store, events: list[Event], has_setup: bool, time_limit: float | None, retry: Retry | None
) -> None:
    """Every state is true, accepted by the database, and read back as it was."""
    payload = replace(new_job().payload, setup=b"make" if has_setup else None)
    job = store.add(new_job(payload=payload, time_limit=time_limit, retry=retry))
    try:
        for event in [None, *events]:
            before = job
            job = job if event is None else transition(job, event)
            check(before, job)
            assert job.attempt == before.attempt + (isinstance(event, Again) and before.over and job.waits)
            store.save(job)
            assert store.get(job.id) == job
    finally:
        store.rollback()


def check(before: Job, job: Job) -> None:
    if before.status.terminal:
        assert job is before
    assert (job.ended_at is not None) == job.status.terminal
    assert job.ended_at is None or job.ended_at >= job.submitted_at
    launch = (job.boot_id, job.shard, job.started_at)
    assert None not in launch or set(launch) == {None}
    if job.status.launched:
        assert None not in launch
    else:
        assert (job.deadline, job.kill_at, job.ending) == (None, None, False)
    if not job.status.launched and not job.status.terminal:
        assert (*launch, job.invocation_id, job.running_at) == (None,) * 5
        assert not job.timed_out
    assert job.has_setup or job.status not in (Status.SETTING_UP, Status.FAILED_SETUP)
    if job.status.terminal and job.status is not Status.SUCCEEDED:
        assert job.reason is not None
    if before.cancellation is not None:
        assert job.cancellation is not None
        longer = round((job.cancellation.grace - before.cancellation.grace) * 1_000_000)
        assert longer == (job.kill_at - before.kill_at if job.kill_at and before.kill_at else 0)
        assert replace(job.cancellation, grace=before.cancellation.grace) == before.cancellation
    assert [each.number for each in job.past] == [*range(1, job.attempt + job.over)]
    assert not job.over or job.status.launched
    assert job.retry is None or job.failures <= job.retry.times


def test_unit() -> None:
    assert queued().unit == unit_name(42) == "sysjobs-42.service"


ALICES, ROOTS = Hold(1000, "alice"), Hold(0, "root")


def test_holds() -> None:
    held = transition(queued(), Held(ALICES))
    assert (held.status, held.hold) == (Status.INIT, ALICES)
    assert transition(held, Eligible()) is held
    assert transition(held, Released()) == queued(Status.INIT)
    rooted = transition(held, Held(ROOTS))
    assert rooted.hold == ROOTS
    assert transition(rooted, Held(ALICES)) == rooted, "it is root's to release"
    assert transition(rooted, cancel()).hold is None
    assert transition(held, Unmet(NOW, Outcome(Status.CANCELLED))).hold is None


def test_a_cancel_with_a_long_grace_does_not_put_off_the_end_by_the_time_limit() -> None:
    """By which others are promised when they can start."""
    job = queued(Status.RUNNING, deadline=1_000_000, grace=2.0)
    assert job.ends_by == 3_000_000
    assert transition(job, cancel(kill_at=2_000_000)).ends_by == 2_000_000
    patient = transition(job, cancel(kill_at=9_000_000))
    assert patient.ends_by == 3_000_000
    assert transition(patient, TimeLimitReached(3_000_000)).ends_by == 3_000_000


USR1 = Outcome(Status.FAILED, Reason("signal", "Who knows."), Exit(signal=signal.SIGUSR1))
KILLED = Outcome(Status.FAILED_DRIVER, Reason("killed", "Who knows."), Exit(signal=signal.SIGKILL))


def test_a_signal_before_the_time_limit_that_ended_it() -> None:
    job = queued(Status.RUNNING, notice=Notice(signal.SIGUSR1, 60.0), deadline=100_000_000)
    assert job.notice_at == 40_000_000
    assert transition(job, Ended(NOW, USR1)).reason == USR1.reason
    noticed = transition(job, Noticed(NOW))
    assert (noticed.notice_at, noticed.sent) == (None, Sent(signal.SIGUSR1, "--signal", NOW))
    told = transition(noticed, Ended(NOW + 2_000_000, USR1))
    assert told.reason == Reason("signal", "Ended by SIGUSR1, which --signal had sent 2s before.")
    assert transition(noticed, NotStarted()).sent is None


def test_a_signal_that_somebody_sent_and_that_ended_it() -> None:
    sent = transition(queued(Status.RUNNING), SignalWanted(Sent(signal.SIGKILL, "bob", NOW)))
    assert sent.sent is not None
    assert sent.sent.due
    done = transition(sent, SignalSent())
    assert done.sent == replace(sent.sent, due=False)
    ended = transition(done, Ended(NOW + 500_000, KILLED))
    assert (ended.status, ended.reason) == (
        Status.FAILED, Reason("signal", "Ended by SIGKILL, which bob had sent 0.5s before."),
    )  # fmt: skip
    assert transition(done, Ended(NOW, USR1)).reason == USR1.reason, "another one"
    setup = Outcome(Status.FAILED_SETUP, Reason("setup", "Sender unknown."), setup=Exit(signal=signal.SIGINT))
    assert transition(done, Ended(NOW, setup)).reason == setup.reason, "another one"
    sent = replace(done, sent=replace(done.sent, signal=signal.SIGINT))
    assert (ended := transition(sent, Ended(NOW, setup))).status is Status.FAILED_SETUP
    assert ended.reason == Reason("signal", "Ended by SIGINT, which bob had sent 0s before.")
    oom = replace(KILLED, reason=Reason("oom", "It ran out of memory."))
    assert transition(done, Ended(NOW, oom)).reason == oom.reason
    for waiting in (Status.INIT, Status.PENDING):
        assert transition(queued(waiting), SignalWanted(Sent(signal.SIGKILL, "bob", NOW))).sent is None
