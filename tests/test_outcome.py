"""How a unit's end is read: each row of what was measured on systemd 252 and 257, from its properties on.

A row has the properties as systemd gives them, what the start scripts left, and what is made of both: when
nobody stopped the unit or its stop was missed, and when the daemon saw systemd begin to stop it.
"""

from __future__ import annotations

import pytest
from hypothesis import given

from sysjobs.engine.outcome import Seen, end_time, has_ended, outcome
from sysjobs.engine.script import Traces
from sysjobs.engine.units import Unit, updated
from sysjobs.jobs import Outcome, Status
from tests.models import sights

Code = tuple[int, int]

RUN, SETUP, NOTHING = Traces("run"), Traces("setup"), Traces()
UNSET = 2**64 - 1


def unit(state: str, result: str, main: Code, setup: Code | None = None, changed: int = 7) -> Unit:
    """The unit whose GetAll of both interfaces says so; `state` is 'failed', 'exited' or 'dead'."""
    pre = [] if setup is None else [(b"/bin/sh", [b"/bin/sh", b"1.setup"], False, 3, 3, 4, 4, 99, *setup)]
    service: dict[str, object] = {
        "Result": result.encode(),
        "ExecMainCode": main[0],
        "ExecMainStatus": main[1],
        "ExecMainStartTimestamp": 5 if main[0] else 0,
        "ExecMainExitTimestamp": 6 if main[0] else 0,
        "ExecStartPre": pre,
        "MemoryPeak": UNSET,
    }
    active = {"exited": b"active", "dead": b"inactive"}.get(state, state.encode())
    general: dict[str, object] = {
        "ActiveState": active,
        "SubState": state.encode(),
        "Job": (0, b"/"),
        "InvocationID": list(range(16)),
        "StateChangeTimestamp": changed,
    }
    return updated(updated(Unit(), service), general)


def told(end: Outcome) -> str:
    """'FAILED exit-code, exit code 3; setup: exit code 0'."""
    text = f"{end.status} {end.reason.code}" if end.reason else end.status.value
    text += f", {end.main}" if end.main else ""
    return text + (f"; setup: {end.setup}" if end.setup else "")


