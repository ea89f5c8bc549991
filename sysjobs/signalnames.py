"""Signals by the names that people know."""

from __future__ import annotations

import signal as signals


def signal_name(number: int) -> str:
    """15 -> 'SIGTERM'; real-time signals by their distance from SIGRTMIN."""
    try:
        return signals.Signals(number).name
    except ValueError:
        if signals.SIGRTMIN < number < signals.SIGRTMAX:
            return f"SIGRTMIN+{number - signals.SIGRTMIN}"
        return f"signal {number}"


def signal_number(name: str) -> int | None:
    """'USR1', 'SIGUSR1', 'RTMIN+3' or '10' -> its number; None for what is no signal."""
    name = name.removeprefix("SIG")
    base, _, more = name.partition("+")
    if base == "RTMIN" and more.isdecimal():
        number = signals.SIGRTMIN + int(more)
    elif name.isdecimal():
        number = int(name)
    else:
        number = getattr(signals, f"SIG{name}", 0)
    return int(number) if number in signals.valid_signals() else None
