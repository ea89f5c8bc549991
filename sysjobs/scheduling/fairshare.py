"""Pure: how much of the node's CPUs each user has had lately, so that those who had less can go first.

What was had counts half after each half-life h. Of u, and of r CPUs that are held meanwhile, there is after a
time t: u·2^(-t/h) + r·h/ln 2·(1 - 2^(-t/h)).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log

AHEAD = 60.0
"""Seconds for which what a user holds, or is about to, is counted beforehand: else who comes first would have
all that is free at a moment."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a user had: thousandths of a CPU, from `since` to `until`, in seconds of any one clock."""

    uid: int
    cpus: int
    since: float
    until: float


class FairShares:
    """In thousandths of a CPU times seconds. `half_life`: in seconds."""

    def __init__(self, half_life: float) -> None:
        self._half_life = half_life
        self._had: dict[int, float] = {}
        self._holds: Mapping[int, int] = {}
        self._at: float | None = None

    def recall(self, uses: Iterable[Use], now: float) -> None:
        """Count what was had before anybody counted."""
        for use in uses:
            # The clock may have been set back since, or in between.
            until = min(use.until, now)
            began, ended = (self._left(now - when) for when in (min(use.since, until), until))
            self._add(use.uid, use.cpus * (ended - began))

    def advance(self, now: float, holds: Mapping[int, int]) -> None:
        """It is `now`; from now on users hold so many thousandths of a CPU."""
        passed = 0.0 if self._at is None else max(now - self._at, 0.0)
        if passed:
            left = self._left(passed)
            self._had = {uid: had * left for uid, had in self._had.items() if had * left >= 1.0}
            for uid, cpus in self._holds.items():
                self._add(uid, cpus * (1.0 - left))
        self._at = now
        self._holds = dict(holds)

    def of(self, uid: int, chosen: int = 0) -> float:
        """What a user had, with what it holds and `chosen` thousandths of a CPU more."""
        return self._had.get(uid, 0.0) + (self._holds.get(uid, 0) + chosen) * AHEAD

    def _left(self, passed: float) -> float:
        """How much counts of what was had at one moment so many seconds ago."""
        return float(2.0 ** (-passed / self._half_life))

    def _add(self, uid: int, rate: float) -> None:
        self._had[uid] = self._had.get(uid, 0.0) + rate * self._half_life / log(2)
