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
