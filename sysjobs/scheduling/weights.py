"""What slices are worth: the CPUs of their jobs together.

The kernel compares siblings alone, jobs in their slice and slices with each other. So that a CPU weighs the
same everywhere, each slice has to weigh as much as what is in it. That changes with each start and end, and
is told to the engine a little later, once for many.
"""

from __future__ import annotations

from collections import Counter

Slice = tuple[int, int | None]
"""A user, and the shard; None: all of the user's."""

DELAY = 1_000_000
"""Microseconds that a change may wait for others."""


class Weights:
    def __init__(self) -> None:
        self._cpus: Counter[Slice] = Counter()
        self._jobs: Counter[Slice] = Counter()
        self._changed: set[Slice] = set()
        self._at: int | None = None

    def add(self, uid: int, shard: int, cpus: int) -> None:
        self._count(uid, shard, cpus, 1)

    def remove(self, uid: int, shard: int, cpus: int) -> None:
        self._count(uid, shard, -cpus, -1)

    def _count(self, uid: int, shard: int, cpus: int, jobs: int) -> None:
        for each in ((uid, shard), (uid, None)):
            self._cpus[each] += cpus
            self._jobs[each] += jobs
            if self._jobs[each]:
                self._changed.add(each)
            else:
                # An empty slice goes.
                del self._cpus[each], self._jobs[each]
                self._changed.discard(each)

    def next(self, now: int) -> int | None:
        """When something is due, in microseconds of CLOCK_MONOTONIC."""
        if not self._changed:
            self._at = None
        elif self._at is None:
            self._at = now + DELAY
        return self._at

    def due(self, now: int) -> dict[Slice, int]:
        """What has changed, in thousandths of a CPU, once it has waited long enough."""
        at = self.next(now)
        if at is None or at > now:
            return {}
        changed, self._changed, self._at = self._changed, set(), None
        return {each: self._cpus[each] for each in changed}
