"""Pure: the units that are followed, and what systemd's signals change in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sysjobs.engine.units import Unit, job_id_of, updated
from sysjobs.jobs import Job, Usage

UNIT = "org.freedesktop.systemd1.Unit"
SERVICE = "org.freedesktop.systemd1.Service"
UNLOADED = ""

Signal = tuple[str, str, dict[str, Any]]
"""Unit, interface, changed properties. A unit that was unloaded has the interface UNLOADED."""


@dataclass(slots=True)
class Tracked:
    """A unit that may be loaded: the job as of its launch or its last signal, and what systemd last said."""

    job: Job
    unit: Unit = field(default_factory=Unit)
    stopped: bool = False
    told: bool = False
    """It was sent our SIGTERM."""
    read_back: bool = False
    """What the kernel holds it to was looked at."""
    released: bool = False
    again: bool = False
    """Another attempt follows, which needs its name."""
    usage: Usage | None = None
    """What it used, once it has ended and that was asked."""


def take_in(tracked: Mapping[int, Tracked], signals: Iterable[Signal]) -> tuple[list[int], list[int]]:
    """Update units by signals, in order; the jobs whose unit changed, and those whose unit was unloaded.

    systemd tells each change twice, the service's properties before the unit's. Between the two the picture
    is of two moments: a unit that ends there looks as if it were still active. It isn't among the changed
    ones then, and the second half, which is on its way, brings it.
    """
    changed: dict[int, None] = {}
    unloaded: dict[int, None] = {}
    for name, interface, changes in signals:
        job_id = job_id_of(name)
        if job_id is None or (one := tracked.get(job_id)) is None:
            continue
        changed.pop(job_id, None)
        if interface == UNLOADED:
            unloaded[job_id] = None
            continue
        if one.unit.active_state == "failed":
            # All that can follow is that somebody resets it, and that isn't how it ended.
            changed[job_id] = None
            continue
        one.unit = unit = updated(one.unit, changes)
        if interface == UNIT:
            if unit.stopping and not unit.main_ended and unit.result == "success":
                one.stopped = True
            changed[job_id] = None
    return list(changed), list(unloaded)


def tell_stop(signals: Iterable[Signal], one: Tracked) -> bool:
    """Whether signals that are still to be taken in say that it was stopped, which no later look can."""
    probe = replace(one)
    take_in({one.job.id: probe}, signals)
    return probe.stopped
