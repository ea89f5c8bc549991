"""A job and its statuses.

Times are microseconds since 1970 (UTC). Deadlines are microseconds of CLOCK_MONOTONIC and mean something
only during the boot that the job's `boot_id` names: clock changes don't move them, a suspend doesn't count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from sysjobs.conditions import Conditions, Hold
from sysjobs.devices import Share
from sysjobs.indices import Indices, Places
from sysjobs.resources import Amount
from sysjobs.retry import Retry
from sysjobs.signalnames import signal_name
from sysjobs.sweep import Param


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
class Usage:
    """What an attempt used, as far as that is known.

    Microseconds of CPUs, bytes in memory at most, bytes read from and written to disks.
    """

    cpu_time: int | None = None
    peak_memory: int | None = None
    read: int | None = None
    written: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended, as read from its unit: status and reason as they are if nobody intervened."""

    status: Status
    reason: Reason | None = None
    main: Exit | None = None
    setup: Exit | None = None
    usage: Usage = Usage()


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
class Attempt:
    """One that is over, and wasn't the last."""

    number: int
    started_at: int
    ended_at: int
    status: Status
    reason: Reason | None = None
    main: Exit | None = None
    setup: Exit | None = None
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Notice:
    """A signal to the main process, so many seconds `before` its time limit."""

    signal: int
    before: float

    def __str__(self) -> str:
        return f"{signal_name(self.signal).removeprefix('SIG')}@{self.before:g}"


@dataclass(frozen=True, slots=True)
class Sent:
    """The last signal that somebody had sent to the job, and whether that is still to be done.

    `everybody`: to all of its processes, not to the main one alone.
    """

    signal: int
    user: str
    at: int
    everybody: bool = False
    due: bool = True


@dataclass(frozen=True, slots=True)
class Array:
    """The tasks of a job that has many: which there are, which wait, what became of those that had no turn.

    A task that has its turn becomes a job of its own, which names its array (`Job.task`). So an array costs
    what runs of it, not what it has. `limit` is how many run at a time at most. Of those that had their turn
    `ended` is how many ended in which way.
    """

    indices: Indices
    waiting: Places
    limit: int | None = None
    params: tuple[Param, ...] = ()
    held: tuple[tuple[Places, Hold], ...] = ()
    cancelled: tuple[tuple[Places, Cancellation], ...] = ()
    ended: tuple[tuple[Status, int], ...] = ()

    @property
    def live(self) -> int:
        """How many had their turn and haven't ended."""
        return len(self.indices) - len(self.unstarted) - sum(self.counts().values())

    @property
    def startable(self) -> int:
        """How many more may run now."""
        waiting = len(self.waiting)
        return waiting if self.limit is None else max(min(waiting, self.limit - self.live), 0)

    @property
    def unstarted(self) -> Places:
        """Those that may have their turn yet."""
        found = self.waiting
        for places, _ in self.held:
            found |= places
        return found

    @property
    def pieces(self) -> int:
        """Runs without a gap that are kept of it."""
        several = [self.waiting, *(places for places, _ in (*self.held, *self.cancelled))]
        return sum(len(places.runs) for places in several)

    def counts(self) -> dict[Status, int]:
        """How many have ended in which way, those included that were cancelled before they had a turn."""
        counts = dict(self.ended)
        if cancelled := sum(len(places) for places, _ in self.cancelled):
            counts[Status.CANCELLED] = counts.get(Status.CANCELLED, 0) + cancelled
        return counts

    def launch(self) -> Array:
        """The first that waits has its turn."""
        return replace(self, waiting=self.waiting.without_first())

    def end(self, status: Status, count: int = 1) -> Array:
        """One that had its turn has ended, or so many."""
        counts = dict(self.ended)
        counts[status] = counts.get(status, 0) + count
        return replace(self, ended=tuple(counts.items()))

    def hold(self, places: Places, hold: Hold) -> Array:
        """What root holds stays root's; what its owner holds becomes root's."""
        taken = places & self.waiting
        held = []
        for those, before in self.held:
            others = places & those if before.uid != hold.uid and before.uid != 0 else Places()
            taken |= others
            if kept := those - others:
                held.append((kept, before))
        if not taken:
            return self
        return replace(self, waiting=self.waiting - taken, held=(*held, (taken, hold)))

    def release(self, places: Places, *, by_root: bool) -> Array:
        waiting, held = self.waiting, []
        for those, hold in self.held:
            free = those & places if by_root or hold.uid != 0 else Places()
            waiting |= free
            if kept := those - free:
                held.append((kept, hold))
        return replace(self, waiting=waiting, held=tuple(held))

    def without(self, places: Places, cancellation: Cancellation) -> Array:
        """Somebody gives up those of these that had no turn."""
        if not (gone := places & self.unstarted):
            return self
        held = [(kept, hold) for those, hold in self.held if (kept := those - gone)]
        return replace(
            self,
            waiting=self.waiting - gone,
            held=tuple(held),
            cancelled=(*self.cancelled, (gone, cancellation)),
        )


