"""What systemd's signals change in the units that are followed, however they are cut into batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.engine.signals import SERVICE, UNIT, UNLOADED, Signal, Tracked, take_in, tell_stop
from sysjobs.engine.units import Unit
from sysjobs.jobs import Status
from tests.models import queued

NAME = "sysjobs-42.service"
STARTING: list[Signal] = [
    (NAME, SERVICE, {"ExecMainStartTimestamp": 5, "ExecMainCode": 0}),
    (NAME, UNIT, {"ActiveState": b"active", "SubState": b"running", "InvocationID": [1] * 16}),
]
ENDING: list[Signal] = [
    (NAME, SERVICE, {"ExecMainCode": 1, "ExecMainStatus": 1, "Result": b"exit-code"}),
    (NAME, UNIT, {"ActiveState": b"failed", "SubState": b"failed"}),
]
STOPPING: list[Signal] = [
    (NAME, SERVICE, {"ExecMainCode": 0, "Result": b"success"}),
    (NAME, UNIT, {"ActiveState": b"deactivating"}),
]
RESET: list[Signal] = [
    (NAME, SERVICE, {"ExecMainCode": 1, "ExecMainStatus": 1, "Result": b"success"}),
    (NAME, UNIT, {"ActiveState": b"inactive", "SubState": b"dead"}),
]
REMOVED: Signal = (NAME, UNLOADED, {})

CASES: list[tuple[str, list[Signal], list[int], list[int]]] = [
    ("nothing", [], [], []),
    ("a whole change", STARTING, [42], []),
    ("two whole changes", STARTING + ENDING, [42], []),
    ("half of a change", STARTING[:1], [], []),
    ("a change and half of the next", STARTING + ENDING[:1], [], []),
    ("the other half", ENDING[1:], [42], []),
    ("an end and that it was unloaded", [*ENDING, REMOVED], [], [42]),
    ("unloaded and loaded again, as a reload does it", [REMOVED, *STARTING], [42], [42]),
    ("another job's", [("sysjobs-43.service", UNIT, {"ActiveState": b"failed"})], [], []),
    ("another unit's", [("sysjobsd.service", UNIT, {"ActiveState": b"failed"})], [], []),
]


def followed() -> dict[int, Tracked]:
    return {42: Tracked(queued(Status.RUNNING))}


@pytest.mark.parametrize(
    ("signals", "changed", "unloaded"), [row[1:] for row in CASES], ids=[row[0] for row in CASES]
)
def test_take_in(signals: list[Signal], changed: list[int], unloaded: list[int]) -> None:
    assert take_in(followed(), signals) == (changed, unloaded)


@given(st.integers(0, 4))
def test_wherever_a_batch_ends(cut: int) -> None:
    """What is called changed never shows the end of a process in a unit that is still said to be active."""
    tracked = followed()
    signals = STARTING + ENDING
    for batch in (signals[:cut], signals[cut:]):
        changed, _ = take_in(tracked, batch)
        if changed and tracked[42].unit.main_ended:
            assert tracked[42].unit.active_state == "failed"
    assert changed == ([42] if cut < 4 else [])
    assert tracked[42].unit == Unit("failed", "failed", "exit-code", "01" * 16, 1, 1, main_started_at=5)


@pytest.mark.parametrize("cut", [4, 5])
def test_a_reset_is_not_how_a_unit_ended(cut: int) -> None:
    tracked = followed()
    signals = STARTING + ENDING + RESET
    for batch in (signals[:cut], signals[cut:]):
        take_in(tracked, batch)
    assert tracked[42].unit == Unit("failed", "failed", "exit-code", "01" * 16, 1, 1, main_started_at=5)


@pytest.mark.parametrize(
    ("signals", "stopped"), [(STARTING, False), (STARTING + STOPPING, True), (ENDING + STOPPING[1:], False)]
)
def test_stopped_by_somebody(signals: list[Signal], stopped: bool) -> None:
    tracked = followed()
    assert tell_stop(signals, tracked[42]) is stopped
    assert tracked == followed()
    take_in(tracked, signals)
    assert tracked[42].stopped is stopped
    assert tell_stop([], tracked[42]) is stopped
