"""A job, its statuses, what can happen to it, and `transition()`, the one place where a status changes.

Times are microseconds since 1970 (UTC). Deadlines are microseconds of CLOCK_MONOTONIC and mean something
only during the boot that the job's `boot_id` names: clock changes don't move them, a suspend doesn't count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from sysjobs.conditions import Conditions, Hold
from sysjobs.resources import Amount, format_duration
from sysjobs.signalnames import signal_name


class Status(StrEnum):
    INIT = "INIT"
    PENDING = "PENDING"
    SETTING_UP = "SETTING_UP"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    FAILED_SETUP = "FAILED_SETUP"
    FAILED_DRIVER = "FAILED_DRIVER"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL

    @property
    def launched(self) -> bool:
        """Its unit was asked for and has not been seen to end."""
        return self is Status.SETTING_UP or self is Status.RUNNING


TERMINAL = frozenset(
    (Status.SUCCEEDED, Status.FAILED, Status.FAILED_SETUP, Status.FAILED_DRIVER, Status.CANCELLED)
)
UNFINISHED = tuple(status for status in Status if status not in TERMINAL)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits or ended as it did: a code for programs, a sentence for people."""

    code: str
    text: str


REBOOTED = Reason("reboot", "The machine was shut down or rebooted while it ran.")
REBOOTED_AT_START = Reason("reboot", "The machine was shut down or rebooted as it was being started.")
_CUT_OFF = "The machine went down {}, with no shutdown on record: most likely a power cut or a crash."
CUT_OFF = Reason("power-cut", _CUT_OFF.format("while it ran"))
CUT_OFF_AT_START = Reason("power-cut", _CUT_OFF.format("as it was being started"))


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: by `code`, or by `signal` (then `dumped` tells whether it left a core)."""

    code: int | None = None
    signal: int | None = None
    dumped: bool = False

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit code {self.code}"
        return f"{signal_name(self.signal)}{', core dumped' if self.dumped else ''}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended, as read from its unit: status and reason as they are if nobody intervened."""

    status: Status
    reason: Reason | None = None
    main: Exit | None = None
    setup: Exit | None = None
    peak_memory: int | None = None
    """Bytes that all its processes had at most, where that is known."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Somebody's wish that the job ends: who, why, when, and the grace between SIGTERM and SIGKILL.

    The grace is always the time from the wish to the job's `kill_at`, and so tells when the wish came in the
    one clock that nobody changes. Where SIGTERM comes late, that is added to both.
    """

    uid: int
    user: str
    reason: str
    at: int
    grace: float


@dataclass(frozen=True, slots=True)
class Job:
    """One job as the queue knows it. Its command and environment stay in the database (see `store`)."""

    id: int
    uid: int
    gid: int
    user: str
    name: str
    amount: Amount
    has_setup: bool
    time_limit: float | None
    grace: float
    submitted_at: int
    priority: int = 0
    conditions: Conditions = Conditions()  # noqa: RUF009 - it is frozen
    hold: Hold | None = None
    status: Status = Status.PENDING
    reason: Reason | None = None
    attempt: int = 1
    # The launch: committed before the unit is asked for.
    boot_id: str | None = None
    shard: int | None = None
    started_at: int | None = None
    deadline: int | None = None
    # What systemd then said.
    invocation_id: str | None = None
    running_at: int | None = None
    ended_at: int | None = None
    main: Exit | None = None
    setup: Exit | None = None
    peak_memory: int | None = None
    # What was done to it.
    cancellation: Cancellation | None = None
    timed_out: bool = False
    kill_at: int | None = None

    @property
    def unit(self) -> str:
        return unit_name(self.id)

    @property
    def ending(self) -> bool:
        """SIGTERM was sent (or is about to be) on our own account."""
        return self.kill_at is not None

    @property
    def waits(self) -> bool:
        """For its turn, or for what has to come before that."""
        return self.status is Status.INIT or self.status is Status.PENDING

    @property
    def ends_by(self) -> int | None:
        """When SIGKILL comes at the latest, in CLOCK_MONOTONIC; None: it may run as long as it likes."""
        limit = None if self.deadline is None else self.deadline + int(self.grace * 1_000_000)
        return min((end for end in (self.kill_at, limit) if end is not None), default=None)


