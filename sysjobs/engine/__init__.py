"""What the queue asks of an engine: the thing that runs jobs. systemd's is `engine.systemd`.

Nothing here imports anything of an engine, so that another one (a cluster's) fits in without the queue
changing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from sysjobs.devices import Access
from sysjobs.jobs import Job, Outcome, Reason
from sysjobs.payload import Payload


@dataclass(frozen=True, slots=True)
class Observation:
    """What an engine knows of one job at one moment.

    `begun` is False where nothing of the attempt was ever executed. `outcome` and `ended_at` are there once
    it has ended, though processes of it may be left: `empty` says that none is. `held` means that the engine
    still has something of it, to be released.
    """

    job_id: int
    begun: bool = True
    held: bool = True
    empty: bool = False
    invocation_id: str | None = None
    running_at: int | None = None
    ended_at: int | None = None
    ended_monotonic: int | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Swept:
    """Ids of jobs that are gone: those that something was removed of, and those that something is left of."""

    removed: tuple[int, ...] = ()
    left: tuple[int, ...] = ()


class StartResult(Enum):
    STARTED = "started"
    EXISTS = "exists"
    """The unit is there from an earlier call: it is to be observed."""


class StartFailed(Exception):
    """The unit can't be started; the job ends with this reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason


class StartPostponed(Exception):
    """It can't be started now, for a reason that passes and isn't the job's; nothing of it ever began."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason


class ConnectionLost(Exception):
    """The engine can't be reached, or didn't answer: the fate of the last call is unknown.

    `connect()` and a reconciliation follow.
    """


@dataclass(frozen=True, slots=True)
class Boot:
    """This boot of the machine, and what is known of those before it."""

    id: str
    began: int = 0
    """Microseconds since 1970; known once connected."""
    shut_down: str = ""
    """The id of the last one that is known to have been shut down. Any other may have been cut off."""


class Answer(Protocol):
    """What becomes readable when the engine answers."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...


class Engine(Protocol):
    boot: Boot

    access: Access
    """How jobs get at devices."""

    @property
    def controllers(self) -> Container[str]:
        """What the kernel can hold jobs to ("memory", "cpu", ...), once connected."""

    def knock(self) -> Answer:
        """Ask whether there is somebody to connect to, and don't wait for it. Raises ConnectionLost."""

    def connect(self) -> None:
        """Open the connection that events come by. Raises ConnectionLost."""

    def close(self) -> None: ...

    def fileno(self) -> int:
        """Readable when `events()` has something to say; the same over reconnections."""

    @property
    def has_events(self) -> bool:
        """Whether `events()` has something to say that the descriptor doesn't show."""

    def start(self, job: Job, payload: Payload) -> StartResult:
        """Ask for the job's unit, once: a second call for the same attempt changes nothing.

        Raises StartFailed, StartPostponed.
        """

    def terminate(self, job: Job) -> None:
        """SIGTERM to all processes of the job, thawed and continued if need be."""

    def kill(self, job: Job) -> None:
        """SIGKILL to all processes of the job."""

    def signal(self, job: Job, number: int, *, everybody: bool = False) -> None:
        """A signal to the main process of the job, or to all of its processes."""

    def weigh(self, cpus: Mapping[tuple[int, int | None], int]) -> None:
        """Have what a user's jobs in a shard, or all of them, share with others be worth so many CPUs."""

    def not_held(self, job: Job) -> list[str]:
        """What a job that runs is not really held to, in sentences."""

    def freeze(self, job: Job) -> None: ...

    def thaw(self, job: Job) -> None: ...

    def release(self, job: Job) -> Observation | None:
        """Let go of the unit of a job that has ended, along with what is left running in it.

        What there is to see of it then, where no event will tell.
        """

    def users(self) -> list[int]:
        """Those whose units share something, or did."""

    def tidy(self, uid: int) -> None:
        """Remove what units of this user shared, as none of its jobs is left."""

    def await_empty(self, job: Job) -> None:
        """Have `events()` tell when no process of this job is left."""

    def clean(self, job: Job) -> None:
        """Remove what was made for the job's start. Its logs stay."""

    def sweep(self, jobs: Container[int]) -> Swept:
        """Clean up after all jobs but these, and but those that it still holds something of."""

    def note_shutdown(self) -> None:
        """Leave word for the next boot if this one is being ended. Raises ConnectionLost."""

    def events(self) -> Iterator[Observation]:
        """What happened since the last call. Raises ConnectionLost."""

    def observe(self, job: Job) -> Observation:
        """Read everything about one job's unit."""

    def observe_all(self, jobs: Iterable[Job]) -> list[Observation]:
        """The same for each of these jobs and for every other one that the engine still holds."""
