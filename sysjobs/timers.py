"""When to look at a job again: a heap of monotonic times, with stale entries left to be ignored when due."""

from __future__ import annotations

import heapq


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []

    def at(self, when: int, job_id: int) -> None:
        """Have `job_id` come up at `when`, microseconds of CLOCK_MONOTONIC."""
        heapq.heappush(self._heap, (when, job_id))

    def next(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> list[int]:
        """The jobs whose time has come, each once."""
        found: dict[int, None] = {}
        while self._heap and self._heap[0][0] <= now:
            found[heapq.heappop(self._heap)[1]] = None
        return list(found)