# What happened, the unit, traces, what it means, and what it means if the daemon saw a stop begin.
ROWS: list[tuple[str, Unit | None, Traces, str, str | None]] = [
    ("exit 0", unit("exited", "success", (1, 0)), RUN, "SUCCEEDED, exit code 0", None),
    ("exit 3", unit("failed", "exit-code", (1, 3)), RUN, "FAILED exit-code, exit code 3", None),
    ("SEGV", unit("failed", "signal", (2, 11)), RUN, "FAILED signal, SIGSEGV", None),
    ("ABRT with core", unit("failed", "core-dump", (3, 6)), RUN, "FAILED signal, SIGABRT, core dumped", None),
    ("SIGKILL from outside", unit("failed", "signal", (2, 9)), RUN, "FAILED_DRIVER killed, SIGKILL", None),
    ("SIGTERM to main", unit("exited", "success", (2, 15)), RUN, "FAILED signal, SIGTERM", None),
    (
        "setup exits 1",
        unit("failed", "exit-code", (0, 0), (1, 1)),
        SETUP,
        "FAILED_SETUP setup; setup: exit code 1",
        None,
    ),
    (
        "setup is killed",
        unit("failed", "signal", (0, 0), (2, 9)),
        SETUP,
        "FAILED_DRIVER killed; setup: SIGKILL",
        None,
    ),
    (
        "setup runs into TimeoutStartUSec",
        unit("failed", "timeout", (0, 0), (2, 15)),
        SETUP,
        "FAILED_SETUP setup; setup: SIGTERM",
        None,
    ),
    (
        "setup ended, then the run failed",
        unit("failed", "exit-code", (1, 3), (1, 0)),
        RUN,
        "FAILED exit-code, exit code 3; setup: exit code 0",
        None,
    ),
    (
        "cwd missing",
        unit("failed", "exit-code", (1, 200)),
        NOTHING,
        "FAILED_DRIVER no-directory, exit code 200",
        None,
    ),
    (
        "script missing",
        unit("failed", "exit-code", (1, 203)),
        NOTHING,
        "FAILED_DRIVER no-command, exit code 203",
        None,
    ),
    (
        "script missing after setup",
        unit("failed", "exit-code", (1, 203), (1, 0)),
        SETUP,
        "FAILED_DRIVER no-command, exit code 203; setup: exit code 0",
        None,
    ),
    (
        "user missing",
        unit("failed", "exit-code", (1, 217)),
        NOTHING,
        "FAILED_DRIVER no-user, exit code 217",
        None,
    ),
    (
        "user missing, in setup",
        unit("failed", "exit-code", (0, 0), (1, 217)),
        NOTHING,
        "FAILED_DRIVER no-user; setup: exit code 217",
        None,
    ),
    (
        "group missing",
        unit("failed", "exit-code", (1, 216)),
        NOTHING,
        "FAILED_DRIVER no-group, exit code 216",
        None,
    ),
    (
        "stdin missing",
        unit("failed", "exit-code", (1, 208)),
        NOTHING,
        "FAILED_DRIVER no-stdin, exit code 208",
        None,
    ),
    (
        "log missing",
        unit("failed", "exit-code", (1, 209)),
        NOTHING,
        "FAILED_DRIVER no-log, exit code 209",
        None,
    ),
    (
        "a status without a name",
        unit("failed", "exit-code", (1, 226)),
        NOTHING,
        "FAILED_DRIVER start, exit code 226",
        None,
    ),
    ("no process could be forked", unit("failed", "resources", (0, 0)), NOTHING, "FAILED_DRIVER start", None),
    (
        "RuntimeMaxUSec",
        unit("failed", "timeout", (2, 15)),
        RUN,
        "FAILED_DRIVER unit-timeout, SIGTERM",
        None,
    ),
    (
        "RuntimeMaxUSec, TERM ignored",
        unit("failed", "timeout", (2, 9)),
        RUN,
        "FAILED_DRIVER unit-timeout, SIGKILL",
        None,
    ),
    (
        "RuntimeMaxUSec, a trap exits 0",
        unit("failed", "timeout", (1, 0)),
        RUN,
        "SUCCEEDED, exit code 0",
        None,
    ),
    (
        "StopUnit, dies by TERM: the signals before it was unloaded",
        unit("dead", "success", (2, 15)),
        RUN,
        "CANCELLED stopped, SIGTERM",
        "CANCELLED stopped, SIGTERM",
    ),
    (
        "StopUnit, a trap exits 0: the signals before it was unloaded",
        unit("dead", "success", (1, 0)),
        RUN,
        "CANCELLED stopped, exit code 0",
        "CANCELLED stopped, exit code 0",
    ),
    ("StopUnit, long unloaded", None, RUN, "FAILED_DRIVER lost", "FAILED_DRIVER lost"),
    (
        "StopUnit, a trap exits 5",
        unit("failed", "exit-code", (1, 5)),
        RUN,
        "FAILED exit-code, exit code 5",
        "CANCELLED stopped, exit code 5",
    ),
    (
        "StopUnit, TERM ignored",
        unit("failed", "timeout", (2, 9)),
        RUN,
        "FAILED_DRIVER unit-timeout, SIGKILL",
        "CANCELLED stopped, SIGKILL",
    ),
    (
        "StopUnit during setup",
        unit("failed", "signal", (0, 0), (2, 15)),
        SETUP,
        "FAILED_SETUP setup; setup: SIGTERM",
        "CANCELLED stopped; setup: SIGTERM",
    ),
    (
        "OOM of main, OOMPolicy stop or kill",
        unit("failed", "oom-kill", (2, 9)),
        RUN,
        "FAILED_DRIVER oom, SIGKILL",
        "FAILED_DRIVER oom, SIGKILL",
    ),
    ("OOM of main, continue", unit("failed", "signal", (2, 9)), RUN, "FAILED_DRIVER killed, SIGKILL", None),
    (
        "OOM of a child, stop",
        unit("failed", "oom-kill", (2, 15)),
        RUN,
        "FAILED_DRIVER oom, SIGTERM",
        "FAILED_DRIVER oom, SIGTERM",
    ),
    (
        "OOM of a child, kill",
        unit("failed", "oom-kill", (2, 9)),
        RUN,
        "FAILED_DRIVER oom, SIGKILL",
        "FAILED_DRIVER oom, SIGKILL",
    ),
    ("OOM of a child, continue", unit("exited", "success", (1, 0)), RUN, "SUCCEEDED, exit code 0", None),
    (
        "OOM of setup",
        unit("failed", "oom-kill", (0, 0), (2, 9)),
        SETUP,
        "FAILED_DRIVER oom; setup: SIGKILL",
        "FAILED_DRIVER oom; setup: SIGKILL",
    ),
    (
        "OOM by the slice's limit, stop",
        unit("failed", "oom-kill", (2, 9)),
        RUN,
        "FAILED_DRIVER oom, SIGKILL",
        None,
    ),
    (
        "OOM by the slice's limit, continue",
        unit("failed", "signal", (2, 9)),
        RUN,
        "FAILED_DRIVER killed, SIGKILL",
        None,
    ),
    (
        "setup exits 7, a reload of systemd 252 forgot",
        unit("failed", "exit-code", (0, 0), (0, 0)),
        Traces("setup", setup_code=7),
        "FAILED_SETUP setup; setup: exit code 7",
        None,
    ),
    (
        "setup is killed, a reload of systemd 252 forgot",
        unit("failed", "exit-code", (0, 0), (0, 0)),
        SETUP,
        "FAILED_SETUP setup",
        None,
    ),
]


