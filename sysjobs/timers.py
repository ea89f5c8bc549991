"""When to look at a job again: a heap of monotonic times, with stale entries left to be ignored when due; and
graces, whose time begins with the SIGTERM."""

from __future__ import annotations

import heapq

from sysjobs.events import GraceBegan
from sysjobs.jobs import Job

RECHECK = 1_000_000
"""Microseconds until a unit is looked at again that should be gone."""

IDLE = 10_000_000
"""Microseconds that the slices of a user without jobs stay."""


class Timers:
    """Of jobs by their ids, or of users by theirs."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []

    def at(self, when: int, key: int) -> None:
        """Have `key` come up at `when`, microseconds of CLOCK_MONOTONIC."""
        heapq.heappush(self._heap, (when, key))

    def next(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> list[int]:
        """Those whose time has come, each once."""
        found: dict[int, None] = {}
        while self._heap and self._heap[0][0] <= now:
            found[heapq.heappop(self._heap)[1]] = None
        return list(found)


class LastTimers(Timers):
    """Timers of which only the last one that was set for a key counts."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[int, int] = {}

    def at(self, when: int, key: int) -> None:
        super().at(when, key)
        self._last[key] = when

    def due(self, now: int) -> list[int]:
        found = [key for key in super().due(now) if self._last.get(key, now) <= now]
        for key in found:
            self._last.pop(key, None)
        return found


class Graces:
    """Of jobs that are still to get their SIGTERM: in microseconds, from when they get it."""

    def __init__(self) -> None:
        self._graces: dict[int, int] = {}

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._graces

    def note(self, before: Job, job: Job, now: int) -> None:
        """Take in how a job has changed now."""
        if job.kill_at is not None and (before.kill_at is None or job.id in self):
            self._graces[job.id] = job.kill_at - now

    def begin(self, job: Job, now: int) -> GraceBegan | None:
        """It gets its SIGTERM. None where the time of its SIGKILL stands: to move it costs a commit."""
        grace = self._graces.pop(job.id, 0)
        late = now + grace - (job.kill_at or 0)
        return GraceBegan(now + grace) if late > grace / 10 > 0 else None

    def discard(self, job: Job) -> None:
        self._graces.pop(job.id, None)