def unit_name(job_id: int) -> str:
    return f"sysjobs-{job_id}.service"


@dataclass(frozen=True, slots=True)
class Launched:
    """The unit is about to be asked for. `deadline` is the end of the job's time limit, if it has one."""

    at: int
    boot_id: str
    shard: int
    deadline: int | None


@dataclass(frozen=True, slots=True)
class Started:
    """systemd has the unit."""

    invocation_id: str


@dataclass(frozen=True, slots=True)
class RunningSince:
    """`run` was executed: setup, if there was one, is over."""

    at: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The unit came to its end at `at`, which was `monotonic` of CLOCK_MONOTONIC if that is known."""

    at: int
    outcome: Outcome
    monotonic: int | None = None


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The unit was asked for and nothing of it ever began: back to the queue."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody wants the job to end. `kill_at` is when SIGKILL follows, if it is running."""

    cancellation: Cancellation
    kill_at: int


@dataclass(frozen=True, slots=True)
class TimeLimitReached:
    """The job's time is up; SIGKILL follows at `kill_at`."""

    kill_at: int


@dataclass(frozen=True, slots=True)
class GraceBegan:
    """SIGTERM was sent, and later than was meant: SIGKILL follows at `kill_at`."""

    kill_at: int


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody keeps the job from starting."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Released:
    """Nobody holds the job any more."""


@dataclass(frozen=True, slots=True)
class Eligible:
    """All that had to come before is there: it waits for its turn."""


@dataclass(frozen=True, slots=True)
class Unmet:
    """Something that had to come before never will."""

    at: int
    outcome: Outcome


Event = (
    Launched | Started | RunningSince | Ended | NotStarted | CancelRequested | TimeLimitReached | GraceBegan
    | Held | Released | Eligible | Unmet
)  # fmt: skip


def transition(job: Job, event: Event) -> Job:
    """The job after the event. An event that comes too late or twice leaves it as it is."""
    if job.status.terminal:
        return job
    match event:
        case CancelRequested(cancellation=cancellation, kill_at=kill_at):
            if not job.status.launched:
                return _end(replace(job, cancellation=cancellation), cancellation.at, _CANCELLED_WAITING)
            if job.cancellation is not None:
                # A second cancel may only shorten the grace.
                return _hasten(job, kill_at)
            return _hasten(replace(job, cancellation=cancellation, kill_at=kill_at), job.kill_at or kill_at)
        case Launched(at=at, boot_id=boot_id, shard=shard, deadline=deadline):
            if job.status is not Status.PENDING:
                return job
            status = Status.SETTING_UP if job.has_setup else Status.RUNNING
            return replace(
                job,
                status=status,
                reason=None,
                boot_id=boot_id,
                shard=shard,
                started_at=at,
                deadline=deadline,
            )
        case Held() | Released() | Eligible() | Unmet():
            return job if job.status.launched else _conditional(job, event)
    if not job.status.launched:
        return job
    match event:
        case Started(invocation_id=invocation_id):
            return replace(job, invocation_id=invocation_id)
        case RunningSince(at=at):
            return replace(job, status=Status.RUNNING, running_at=job.running_at or at)
        case TimeLimitReached(kill_at=kill_at):
            if job.timed_out:
                return job
            return _hasten(replace(job, timed_out=True, deadline=None), kill_at)
        case GraceBegan(kill_at=kill_at):
            return _kill_at(job, kill_at) if job.ending else job
        case NotStarted():
            if job.cancellation is not None:
                return _end(job, job.cancellation.at, _CANCELLED_WAITING)
            return replace(
                job,
                status=Status.PENDING,
                boot_id=None,
                shard=None,
                started_at=None,
                deadline=None,
                invocation_id=None,
                running_at=None,
                timed_out=False,
                kill_at=None,
            )
        case Ended(at=at, outcome=outcome, monotonic=monotonic):
            return _end(job, at, outcome, monotonic)
    raise AssertionError(event)