@pytest.mark.parametrize(("end", "traces", "expected"), [row[1:4] for row in ROWS], ids=[r[0] for r in ROWS])
def test_nobody_seen_stopping_it(end: Unit | None, traces: Traces, expected: str) -> None:
    assert told(outcome(Seen(end, traces))) == expected


STOPS = [row for row in ROWS if row[4] is not None]


@pytest.mark.parametrize(
    ("end", "traces", "_", "expected"), [r[1:] for r in STOPS], ids=[r[0] for r in STOPS]
)
def test_seen_being_stopped(end: Unit | None, traces: Traces, _: str, expected: str) -> None:
    assert told(outcome(Seen(end, traces, stopped=True))) == expected


@pytest.mark.parametrize(("end", "traces", "_", "stopped"), [r[1:] for r in STOPS], ids=[r[0] for r in STOPS])
def test_stopped_because_the_machine_goes_down(
    end: Unit | None, traces: Traces, _: str, stopped: str
) -> None:
    expected = stopped.replace("CANCELLED stopped", "FAILED_DRIVER reboot").replace("lost", "reboot")
    assert told(outcome(Seen(end, traces, stopped=True, rebooting=True))) == expected


@pytest.mark.parametrize("main", [(1, 0), (2, 15)])
def test_without_remain_after_exit(main: Code) -> None:
    """Where a drop-in takes that away, what ends well is unloaded at once: it looks stopped, or lost."""
    assert outcome(Seen(unit("dead", "success", main), RUN)).status is Status.CANCELLED
    assert told(outcome(Seen(None, RUN))) == "FAILED_DRIVER lost"


OWN_CODES = [1, 2, 126, 127, 128, 137, 143, *range(200, 218), 219, 226, 249, 255]


@pytest.mark.parametrize("code", OWN_CODES)
def test_exit_codes_of_its_own(code: int) -> None:
    """A program that was executed means what it says, even where shells and systemd use the same numbers."""
    own = outcome(Seen(unit("failed", "exit-code", (1, code)), RUN))
    assert told(own) == f"FAILED exit-code, exit code {code}"
    setup = outcome(Seen(unit("failed", "exit-code", (0, 0), (1, code)), SETUP))
    assert told(setup) == f"FAILED_SETUP setup; setup: exit code {code}"


TRACES = [
    ("log", 2, "no-log"),
    ("directory", 2, "no-directory"),
    ("command", 126, "not-executable"),
    ("command", 127, "no-command"),
    ("command", 2, "start"),
]


