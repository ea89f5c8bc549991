"""Users take turns: what one asks for a thousand times holds up nobody else."""

from __future__ import annotations

import asyncio
import time

import pytest

from sysjobs.turns import SLICE, Turns


def test_everybody_has_a_turn() -> None:
    done: list[str] = []

    def work(name: str) -> None:
        done.append(name)
        # Longer than a turn.
        until = time.monotonic() + 2 * SLICE
        while time.monotonic() < until:
            pass

    async def go() -> None:
        turns = Turns()
        for number in range(5):
            turns.add(1000, lambda number=number: work(f"alice {number}"))  # type: ignore[misc]
        turns.add(1001, lambda: work("bob"))
        while len(done) < 6:
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)

    asyncio.run(go())
    assert done == ["alice 0", "bob", "alice 1", "alice 2", "alice 3", "alice 4"]


def test_what_takes_no_time_is_done_at_once() -> None:
    """So that it shares a commit."""
    done: list[int] = []
    rounds = []

    async def go() -> None:
        turns = Turns()
        for number in range(100):
            turns.add(1000, lambda number=number: done.append(number))  # type: ignore[misc]
        while len(done) < 100:
            rounds.append(len(done))
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)

    asyncio.run(go())
    assert done == list(range(100))
    assert len(rounds) < 50


def test_work_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    async def go() -> None:
        turns = Turns()
        turns.add(1000, lambda: done.append(1 // 0))
        turns.add(1000, lambda: turns.add(1000, lambda: done.append(2)))
        while not done:
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)

    asyncio.run(go())
    assert done == [2]
    assert "a request failed" in caplog.text
