"""Signals by their names."""

from __future__ import annotations

import pytest

from sysjobs.signalnames import signal_name

NAMES = [
    (9, "SIGKILL"),
    (15, "SIGTERM"),
    (34, "SIGRTMIN"),
    (40, "SIGRTMIN+6"),
    (64, "SIGRTMAX"),
    (99, "signal 99"),
]


@pytest.mark.parametrize(("number", "name"), NAMES)
def test_signal_name(number: int, name: str) -> None:
    assert signal_name(number) == name
