"""Failed units that stay loaded for a while, so that `systemctl status` knows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

KEEP_FOR = 3600.0
"""Seconds: a machine with failed units counts as degraded."""


class KeptUnits:
    """The last `most` of them; `reset` has systemd unload one."""

    def __init__(self, most: int, reset: Callable[[str], object]) -> None:
        self.most = most
        self._reset = reset
        # Oldest first, and until when (CLOCK_MONOTONIC, seconds).
        self._until: dict[str, float] = {}

    def __contains__(self, unit: str) -> bool:
        return unit in self._until

    def __iter__(self) -> Iterator[str]:
        return iter(self._until)

    def add(self, unit: str) -> None:
        self._until[unit] = time.monotonic() + KEEP_FOR
        self.drop()

    def drop(self) -> None:
        """Those that are too old or too many."""
        while self._until:
            oldest = next(iter(self._until))
            if len(self._until) <= self.most and self._until[oldest] > time.monotonic():
                break
            self.discard(oldest)

    def discard(self, unit: str) -> None:
        """This one, if it is kept."""
        if self._until.pop(unit, None) is not None:
            self._reset(unit)
