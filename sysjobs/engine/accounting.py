"""What a unit used, as systemd counts it: to be read once its job has ended, and before it is let go."""

from __future__ import annotations

from collections.abc import Container

from sysjobs.engine.bus import Bus, CallFailed
from sysjobs.engine.signals import SERVICE, Tracked
from sysjobs.engine.units import INFINITY
from sysjobs.jobs import Usage


class Accounting:
    """Over one connection, on a node whose kernel has these controllers."""

    def __init__(self, bus: Bus, controllers: Container[str]) -> None:
        self._bus = bus
        # MemoryPeak came with systemd 255.
        self._memory = "memory" in controllers and self._knows("MemoryPeak")
        self._disks = "io" in controllers

    def usage(self, tracked: Tracked) -> Usage:
        """Asked once of a unit that has ended, and never again: each counter is a call."""
        if tracked.usage is None and tracked.unit.active_state != "inactive":
            unit = tracked.job.unit
            cpu = self._count(unit, "CPUUsageNSec")
            tracked.usage = Usage(
                cpu_time=None if cpu is None else cpu // 1000,
                peak_memory=self._count(unit, "MemoryPeak") if self._memory else None,
                read=self._count(unit, "IOReadBytes") if self._disks else None,
                written=self._count(unit, "IOWriteBytes") if self._disks else None,
            )
        return tracked.usage or Usage()

    def _count(self, unit: str, name: str) -> int | None:
        count: int = self._bus.get(unit, SERVICE, name, "t")
        return None if count == INFINITY else count

    def _knows(self, name: str) -> bool:
        """Whether services have this property, which came with some version of systemd."""
        try:
            self._bus.get("sysjobs-0.service", SERVICE, name, "t")
        except CallFailed:
            return False
        return True