@dataclass(frozen=True, slots=True)
class Task:
    """Which task of which array a job is."""

    array_id: int
    index: int


Key = int | tuple[int, int]
"""A job's id; of a task, its array's and its index, which it has before it has an id."""


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
    # Whether it gets no more than its CPUs though others are idle.
    hard_cpus: bool = False
    notice: Notice | None = None
    retry: Retry | None = None
    # At most one of these: it has tasks, which are what runs of it, or it is one.
    array: Array | None = None
    task: Task | None = None
    status: Status = Status.PENDING
    reason: Reason | None = None
    attempt: int = 1
    # The launch: committed before the unit is asked for.
    boot_id: str | None = None
    shard: int | None = None
    started_at: int | None = None
    deadline: int | None = None
    shares: tuple[Share, ...] = ()
    # What systemd then said.
    invocation_id: str | None = None
    running_at: int | None = None
    ended_at: int | None = None
    main: Exit | None = None
    setup: Exit | None = None
    usage: Usage = Usage()
    # Attempts before this one. `over`: this one has ended too, and another one follows once its unit is gone.
    past: tuple[Attempt, ...] = ()
    over: bool = False
    # What was done to it. A requeue is somebody's wish as a cancel is, and another attempt follows.
    cancellation: Cancellation | None = None
    requeue: Cancellation | None = None
    noticed: bool = False
    sent: Sent | None = None
    timed_out: bool = False
    kill_at: int | None = None

    @property
    def key(self) -> Key:
        return self.id if self.task is None else (self.task.array_id, self.task.index)

    @property
    def label(self) -> str:
        """What people call it: '42', or '42_7'."""
        return str(self.id) if self.task is None else f"{self.task.array_id}_{self.task.index}"

    @property
    def unit(self) -> str:
        return unit_name(self.id)

    @property
    def ending(self) -> bool:
        """SIGTERM was sent (or is about to be) on our own account."""
        return self.kill_at is not None

    @property
    def waits(self) -> bool:
        """For its turn, or for what has to come before that; of an array, some of its tasks."""
        if self.array is not None:
            return not self.status.terminal and bool(self.array.unstarted)
        return self.status is Status.INIT or self.status is Status.PENDING

    @property
    def failures(self) -> int:
        """How many of its attempts so far have failed by themselves."""
        return sum(each.status is not Status.CANCELLED for each in self.past)

    @property
    def ends_by(self) -> int | None:
        """When SIGKILL comes at the latest, in CLOCK_MONOTONIC; None: it may run as long as it likes."""
        limit = None if self.deadline is None else self.deadline + int(self.grace * 1_000_000)
        return min((end for end in (self.kill_at, limit) if end is not None), default=None)

    @property
    def notice_at(self) -> int | None:
        """When its signal before the time limit is to be sent, in CLOCK_MONOTONIC."""
        if self.notice is None or self.deadline is None or self.noticed or self.ending:
            return None
        return self.deadline - int(self.notice.before * 1_000_000)


def unit_name(job_id: int) -> str:
    return f"sysjobs-{job_id}.service"
