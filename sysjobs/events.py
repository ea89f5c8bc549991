"""What can happen to a job. `transition()` says what then becomes of it."""

from __future__ import annotations

from dataclasses import dataclass

from sysjobs.conditions import Hold
from sysjobs.devices import Share
from sysjobs.indices import Places
from sysjobs.jobs import Cancellation, Outcome, Sent, Status
from sysjobs.resources import Amount


@dataclass(frozen=True, slots=True)
class Launched:
    """The unit is about to be asked for. `deadline` is the end of the job's time limit, if it has one.

    `shares` are those of devices that it gets.
    """

    at: int
    boot_id: str
    shard: int
    deadline: int | None
    shares: tuple[Share, ...] = ()


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
class RequeueRequested:
    """Somebody wants this attempt to end, and another one. `kill_at` is when SIGKILL follows."""

    wish: Cancellation
    kill_at: int


@dataclass(frozen=True, slots=True)
class Again:
    """Nothing is left of an attempt that is over: the next one waits for its turn."""

    at: int


@dataclass(frozen=True, slots=True)
class SignalWanted:
    """Somebody wants a signal sent to the job."""

    sent: Sent


@dataclass(frozen=True, slots=True)
class SignalSent:
    """What somebody wanted was sent."""


@dataclass(frozen=True, slots=True)
class Noticed:
    """Its signal before the time limit is due."""

    at: int


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
    """Nobody holds the job any more, or wants it to come after others (`from_dependencies`)."""

    from_dependencies: bool = False


@dataclass(frozen=True, slots=True)
class Eligible:
    """All that had to come before is there: it waits for its turn."""


@dataclass(frozen=True, slots=True)
class Unmet:
    """Something that had to come before never will."""

    at: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class TaskLaunched:
    """The first of an array's waiting tasks has its turn, in this boot."""

    at: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task of the array that had its turn has ended."""

    at: int
    status: Status


@dataclass(frozen=True, slots=True)
class TasksCounted:
    """So many of an array's tasks had their turn and haven't ended. Of others the records are gone."""

    at: int
    live: int


@dataclass(frozen=True, slots=True)
class TasksCancelled:
    """Somebody wants those of these tasks not to start that haven't had their turn."""

    places: Places
    cancellation: Cancellation


@dataclass(frozen=True, slots=True)
class TasksHeld:
    """Somebody keeps tasks from having their turn."""

    places: Places
    hold: Hold


@dataclass(frozen=True, slots=True)
class TasksReleased:
    """Nobody holds these tasks any more; what root holds, only root lets go."""

    places: Places
    by_root: bool


@dataclass(frozen=True, slots=True)
class LimitChanged:
    """So many of an array's tasks may run at a time; None: as many as fit."""

    limit: int | None


@dataclass(frozen=True, slots=True)
class Adjusted:
    """Somebody changes what the job asked for; once it runs, the time limit alone, and so its `deadline`."""

    priority: int
    amount: Amount
    time_limit: float | None
    deadline: int | None = None


ArrayEvent = (
    TaskLaunched | TaskEnded | TasksCounted | TasksCancelled | TasksHeld | TasksReleased | LimitChanged
)

Wish = (
    CancelRequested
    | RequeueRequested
    | Held
    | Released
    | SignalWanted
    | TasksCancelled
    | TasksHeld
    | TasksReleased
    | LimitChanged
    | Adjusted
)
"""What somebody may want."""

Event = (
    Launched | Started | RunningSince | Ended | NotStarted | CancelRequested | SignalWanted | SignalSent
    | Noticed | TimeLimitReached | GraceBegan | Held | Released | Eligible | Unmet | ArrayEvent
    | RequeueRequested | Again | Adjusted
)  # fmt: skip
