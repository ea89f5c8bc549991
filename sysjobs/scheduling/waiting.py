"""Jobs that wait for their turn, and what keeps all of them from starting for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from sysjobs.devices import Share
from sysjobs.errors import Refused, Unavailable
from sysjobs.events import Event
from sysjobs.jobs import Job, Reason, Status
from sysjobs.payload import NewJob
from sysjobs.ports import Clock, Room
from sysjobs.scheduling import backfill, explain
from sysjobs.scheduling.backfill import Outlook, Rules
from sysjobs.scheduling.deferred import Deferred, LookUp
from sysjobs.scheduling.holdings import Holdings
from sysjobs.scheduling.pending import Pending, kind_of

STARTS_AT_ONCE = 16
"""Units asked for between two looks at the sockets: each takes PID 1 one or two milliseconds."""

MOST_DEPENDENCIES = 200_000
"""Of all jobs of a user that wait: each takes half a kilobyte of memory."""

POSTPONE = 2_000_000
"""Microseconds until a start is tried again that something other than the job kept from beginning."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Who drained the node, when (microseconds since 1970) and why."""

    user: str
    at: int
    reason: str = ""

    def why(self) -> Reason:
        """What a job waits for then."""
        by = f"{self.user}: {self.reason}" if self.reason else self.user
        return Reason("drained", f"The node was drained by {by}. No job starts before `sysjobs node resume`.")