def _conditional(job: Job, event: Held | Released | Eligible | Unmet) -> Job:
    """What becomes of a job that hasn't started."""
    match event:
        case Held(hold=hold):
            # What root holds, only root lets go.
            return replace(job, status=Status.INIT, hold=job.hold if job.hold and job.hold.uid == 0 else hold)
        case Released():
            return replace(job, hold=None) if job.hold else job
        case Eligible():
            return job if job.hold or job.status is not Status.INIT else replace(job, status=Status.PENDING)
        case Unmet(at=at, outcome=outcome):
            return _end(job, at, outcome) if job.status is Status.INIT else job


_CANCELLED_WAITING = Outcome(Status.CANCELLED)


def _hasten(job: Job, kill_at: int) -> Job:
    """SIGKILL follows at `kill_at`, or earlier if that was due already."""
    return _kill_at(job, kill_at if job.kill_at is None else min(job.kill_at, kill_at))


def _kill_at(job: Job, kill_at: int) -> Job:
    """SIGKILL follows at `kill_at`; when the wish for it came stays what it was."""
    cancellation = job.cancellation
    if cancellation is not None and job.kill_at is not None:
        later = (kill_at - job.kill_at) / 1_000_000
        cancellation = replace(cancellation, grace=cancellation.grace + later)
    return replace(job, kill_at=kill_at, cancellation=cancellation)


def _ended_before_cancel(job: Job, monotonic: int | None) -> bool:
    """Not to be told from `at`: somebody may have set that clock in between."""
    if job.cancellation is None or job.kill_at is None or monotonic is None:
        return False
    return monotonic < job.kill_at - round(job.cancellation.grace * 1_000_000)


def _end(job: Job, at: int, outcome: Outcome, monotonic: int | None = None) -> Job:
    """The terminal job: its own outcome, or what we did to it before that."""
    status, reason = outcome.status, outcome.reason
    cancellation = job.cancellation
    if cancellation is not None and (
        outcome.status is Status.CANCELLED or not _ended_before_cancel(job, monotonic)
    ):
        status, reason = Status.CANCELLED, _cancel_reason(job, cancellation)
    elif job.timed_out and job.time_limit is not None and not _is_external(outcome):
        status = Status.FAILED_SETUP if job.running_at is None and job.has_setup else Status.FAILED
        reason = Reason("time-limit", f"Ran into its time limit of {format_duration(job.time_limit)}.")
    elif status is Status.FAILED_SETUP and not job.has_setup:
        # A setup of somebody else's: an administrator's drop-in for all services.
        status = Status.FAILED_DRIVER
    return replace(
        job,
        status=status,
        reason=reason,
        ended_at=max(at, job.submitted_at),
        main=outcome.main,
        setup=outcome.setup,
        peak_memory=outcome.peak_memory,
        deadline=None,
        kill_at=None,
        hold=None,
    )


def _is_external(outcome: Outcome) -> bool:
    """What ended the job would have ended it with or without our SIGTERM."""
    return outcome.reason is not None and outcome.reason.code.partition("-")[0] in ("reboot", "power", "oom")


def _cancel_reason(job: Job, cancellation: Cancellation) -> Reason:
    before = "" if job.status.launched else " before it started"
    return Reason("cancelled", f"Cancelled{before} by {canceller(job, cancellation)}.")


def canceller(job: Job, cancellation: Cancellation) -> str:
    """Who, and why if that was said."""
    by = "its owner" if cancellation.uid == job.uid else cancellation.user
    return f"{by}: {cancellation.reason}" if cancellation.reason else by
