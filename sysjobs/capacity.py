"""What this machine has for jobs: what psutil counts, or what the settings say, less what they reserve."""

from __future__ import annotations

import psutil

from sysjobs.config import Settings
from sysjobs.resources import Amount


def capacity(settings: Settings) -> Amount:
    cpus = settings.cpus if settings.cpus is not None else 1000 * (psutil.cpu_count() or 1)
    memory = settings.memory if settings.memory is not None else psutil.virtual_memory().total
    return Amount(max(cpus - settings.reserve_cpus, 0), max(memory - settings.reserve_memory, 0))
