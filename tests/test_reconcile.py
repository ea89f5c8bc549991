"""What must have happened to a job, from what the queue believes and an engine sees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sysjobs.engine import Boot, Observation
from sysjobs.events import Ended, Event, NotStarted, RunningSince, Started
from sysjobs.jobs import (
    CUT_OFF,
    CUT_OFF_AT_START,
    REBOOTED,
    REBOOTED_AT_START,
    Exit,
    Job,
    Outcome,
    Reason,
    Status,
)
from sysjobs.reconcile import events_of, lost_to_reboot
from sysjobs.transition import transition
from tests.models import BOOT, INVOCATION, NOW, queued

DONE = Outcome(Status.SUCCEEDED, None, Exit(0))
JUST_LAUNCHED = queued(Status.RUNNING)
SETTING_UP = queued(Status.SETTING_UP)
RUNNING = replace(JUST_LAUNCHED, invocation_id=INVOCATION, running_at=NOW + 3)
SEEN = Observation(42, invocation_id=INVOCATION)

STARTED, SINCE, ENDED = Started(INVOCATION), RunningSince(NOW + 3), Ended(NOW + 9, DONE)
CASES: list[tuple[str, Job, Observation, list[Event]]] = [
    ("waits", queued(), Observation(42, begun=False, held=False), []),
    ("is over", queued(Status.FAILED), replace(SEEN, outcome=DONE), []),
    ("asked for, nothing yet", JUST_LAUNCHED, Observation(42, begun=False), []),
    ("asked for, nothing there", JUST_LAUNCHED, Observation(42, begun=False, held=False), [NotStarted()]),
    ("setup began", SETTING_UP, SEEN, [STARTED]),
    ("run began", JUST_LAUNCHED, replace(SEEN, running_at=NOW + 3), [STARTED, SINCE]),
    ("runs on", RUNNING, replace(SEEN, running_at=NOW + 3), []),
    ("ended", RUNNING, replace(SEEN, running_at=NOW + 3, ended_at=NOW + 9, outcome=DONE), [ENDED]),
    (
        "began and ended while nobody looked",
        SETTING_UP,
        replace(SEEN, running_at=NOW + 3, ended_at=NOW + 9, outcome=DONE),
        [STARTED, SINCE, ENDED],
    ),
    ("failed in setup", SETTING_UP, replace(SEEN, ended_at=NOW + 9, outcome=DONE), [STARTED, ENDED]),
    ("vanished", RUNNING, Observation(42, held=False, outcome=DONE), [Ended(NOW + 50, DONE)]),
    (
        "ended, and nothing of it began",
        JUST_LAUNCHED,
        Observation(42, begun=False, held=False, outcome=DONE),
        [Ended(NOW + 50, DONE)],
    ),
    ("became empty", RUNNING, Observation(42, empty=True), []),
]


@pytest.mark.parametrize(("job", "seen", "events"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_events(job: Job, seen: Observation, events: list[Event]) -> None:
    assert events_of(job, seen, NOW + 50) == events


@pytest.mark.parametrize(("job", "seen"), [case[1:3] for case in CASES], ids=[case[0] for case in CASES])
def test_a_second_look_finds_nothing_new(job: Job, seen: Observation) -> None:
    for event in events_of(job, seen, NOW + 50):
        job = transition(job, event)
    assert events_of(job, seen, NOW + 60) == []


REBOOTS = [
    ("waits", queued(), Boot("other"), None),
    ("is over", queued(Status.FAILED, boot_id=BOOT), Boot("other"), None),
    ("this boot", RUNNING, Boot(BOOT), None),
    ("an earlier boot, cut off", RUNNING, Boot("other"), CUT_OFF),
    ("setup, cut off", replace(SETTING_UP, invocation_id=INVOCATION), Boot("other"), CUT_OFF),
    ("just asked for, cut off", JUST_LAUNCHED, Boot("other"), CUT_OFF_AT_START),
    ("just asked for, shut down", JUST_LAUNCHED, Boot("other", shut_down=BOOT), REBOOTED_AT_START),
    ("an earlier boot, shut down", RUNNING, Boot("other", shut_down=BOOT), REBOOTED),
    ("an earlier boot, before one that was shut down", RUNNING, Boot("other", shut_down="x"), CUT_OFF),
]


@pytest.mark.parametrize(
    ("job", "boot", "reason"), [row[1:] for row in REBOOTS], ids=[row[0] for row in REBOOTS]
)
def test_lost_to_reboot(job: Job, boot: Boot, reason: Reason | None) -> None:
    expected = None if reason is None else Ended(NOW + 30, Outcome(Status.FAILED_DRIVER, reason))
    assert lost_to_reboot(job, replace(boot, began=NOW + 30)) == expected


def test_a_clock_that_was_set_back_at_the_reboot() -> None:
    """It did not end before it ran."""
    lost = lost_to_reboot(RUNNING, Boot("other", NOW - 30))
    assert lost is not None
    assert lost.at == RUNNING.running_at
