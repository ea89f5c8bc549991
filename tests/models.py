"""Jobs as the queue and the store have them, and hypothesis strategies for what can happen to them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from sysjobs.conditions import Hold
from sysjobs.devices import Share
from sysjobs.engine.outcome import Found, Seen, outcome
from sysjobs.engine.script import STEPS, Traces
from sysjobs.engine.units import Unit
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
    RequeueRequested,
    RunningSince,
    SignalSent,
    SignalWanted,
    Started,
    TimeLimitReached,
    Unmet,
)
from sysjobs.jobs import Cancellation, Job, Outcome, Reason, Sent, Status
from sysjobs.payload import NewJob, Payload
from sysjobs.resources import Amount
from sysjobs.scheduling.holdings import Holdings
from sysjobs.scheduling.pending import Pending
from sysjobs.scheduling.pool import Capacity

NOW = 1_700_000_000_000_000
BOOT = "2f4e1c9a-0000-4000-8000-000000000001"
INVOCATION = "0123456789abcdef0123456789abcdef"

_LAUNCH = {"boot_id": BOOT, "shard": 0, "started_at": NOW + 1}


def new_job(**fields: object) -> NewJob:
    new = NewJob(
        uid=1000,
        gid=1000,
        user="alice",
        name="train",
        amount=Amount(500, 1 << 30),
        time_limit=3600.0,
        grace=30.0,
        submitted_at=NOW,
        payload=Payload((b"train",)),
    )
    return replace(new, **fields)  # type: ignore[arg-type]


def queued(status: Status = Status.PENDING, **fields: object) -> Job:
    """Job 42 in this status, with what a job in it always has."""
    given: dict[str, object] = {"has_setup": status in (Status.SETTING_UP, Status.FAILED_SETUP)}
    if status.launched:
        given |= _LAUNCH
    if status.terminal:
        given["ended_at"] = NOW + 2
    job = Job(
        id=42,
        uid=1000,
        gid=1000,
        user="alice",
        name="train",
        amount=Amount(500, 1 << 30),
        has_setup=False,
        time_limit=3600.0,
        grace=30.0,
        submitted_at=NOW,
        status=status,
    )
    return replace(job, **(given | fields))  # type: ignore[arg-type]


def cancel(
    at: int = NOW, *, uid: int = 1000, user: str = "alice", reason: str = "", kill_at: int = 99
) -> CancelRequested:
    return CancelRequested(Cancellation(uid, user, reason, at, 30.0), kill_at)


# Around a few moments, so that before, at the same time and after all come up.
times = st.integers(NOW - 3, NOW + 20)
monotonic = st.integers(1, 20)
statuses_of_processes = st.sampled_from([0, 1, 3, 9, 11, 15, 126, 127, 137, 200, 203, 217, 219, 245, 255])

units = st.builds(
    Unit,
    active_state=st.sampled_from(["active", "inactive", "failed", "deactivating"]),
    result=st.sampled_from(
        ["success", "exit-code", "signal", "core-dump", "timeout", "oom-kill", "resources"]
    ),
    main_code=st.integers(0, 3),
    main_status=statuses_of_processes,
    setup_code=st.integers(0, 3),
    setup_status=statuses_of_processes,
)
traces = st.builds(
    Traces,
    phase=st.sampled_from([None, "setup", "run"]),
    failed_step=st.sampled_from([None, *STEPS]),
    failed_code=st.none() | statuses_of_processes,
    setup_code=st.none() | statuses_of_processes,
)
sights = st.builds(
    Seen,
    unit=st.none() | units,
    traces=traces,
    stopped=st.booleans(),
    rebooting=st.booleans(),
    found=st.builds(Found, requested=st.booleans()),
)
outcomes: st.SearchStrategy[Outcome] = sights.map(outcome)

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        Launched,
        at=times,
        boot_id=st.just(BOOT),
        shard=st.integers(0, 3),
        deadline=st.none() | monotonic,
        shares=st.sampled_from([(), (Share("gpu0", 1000), Share("gpu1", 1000))]),
    ),
    st.builds(Started, invocation_id=st.sampled_from([INVOCATION, INVOCATION[::-1]])),
    st.builds(RunningSince, at=times),
    st.builds(Ended, at=times, outcome=outcomes),
    st.builds(NotStarted),
    st.builds(Noticed, at=times),
    st.builds(SignalWanted, st.builds(Sent, st.sampled_from([9, 10]), st.just("bob"), times)),
    st.just(SignalSent()),
    st.builds(
        CancelRequested,
        cancellation=st.builds(
            Cancellation,
            uid=st.sampled_from([0, 1000]),
            user=st.sampled_from(["root", "alice"]),
            reason=st.sampled_from(["", "too slow"]),
            at=times,
            grace=st.sampled_from([0.0, 30.0]),
        ),
        kill_at=monotonic,
    ),
    st.builds(
        RequeueRequested,
        wish=st.builds(
            Cancellation, st.just(1000), st.just("alice"), st.just(""), times, st.sampled_from([0.0, 30.0])
        ),
        kill_at=monotonic,
    ),
    st.builds(Again, at=times),
    st.builds(TimeLimitReached, kill_at=monotonic),
    st.builds(GraceBegan, kill_at=monotonic),
    st.builds(Held, hold=st.sampled_from([Hold(0, "root"), Hold(1000, "alice")])),
    st.just(Released()),
    st.just(Eligible()),
    st.builds(Unmet, at=times, outcome=st.just(Outcome(Status.CANCELLED, Reason("dependency", "Never.")))),
)
histories: st.SearchStrategy[list[Event]] = st.lists(events, max_size=12)


SECOND = 1_000_000


def waits(number: int, cpus: int, memory: int = 0, limit: float | None = None, **fields: int) -> Job:
    """A pending job that has no grace."""
    amount = Amount(cpus, memory)
    job = queued(id=number, amount=amount, time_limit=limit, grace=0.0)
    return replace(job, **fields)  # type: ignore[arg-type]


def runs(number: int, cpus: int, memory: int = 0, until: int | None = None) -> Job:
    """A running job that is to end by so many seconds."""
    deadline = None if until is None else until * SECOND
    job = queued(Status.RUNNING, deadline=deadline)
    return replace(job, id=number, amount=Amount(cpus, memory), grace=0.0)


def queue(*jobs: Job) -> Pending:
    pending = Pending()
    for job in jobs:
        pending.add(job)
    return pending


def node(capacity: Capacity, *running: Job) -> Holdings:
    holdings = Holdings(capacity)
    for job in running:
        holdings.take(job)
    return holdings
