"""What the kernel of this node can hold jobs to, and whether it does: read from the files of cgroups."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sysjobs.engine.bus import Bus, CallFailed
from sysjobs.engine.units import TASKS_MAX, cores_of, slice_name, user_slice
from sysjobs.jobs import Job, Reason
from sysjobs.resources import format_cpus, format_memory

log = logging.getLogger(__name__)

MAX_WEIGHT = 10_000
"""What systemd takes as CPUWeight= at most."""

CPU_WEIGHT = 100
"""What a CPU weighs, unless there are so many that all together would be too much."""

_NONE, _MISSING = "max", "missing"
"""What a limit is that is none, and one whose file isn't there, for want of its controller."""

NO_DEVICE = "no-device"


class Enforcement:
    """For jobs on a node whose kernel has these controllers, with so many CPUs."""

    def __init__(self, controllers: Sequence[str] = (), cpus: int = 1) -> None:
        self.controllers = controllers
        # All of its CPUs together must not weigh more than one slice can.
        self._per_cpu = max(1, min(CPU_WEIGHT, MAX_WEIGHT // cpus))

    def weight(self, cpus: int) -> int:
        """What so many thousandths of a CPU weigh."""
        return max(1, min(MAX_WEIGHT, cpus * self._per_cpu // 1000))

    def weigh(self, bus: Bus, cpus: Mapping[tuple[int, int | None], int]) -> None:
        """Give the slices of a user and a shard, or of all of a user's, the weight of so many CPUs."""
        for (uid, shard), each in cpus.items() if "cpu" in self.controllers else ():
            name = user_slice(uid) if shard is None else slice_name(uid, shard)
            try:
                bus.set_property(name, ("CPUWeight", "t", self.weight(each)))
            except CallFailed as error:
                log.info("%s: its weight can't be set: %s", name, error)

    def not_held(self, job: Job, path: str) -> list[str]:
        """Where the kernel holds the cgroup at `path` to something else than was asked for, in sentences.

        Nothing about controllers that the node hasn't got, or of a job that has ended.
        """
        found = [*self._not_held(job, path)]
        return found if Path(path).exists() else []

    def _not_held(self, job: Job, path: str) -> Iterator[str]:
        if "memory" in self.controllers and job.amount.memory:
            limit = _read(path, "memory.max")
            if _is_more(limit, job.amount.memory):
                yield f"It isn't held to {format_memory(job.amount.memory)} of memory: memory.max is {limit}."
            if (swap := _read(path, "memory.swap.max")) not in ("0", _MISSING):
                yield f"It may have swap space besides its memory: memory.swap.max is {swap}."
        if "cpu" in self.controllers:
            if job.hard_cpus and _is_more(_thousandths(quota := _read(path, "cpu.max")), job.amount.cpus):
                yield f"It isn't held to {format_cpus(job.amount.cpus)} CPUs: cpu.max is {quota}."
            weight = str(self.weight(job.amount.cpus))
            if (found := _read(path, "cpu.weight")) != weight:
                yield f"Its CPUs weigh otherwise than those of others: cpu.weight is {found}, not {weight}."
        cores = cores_of(job) if "cpuset" in self.controllers else set()
        if cores and _numbers(found := _read(path, "cpuset.cpus")) != cores:
            yield f"It isn't kept to CPUs {', '.join(map(str, sorted(cores)))}: cpuset.cpus is {found}."
        if "pids" in self.controllers and _is_more(tasks := _read(path, "pids.max"), TASKS_MAX):
            yield f"It isn't held to {TASKS_MAX} tasks: pids.max is {tasks}."


def missing(allowed: Sequence[str] | None) -> str | None:
    """The first node that a job may open and that isn't there."""
    nodes = (each for each in allowed or () if each.startswith("/"))
    return next((node for node in nodes if not Path(node).exists()), None)


def no_device(name: str) -> Reason:
    """Why a job that was given a device doesn't start."""
    return Reason(NO_DEVICE, f"{name} has vanished; it is tried again with another device.")


def _numbers(ranges: str) -> set[int]:
    """'0-2,5' -> 0, 1, 2, 5."""
    found: set[int] = set()
    for part in ranges.split(",") if ranges not in ("", _MISSING) else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _is_more(found: str, asked: int) -> bool:
    return found in (_NONE, _MISSING) or int(found) > asked


def _thousandths(quota: str) -> str:
    """'50000 100000' (microseconds in each period of so many) -> '500', thousandths of a CPU."""
    if quota == _MISSING or quota.startswith(_NONE):
        return _NONE
    used, period = quota.split()
    return str(1000 * int(used) // int(period))


def _read(path: str, name: str) -> str:
    """What the file says, or that there is none."""
    try:
        with open(f"{path}/{name}", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return _MISSING
