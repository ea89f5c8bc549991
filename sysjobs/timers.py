"""When to look at a job again: a heap of monotonic times, with stale entries left to be ignored when due."""

from __future__ import annotations

import heapq


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