@pytest.mark.parametrize(("step", "code", "reason"), TRACES)
def test_traces_of_the_start_script(step: str, code: int, reason: str) -> None:
    run = outcome(Seen(unit("failed", "exit-code", (1, code)), Traces("run", step, code)))
    assert told(run) == f"FAILED_DRIVER {reason}, exit code {code}"
    end = unit("failed", "exit-code", (0, 0), (1, code))
    setup = outcome(Seen(end, Traces("setup", step, code)))
    assert told(setup) == f"FAILED_DRIVER {reason}; setup: exit code {code}"


@pytest.mark.parametrize("traces", [Traces("run", "command", 127), Traces("run", "log", 2)])
@pytest.mark.parametrize(
    ("main", "status"), [((1, 0), Status.SUCCEEDED), ((2, 11), Status.FAILED), ((2, 9), Status.FAILED_DRIVER)]
)
def test_traces_of_a_failure_explain_no_other_end(main: Code, status: Status, traces: Traces) -> None:
    """The job's user could have written them."""
    assert outcome(Seen(unit("exited" if main == (1, 0) else "failed", "x", main), traces)).status is status


SENTENCES = [
    (unit("failed", "exit-code", (1, 3)), RUN, "Ended with exit code 3."),
    (unit("failed", "signal", (2, 11)), RUN, "Ended by SIGSEGV."),
    (unit("failed", "signal", (2, 13)), RUN, "Ended by SIGPIPE."),
    (unit("exited", "success", (2, 15)), RUN, "Ended by SIGTERM; sender unknown."),
    (unit("failed", "signal", (2, 40)), RUN, "Ended by SIGRTMIN+6; sender unknown."),
    (unit("failed", "signal", (2, 9)), RUN, "Killed by SIGKILL, not by sysjobs; sender unknown."),
    (unit("failed", "oom-kill", (2, 9)), RUN, "It ran out of memory and was killed by the kernel (OOM)."),
    (
        unit("failed", "oom-kill", (0, 0), (2, 9)),
        SETUP,
        "Its setup ran out of memory and was killed by the kernel (OOM).",
    ),
    (unit("failed", "exit-code", (1, 217)), NOTHING, "Could not be started: its user doesn't exist."),
    (
        unit("failed", "exit-code", (1, 127)),
        Traces("run", "command", 127),
        "Could not be started: its command was not found.",
    ),
    (unit("failed", "exit-code", (0, 0), (1, 2)), SETUP, "Setup ended with exit code 2."),
]


@pytest.mark.parametrize(("end", "traces", "sentence"), SENTENCES)
def test_sentences(end: Unit, traces: Traces, sentence: str) -> None:
    reason = outcome(Seen(end, traces)).reason
    assert reason is not None
    assert reason.text == sentence


@given(sights)
def test_every_end_but_success_has_a_reason(seen: Seen) -> None:
    end = outcome(seen)
    assert end.status.terminal
    assert (end.reason is None) == (end.status is Status.SUCCEEDED)
    if end.reason is not None:
        assert end.reason.text.endswith(".")
    if end.status is Status.SUCCEEDED:
        assert end.main is not None
        assert (end.main.code, end.main.signal) == (0, None)


STATES = [
    ("it runs", {"ActiveState": b"active", "SubState": b"running"}, False),
    ("setup runs", {"ActiveState": b"activating", "SubState": b"start-pre"}, False),
    ("it exited", {"ActiveState": b"active", "SubState": b"exited", "ExecMainCode": 1}, True),
    ("it exited, others are being killed", {"ActiveState": b"deactivating", "ExecMainCode": 1}, True),
    ("it is being stopped", {"ActiveState": b"deactivating"}, False),
    ("it failed", {"ActiveState": b"failed"}, True),
    ("it is about to be started", {"ActiveState": b"inactive", "Job": (7, b"/job/7")}, False),
    ("it was stopped", {"ActiveState": b"inactive", "Job": (0, b"/")}, True),
]


@pytest.mark.parametrize(("changes", "ended"), [row[1:] for row in STATES], ids=[row[0] for row in STATES])
def test_has_ended(changes: dict[str, object], ended: bool) -> None:
    assert has_ended(updated(Unit(), changes)) is ended


def test_end_time() -> None:
    assert end_time(unit("failed", "exit-code", (1, 3), changed=8)) == 6
    assert end_time(unit("failed", "exit-code", (0, 0), (1, 1), changed=8)) == 8
    assert end_time(Unit()) is None
