"""Jobs that wait for their turn, and what keeps all of them from starting for a while."""

from __future__ import annotations

from collections.abc import Iterator

from sysjobs import scheduler
from sysjobs.errors import Unavailable
from sysjobs.holdings import Holdings
from sysjobs.jobs import Job, Reason
from sysjobs.pending import Pending
from sysjobs.ports import Clock, Room
from sysjobs.resources import Amount

STARTS_AT_ONCE = 16
"""Units asked for between two looks at the sockets: each takes PID 1 one or two milliseconds."""

POSTPONE = 2_000_000
"""Microseconds until a start is tried again that something other than the job kept from beginning."""


class Waiting:
    """In the order in which they were submitted."""

    def __init__(self, clock: Clock, room: Room) -> None:
        self._clock = clock
        self._room = room
        self._jobs: dict[int, Job] = {}
        self._pending = Pending()
        # What keeps all of them from starting for a while.
        self.obstacle: Reason | None = None
        self._again_at = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def clear(self) -> None:
        self._jobs.clear()
        self._pending = Pending()

    def add(self, job: Job) -> None:
        self._jobs[job.id] = job
        self._pending.add(job)

    def put_back(self, job: Job) -> None:
        """One that was chosen and could not be started, to where it stood."""
        self._jobs[job.id] = job
        self._pending.add_first(job)

    def discard(self, job: Job) -> None:
        self._jobs.pop(job.id, None)
        self._pending.remove(job.id)

    def refuse_beyond(self, most: int, uid: int) -> None:
        self._pending.refuse_beyond(most, uid)

    def admit(self, amount: Amount, holdings: Holdings) -> None:
        """Raise Refused for a new job that can never start here, Unavailable where there is no room."""
        scheduler.refuse_infeasible(amount, holdings.capacity)
        if (short := self._room.to_submit()) is not None:
            hint = "See to that, and submit again. What was submitted before is not lost."
            raise Unavailable(short, hint, code="no-room")

    def choose(self, holdings: Holdings) -> list[Job]:
        """Those that start now."""
        if self._clock.monotonic() < self._again_at:
            return []
        self._again_at, self.obstacle = 0, None
        chosen = scheduler.choose(self._in_order(), holdings.free, holdings.capacity, STARTS_AT_ONCE)
        if chosen and (short := self._room.to_start()) is not None:
            self.postpone(Reason("no-room", f"{short} Jobs start once there is room."))
            return []
        for job in chosen:
            self.discard(job)
        return chosen

    def postpone(self, obstacle: Reason) -> None:
        """Start nothing for a while, and tell whoever waits why."""
        self.obstacle = obstacle
        self._again_at = self._clock.monotonic() + POSTPONE

    def next_time(self) -> int | None:
        """When to choose again though nothing has changed."""
        return self._again_at if self._jobs and self._again_at else None

    def why(self, job: Job, holdings: Holdings) -> Reason:
        """What one of them waits for."""
        if self.obstacle is not None and job.amount.fits(holdings.capacity):
            return self.obstacle
        head = next(self._feasible(holdings), job)
        return Reason("resources", scheduler.why_waiting(job, head, holdings.free, holdings.capacity))

    def _feasible(self, holdings: Holdings) -> Iterator[Job]:
        return (job for job in self._in_order() if job.amount.fits(holdings.capacity))

    def _in_order(self) -> Iterator[Job]:
        return map(self._jobs.__getitem__, self._pending)
