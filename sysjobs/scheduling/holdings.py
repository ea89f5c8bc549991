"""What jobs hold of the node: its resources, and places in the slices that keep starts cheap."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from sysjobs.jobs import Job
from sysjobs.resources import Total
from sysjobs.scheduling.pool import Capacity, Grant, all_of
from sysjobs.scheduling.weights import Weights

SHARD_SIZE = 100
"""Units in one slice. PID 1 takes longer for a start the more there are: 2.3 ms at 0, 3.8 at 1,000."""


_NOTHING = (0, Total())


@dataclass(slots=True)
class Remains:
    """What an ended job still has: whether its unit was let go, and when its last processes are killed."""

    releasing: bool = False
    kill_at: int | None = None


class Holdings:
    """Who holds what. Giving back twice, or what was never taken, changes nothing."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.all = all_of(capacity)
        """What would be free if nobody held anything."""
        self.free = self.all
        self.version = 0
        """Another one after each change."""
        self._held: dict[int, Grant] = {}
        # When each ends at the latest, where that is known, and the same in order.
        self._end_of: dict[int, int] = {}
        self._ends: list[tuple[int, int]] = []
        self._of_user: dict[int, tuple[int, Total]] = {}
        # How many units, by user and shard.
        self._shards: defaultdict[int, Counter[int]] = defaultdict(Counter)

        self.weights = Weights()

    def __len__(self) -> int:
        return len(self._held)

    def resize(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.free = self.all = all_of(capacity)
        for grant in self._held.values():
            self.free = self.free.take(grant)
        self.version += 1

    def devices(self) -> set[str]:
        """The names of those that jobs have something of."""
        return {share.device for grant in self._held.values() for share in grant.shares}

    def place(self, uid: int) -> int:
        """The user's first shard that isn't full."""
        counts = self._shards.get(uid, Counter())
        return next(shard for shard in itertools.count() if counts[shard] < SHARD_SIZE)

    def take(self, job: Job) -> None:
        """Let a job that has its shard hold what it asked for."""
        assert job.shard is not None
        if job.id in self._held:
            return
        grant = self._held[job.id] = Grant(job.amount, job.shares)
        self.free = self.free.take(grant)
        running, has = self.of_user(job.uid)
        self._of_user[job.uid] = (running + 1, has.plus(job.amount))
        self._shards[job.uid][job.shard] += 1
        self.weights.add(job.uid, job.shard, job.amount.cpus)
        self.note_end(job)

    def note_end(self, job: Job) -> None:
        """Take in when a job that holds something ends at the latest."""
        if job.id not in self._held:
            return
        self._drop_end(job.id)
        if (end := job.ends_by) is not None:
            self._end_of[job.id] = end
            insort(self._ends, (end, job.id))

    def _drop_end(self, job_id: int) -> None:
        self.version += 1
        if (known := self._end_of.pop(job_id, None)) is not None:
            del self._ends[bisect_left(self._ends, (known, job_id))]

    def ends(self) -> Iterator[tuple[int, Grant]]:
        """When something is given back at the latest, in order of that, and what."""
        return ((at, self._held[job_id]) for at, job_id in self._ends)

    def of_user(self, uid: int) -> tuple[int, Total]:
        """How many of the user's jobs hold something, and how much that is."""
        return self._of_user.get(uid, _NOTHING)

    def cpus_of_users(self) -> dict[int, int]:
        """How many thousandths of a CPU the jobs of each user hold."""
        return {uid: has.cpus for uid, (_, has) in self._of_user.items()}

    def give_back(self, job: Job) -> None:
        if job.id not in self._held:
            return
        assert job.shard is not None
        self._drop_end(job.id)
        grant = self._held.pop(job.id)
        self.free = self.free.give(grant)
        running, has = self._of_user.pop(job.uid)
        self._shards[job.uid][job.shard] -= 1
        self.weights.remove(job.uid, job.shard, job.amount.cpus)
        if running > 1:
            self._of_user[job.uid] = (running - 1, has.minus(grant.amount))
        else:
            del self._shards[job.uid]

    def holds(self, uid: int) -> bool:
        """Whether any job of the user holds something."""
        return uid in self._of_user
