"""Waiting for a condition that no event tells of: the one place of the tests where time is let pass."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout: float = 30) -> None:
    """Return once the condition holds; fail if it doesn't within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {condition}"
        time.sleep(0.005)
