"""Jobs that wait for their turn, and what keeps all of them from starting for a while."""

from __future__ import annotations

from sysjobs import scheduler
from sysjobs.errors import Unavailable
from sysjobs.holdings import Holdings
from sysjobs.jobs import Job, Reason
from sysjobs.payload import NewJob
from sysjobs.pending import Pending
from sysjobs.ports import Clock, Room
from sysjobs.scheduler import Outlook, Rules

STARTS_AT_ONCE = 16
"""Units asked for between two looks at the sockets: each takes PID 1 one or two milliseconds."""

POSTPONE = 2_000_000
"""Microseconds until a start is tried again that something other than the job kept from beginning."""


class Waiting:
    """In the order in which they are to start."""

    def __init__(self, clock: Clock, room: Room, rules: Rules) -> None:
        self.rules = rules
        self._clock = clock
        self._room = room
        self._jobs: dict[int, Job] = {}
        self._pending = Pending()
        # What keeps all of them from starting for a while.
        self.obstacle: Reason | None = None
        self._again_at = 0
        # What was seen of the queue as it is, and the version of the holdings that was of.
        self._seen: tuple[int, Outlook] | None = None

    def __len__(self) -> int:
        return len(self._jobs)

    def clear(self) -> None:
        self._jobs.clear()
        self._pending = Pending()
        self._seen = None

    def add(self, job: Job) -> None:
        self._jobs[job.id] = job
        self._pending.add(job)
        self._seen = None

    def discard(self, job: Job) -> None:
        self._jobs.pop(job.id, None)
        self._pending.remove(job.id)
        self._seen = None

    def admit(self, new: NewJob, holdings: Holdings) -> None:
        """Raise Refused for one that can't be here, Unavailable where there is no room."""
        scheduler.refuse_infeasible(new.amount, holdings.capacity)
        self.rules.limits.refuse_amount(new.amount)
        self.rules.limits.refuse_priority(new.priority, new.uid)
        if (short := self._room.to_submit()) is not None:
            hint = "See to that, and submit again. What was submitted before is not lost."
            raise Unavailable(short, hint, code="no-room")
        self.rules.limits.refuse_pending(self._pending.of_user(new.uid), len(self._pending))

    def choose(self, holdings: Holdings) -> list[Job]:
        """Those that start now."""
        now = self._clock.monotonic()
        if now < self._again_at:
            return []
        self._again_at, self.obstacle = 0, None
        if self.rules.shares is not None:
            # After each change of what they hold the queue comes here.
            self.rules.shares.advance(now / 1_000_000, holdings.cpus_of_users())
        ids = scheduler.choose(self._pending, holdings, self.rules, now, STARTS_AT_ONCE)
        if ids and (short := self._room.to_start()) is not None:
            self.postpone(Reason("no-room", f"{short} Jobs start once there is room."))
            return []
        chosen = [self._jobs[job_id] for job_id in ids]
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
        now = self._clock.monotonic()
        if self._seen is None or self._seen[0] != holdings.version:
            self._seen = (holdings.version, scheduler.outlook(self._pending, holdings, self.rules, now))
        return scheduler.why_waiting(job, self._seen[1], holdings, self.rules, now)
