"""What this machine has for jobs: what psutil counts, or what the settings say, less what they reserve."""

from __future__ import annotations

import psutil

from sysjobs.config import Settings
from sysjobs.errors import ConfigError
from sysjobs.resources import Amount, describe


def capacity(settings: Settings) -> Amount:
    """What jobs may have together. Raises ConfigError where that is nothing."""
    cpus = settings.cpus if settings.cpus is not None else 1000 * (psutil.cpu_count() or 1)
    memory = settings.memory if settings.memory is not None else psutil.virtual_memory().total
    left = Amount(cpus - settings.reserve_cpus, memory - settings.reserve_memory)
    if left.cpus <= 0 or left.memory <= 0:
        raise ConfigError(
            f"The settings leave nothing for jobs: of {describe(Amount(cpus, memory))} they reserve "
            f"{describe(Amount(settings.reserve_cpus, settings.reserve_memory))}.",
            "Reserve less.",
        )
    return left
