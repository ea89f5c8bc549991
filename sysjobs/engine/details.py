"""What systemd tells of a unit only if it is asked: its signals don't carry it."""

from __future__ import annotations

from sysjobs.engine.bus import Bus
from sysjobs.engine.signals import SERVICE
from sysjobs.engine.units import Unit, updated


def completed(bus: Bus, name: str, unit: Unit, *, has_setup: bool) -> Unit:
    """The unit, which has ended, with all that its outcome is decided by."""
    if has_setup and not unit.main_ended and unit.setup_code == 0:
        # How ExecStartPre ended.
        unit = updated(unit, {"ExecStartPre": bus.get(name, SERVICE, "ExecStartPre", "a(sasbttttuii)")})
    if unit.signalled and unit.log_level is None:
        # As it was made, whatever is set by now.
        unit = updated(unit, {"LogLevelMax": bus.get(name, SERVICE, "LogLevelMax", "i")})
    return unit