class Waiting:
    """PENDING jobs, in the order in which they are to start, and INIT ones, which may not wait for that."""

    def __init__(self, clock: Clock, room: Room, rules: Rules) -> None:
        self.rules = rules
        # Somebody's wish that no job starts.
        self.drain: Drain | None = None
        self._clock = clock
        self._room = room
        self._jobs: dict[int, Job] = {}
        self._counts: Counter[int] = Counter()
        self._pending = Pending()
        self._deferred = Deferred()
        # How many other jobs those of each user name that they come after.
        self._dependencies: Counter[int] = Counter()
        # What keeps all of them from starting for a while.
        self.obstacle: Reason | None = None
        self._again_at = 0
        # What was seen of the queue as it is, and the version of the holdings that was of.
        self._seen: tuple[int, Outlook] | None = None

    def __len__(self) -> int:
        return len(self._jobs) + len(self._deferred)

    def clear(self) -> None:
        self._jobs.clear()
        self._counts.clear()
        self._pending = Pending()
        self._deferred = Deferred()
        self._dependencies.clear()
        self._seen = None

    def put(self, job: Job) -> None:
        """Where its status says: one that has come, or has changed."""
        known = self._jobs.get(job.id) or self._deferred.get(job.id)
        self._dependencies[job.uid] += len(job.conditions.dependencies)
        if known is not None:
            self._dependencies[job.uid] -= len(known.conditions.dependencies)
        if job.status is Status.INIT:
            self._discard_pending(job)
            self._deferred.put(job)
            return
        self._deferred.discard(job.id)
        if (stood := self._jobs.get(job.id)) is not None and kind_of(stood) != kind_of(job):
            # It has another place by now.
            self._pending.remove(job.id)
        self._counts[job.uid] += stood is None
        self._jobs[job.id] = job
        if job.array is None or job.array.startable:
            self._pending.add(job)
        else:
            self._pending.remove(job.id)
        self._seen = None

    def discard(self, job: Job) -> None:
        if (known := self._jobs.get(job.id) or self._deferred.get(job.id)) is not None:
            self._dependencies[job.uid] -= len(known.conditions.dependencies)
        self._discard_pending(job)
        self._deferred.discard(job.id)

    def _discard_pending(self, job: Job) -> None:
        if self._jobs.pop(job.id, None) is not None:
            self._counts[job.uid] -= 1
        self._pending.remove(job.id)
        self._seen = None

    def changed(self, job: Job) -> None:
        """A job has another status, which others may wait for."""
        self._deferred.changed(job.key)

    def given_up(self, job: Job) -> None:
        """Some tasks of an array won't have a turn, which others may wait for."""
        self._deferred.given_up(job.id)

    def verdicts(self, look_up: LookUp) -> Iterator[tuple[Job, Event]]:
        """Deferred jobs that something is to become of now."""
        return self._deferred.verdicts(self._clock.now(), look_up, keep=self.rules.keep_unmet)

    def admit(self, new: NewJob, holdings: Holdings) -> None:
        """Raise Refused for one that can't be here, Unavailable where there is no room."""
        explain.refuse_infeasible(new.amount, holdings.capacity)
        self.rules.limits.refuse_amount(new.amount)
        self.rules.limits.refuse_priority(new.priority, new.uid)
        if (short := self._room.to_submit()) is not None:
            hint = "See to that, and submit again. What was submitted before is not lost."
            raise Unavailable(short, hint, code="no-room")
        self.rules.limits.refuse_pending(self.of_user(new.uid), len(self))
        more = len(new.conditions.dependencies)
        if more and (all_of_them := self._dependencies[new.uid] + more) > MOST_DEPENDENCIES:
            raise Refused(
                f"Your waiting jobs would have {all_of_them:,} others to come after, counted for each; "
                f"{MOST_DEPENDENCIES:,} are taken.",
                "Have one job come after many, and the others after that one.",
                code="too-many",
            )

    def is_stranded(self, job: Job) -> bool:
        """Whether it is to come after what can never be, and is kept."""
        return self._deferred.is_stranded(job.id)

    def of_user(self, uid: int) -> int:
        """How many of them are this user's."""
        return self._counts[uid] + self._deferred.of_user(uid)

    def choose(self, holdings: Holdings) -> list[tuple[Job, tuple[Share, ...]]]:
        """Those that start now, and which devices each gets."""
        now = self._clock.monotonic()
        if self.rules.shares is not None:
            # After each change of what they hold the queue comes here.
            self.rules.shares.advance(now / 1_000_000, holdings.cpus_of_users())
        if now < self._again_at or self.drain is not None:
            return []
        self._again_at, self.obstacle = 0, None
        shares = backfill.choose(self._pending, holdings, self.rules, now, STARTS_AT_ONCE)
        if shares and (short := self._room.to_start()) is not None:
            self.postpone(Reason("no-room", f"{short} Jobs start once there is room."))
            return []
        chosen = [(self._jobs[job_id], got) for job_id, each in shares.items() for got in each]
        for job, _ in chosen:
            if job.array is None:
                self.discard(job)
        return chosen

    def postpone(self, obstacle: Reason) -> None:
        """Start nothing for a while, and tell whoever waits why."""
        self.obstacle = obstacle
        self._again_at = self._clock.monotonic() + POSTPONE

    def next_time(self) -> int | None:
        """When to look again though nothing has changed."""
        again = self._again_at if self._jobs and self._again_at and self.drain is None else None
        if (begin := self._deferred.next_begin()) is None:
            return again
        begins = self._clock.monotonic() + max(begin - self._clock.now(), 0)
        return begins if again is None else min(again, begins)

    def position(self, job: Job) -> tuple[int, int] | None:
        """Which one of how many that wait for their turn, by priority and number; None for another job.

        Where users have shares, those decide.
        """
        waits = job.waits and job.status is not Status.INIT
        if not waits or job.id not in self._pending or self.rules.shares is not None:
            return None
        return self._pending.position(job.id), len(self._pending)

    def why(self, job: Job, holdings: Holdings) -> Reason:
        """What one of them waits for; a task that has no id of its own yet waits for what its array does."""
        stands = self._jobs.get(job.id) or self._deferred.get(job.id) or job
        if job.hold is not None or stands.status is Status.INIT:
            one = job if job.hold is not None and stands.hold is None else stands
            return self._deferred.why(one, self._clock.now())
        if stands.array is not None and not stands.array.startable:
            return explain.why_no_task_starts(stands, stands.array)
        if self.drain is not None:
            return self.drain.why()
        if self.obstacle is not None and holdings.all.fits(job.amount):
            return self.obstacle
        now = self._clock.monotonic()
        if self._seen is None or self._seen[0] != holdings.version:
            self._seen = (holdings.version, backfill.outlook(self._pending, holdings, self.rules, now))
        return explain.why_waiting(job, self._seen[1], holdings, self.rules, now)
