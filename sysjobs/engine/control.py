"""What is asked of a unit that is there. Each call asks for an end state: where it fails, a later look at the
unit asks again."""

from __future__ import annotations

import errno
import logging
import signal
from contextlib import suppress

from sysjobs.engine.bus import Bus, CallFailed
from sysjobs.engine.signals import UNIT

log = logging.getLogger(__name__)


def terminate(bus: Bus, unit: str) -> bool:
    """SIGTERM to all its processes, thawed and continued if need be; whether that was sent.

    One that hasn't begun is stopped: a signal would find nobody, and the job begin after it.
    """
    if _has_not_begun(bus, unit):
        stop(bus, unit)
        return False
    # First, and not after the signal: systemd 257 doesn't get over a unit that ends while it is thawed.
    if _freezer_state(bus, unit) not in (b"", b"running"):
        thaw(bus, unit)
    told = kill(bus, unit, signal.SIGTERM)
    # A process that was stopped (SIGSTOP) sees SIGTERM only once it goes on.
    kill(bus, unit, signal.SIGCONT)
    return told


def kill(bus: Bus, unit: str, number: int, whom: str = "all") -> bool:
    """A signal to all its processes, or to its "main" one."""
    return _ask(bus, "KillUnit", "ssi", unit, whom, int(number))


def stop(bus: Bus, unit: str, mode: str = "replace") -> None:
    _ask(bus, "StopUnit", "ss", unit, mode)


def stop_again(bus: Bus, unit: str) -> None:
    """For one that didn't go: it ended while it was thawed, and systemd takes it for frozen."""
    if _freezer_state(bus, unit) == b"thawing":
        freeze(bus, unit)
    thaw(bus, unit)
    stop(bus, unit)


def freeze(bus: Bus, unit: str) -> None:
    _ask(bus, "FreezeUnit", "s", unit)


def thaw(bus: Bus, unit: str) -> None:
    _ask(bus, "ThawUnit", "s", unit)


def reset_failed(bus: Bus, unit: str) -> None:
    """Have a failed unit go."""
    _ask(bus, "ResetFailedUnit", "s", unit)


def _has_not_begun(bus: Bus, unit: str) -> bool:
    """Whether systemd hasn't come to its start yet: jobs of its own have their order."""
    with suppress(CallFailed):
        return bool(bus.get(unit, UNIT, "ActiveState", "s") == b"inactive")
    return False


def _freezer_state(bus: Bus, unit: str) -> bytes:
    try:
        return bytes(bus.get(unit, UNIT, "FreezerState", "s"))
    except CallFailed as error:
        log.warning("%s: its freezer can't be read: %s", unit, error)
        return b""


def _ask(bus: Bus, method: str, signature: str, unit: str, *values: object) -> bool:
    try:
        bus.call(method, signature, unit, *values)
    except CallFailed as error:
        if error.number != -errno.ENOENT:
            log.info("%s %s: %s", method, unit, error)
        return False
    return True
