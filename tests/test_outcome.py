"""How a unit's end is read: each row of what was measured on systemd 252 and 257, from its properties on.

A row has the properties as systemd gives them, with RemainAfterExit as all units of jobs have it, and what
the start scripts left. Its end is read twice: as if nobody stopped the unit, or its stop was missed; and as
if the daemon saw systemd begin to stop it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from sysjobs.engine.oom import Killer, OomKill
from sysjobs.engine.outcome import Found, Seen, asks_journal, end_time, has_ended, outcome
from sysjobs.engine.script import Traces
from sysjobs.engine.units import Unit, updated
from sysjobs.jobs import Exit, Outcome, Status, Usage
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


# What happened | state, Result | main's code and status | ExecStartPre's | how far the scripts came | what it
# means | the same or CANCELLED as stopped, if a stop can lead there and the daemon saw it begin.
TABLE = """
exit 0                       | exited success   | 1,0   |       | run   | SUCCEEDED
exit 3                       | failed exit-code | 1,3   |       | run   | FAILED exit-code
exit 3 after setup           | failed exit-code | 1,3   | 1,0   | run   | FAILED exit-code
SEGV                         | failed signal    | 2,11  |       | run   | FAILED signal
ABRT with core               | failed core-dump | 3,6   |       | run   | FAILED signal
SIGKILL from outside         | failed signal    | 2,9   |       | run   | FAILED_DRIVER killed
SIGTERM to main              | exited success   | 2,15  |       | run   | FAILED signal
setup exits 1                | failed exit-code | 0,0   | 1,1   | setup | FAILED_SETUP setup
setup exits 1, then a reload | failed exit-code | 0,0   | 0,0   | setup | FAILED_SETUP setup
setup is killed              | failed signal    | 0,0   | 2,9   | setup | FAILED_DRIVER killed
TimeoutStartUSec of setup    | failed timeout   | 0,0   | 2,15  | setup | FAILED_SETUP setup
cwd missing                  | failed exit-code | 1,200 |       |       | FAILED_DRIVER no-directory
script missing               | failed exit-code | 1,203 |       |       | FAILED_DRIVER no-command
script missing after setup   | failed exit-code | 1,203 | 1,0   | setup | FAILED_DRIVER no-command
no memory for it             | failed exit-code | 1,204 |       |       | FAILED_DRIVER no-memory
a limit can't be set         | failed exit-code | 1,205 |       |       | FAILED_DRIVER bad-limit
an OOM score can't be set    | failed exit-code | 1,206 |       |       | FAILED_DRIVER bad-oom-score
stdin missing                | failed exit-code | 1,208 |       |       | FAILED_DRIVER no-stdin
log missing                  | failed exit-code | 1,209 |       |       | FAILED_DRIVER no-log
group missing                | failed exit-code | 1,216 |       |       | FAILED_DRIVER no-group
user missing                 | failed exit-code | 1,217 |       |       | FAILED_DRIVER no-user
user missing, setup          | failed exit-code | 0,0   | 1,217 |       | FAILED_DRIVER no-user
no cgroup for it             | failed exit-code | 1,219 |       |       | FAILED_DRIVER no-cgroup
a status without a name      | failed exit-code | 1,226 |       |       | FAILED_DRIVER start
no process could be forked   | failed resources | 0,0   |       |       | FAILED_DRIVER start
RuntimeMaxUSec               | failed timeout   | 2,15  |       | run   | FAILED_DRIVER unit-timeout
RuntimeMaxUSec, TERM ignored | failed timeout   | 2,9   |       | run   | FAILED_DRIVER unit-timeout
RuntimeMaxUSec, trap exits 0 | failed timeout   | 1,0   |       | run   | SUCCEEDED
StopUnit, dies by TERM       | dead success     | 2,15  |       | run   | CANCELLED stopped          | same
StopUnit, trap exits 0       | dead success     | 1,0   |       | run   | CANCELLED stopped          | same
exit 3, then a reset         | dead success     | 1,3   |       | run   | FAILED exit-code
SIGKILL, then a reset        | dead success     | 2,9   |       | run   | FAILED_DRIVER killed
setup exits 1, then a reset  | dead success     | 0,0   | 1,1   | setup | FAILED_SETUP setup
StopUnit, unloaded since     | gone             |       |       | run   | FAILED_DRIVER lost         | same
StopUnit, trap exits 5       | failed exit-code | 1,5   |       | run   | FAILED exit-code           | stopped
StopUnit, TERM ignored       | failed timeout   | 2,9   |       | run   | FAILED_DRIVER unit-timeout | stopped
StopUnit during setup        | failed signal    | 0,0   | 2,15  | setup | FAILED_SETUP setup         | stopped
OOM of main, stop or kill    | failed oom-kill  | 2,9   |       | run   | FAILED_DRIVER oom          | same
OOM of main, continue        | failed signal    | 2,9   |       | run   | FAILED_DRIVER killed
OOM of a child, stop         | failed oom-kill  | 2,15  |       | run   | FAILED_DRIVER oom          | same
OOM of a child, kill         | failed oom-kill  | 2,9   |       | run   | FAILED_DRIVER oom          | same
OOM of a child, continue     | exited success   | 1,0   |       | run   | SUCCEEDED
OOM of setup                 | failed oom-kill  | 0,0   | 2,9   | setup | FAILED_DRIVER oom          | same
OOM of the slice, stop       | failed oom-kill  | 2,9   |       | run   | FAILED_DRIVER oom          | same
OOM of the slice, continue   | failed signal    | 2,9   |       | run   | FAILED_DRIVER killed
"""


def code(text: str) -> Code | None:
    first, _, second = text.partition(",")
    return (int(first), int(second)) if text else None


def row(line: str) -> tuple[str, Unit | None, Traces, str, str | None]:
    what, ended, main, setup, phase, meaning, *seen = map(str.strip, line.split("|"))
    state, _, result = ended.partition(" ")
    end = None if state == "gone" else unit(state, result, code(main) or (0, 0), code(setup))
    stopped = {"same": meaning, "stopped": "CANCELLED stopped"}[seen[0]] if seen else None
    return what, end, Traces(phase or None), meaning, stopped


ROWS = [row(line) for line in TABLE.strip().splitlines()]
STOPS = [row for row in ROWS if row[4] is not None]


def short(end: Outcome) -> str:
    return f"{end.status} {end.reason.code}" if end.reason else end.status.value


@pytest.mark.parametrize(
    ("end", "traces", "expected"), [row[1:4] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_nobody_seen_stopping_it(end: Unit | None, traces: Traces, expected: str) -> None:
    found = outcome(Seen(end, traces))
    assert short(found) == expected
    if found.status is Status.FAILED_DRIVER and found.reason and "Could not be started" in found.reason.text:
        # Of a program that never ran only what a shell says of it is told.
        ends = {found.main, found.setup}
        assert ends <= {None, Exit(0), Exit(126), Exit(127)}
    elif end is not None:
        assert found.main == exit_of(end.main_code, end.main_status)
        assert found.setup == exit_of(end.setup_code, end.setup_status)


# Only where somebody may have killed it, and it wasn't us, does it wait for what the journal has.
ASKING = {
    *("SIGKILL from outside", "SIGKILL, then a reset", "SIGTERM to main", "setup is killed"),
    *("TimeoutStartUSec of setup", "RuntimeMaxUSec", "RuntimeMaxUSec, TERM ignored"),
    *("StopUnit, TERM ignored", "StopUnit, dies by TERM", "StopUnit during setup"),
    *("OOM of main, stop or kill", "OOM of a child, stop", "OOM of a child, kill", "OOM of setup"),
    *("OOM of the slice, stop", "OOM of main, continue", "OOM of the slice, continue"),
}


@pytest.mark.parametrize(("what", "end", "traces"), [row[:3] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_the_journal_is_asked_about(what: str, end: Unit | None, traces: Traces) -> None:
    assert asks_journal(Seen(end, traces)) == (what in ASKING)
    ran_out = end is not None and end.result == "oom-kill"
    assert asks_journal(Seen(end, traces, stopped=True)) == ran_out
    assert asks_journal(Seen(end, traces, told=True)) == ran_out


EARLYOOM = OomKill(Killer.EARLYOOM, "py", 1 << 20)
AT_LIMIT = OomKill(Killer.KERNEL, "py", 1 << 20, "/a/sysjobs-42.service")
IN_SLICE = OomKill(Killer.KERNEL, "py", 1 << 20, "/a")
OF_MACHINE = OomKill(Killer.KERNEL, "py", 1 << 20)
OOM_OF_MAIN = unit("failed", "oom-kill", (2, 9))
KILLS = [
    (unit("exited", "success", (2, 15)), EARLYOOM, "oom-earlyoom, SIGTERM"),
    (unit("failed", "signal", (2, 9)), EARLYOOM, "oom-earlyoom, SIGKILL"),
    (unit("failed", "signal", (0, 0), (2, 15)), EARLYOOM, "oom-earlyoom; setup: SIGTERM"),
    (unit("failed", "signal", (2, 9)), OF_MACHINE, "oom-machine, SIGKILL"),
    (OOM_OF_MAIN, OomKill(Killer.OOMD, why="for pressure"), "oom-oomd, SIGKILL"),
    (OOM_OF_MAIN, IN_SLICE, "oom-slice, SIGKILL"),
    (OOM_OF_MAIN, AT_LIMIT, "oom, SIGKILL"),
]


@pytest.mark.parametrize(("end", "kill", "expected"), KILLS)
def test_whom_the_journal_names(end: Unit, kill: OomKill, expected: str) -> None:
    traces = RUN if end.main_ended else SETUP
    assert told(outcome(Seen(end, traces, found=Found(kill), cgroup=SERVICE))) == f"FAILED_DRIVER {expected}"


SERVICE = "/a/sysjobs-42.service"
PEAKS = [
    (unit("exited", "success", (1, 0)), None, 7, 7),
    (unit("exited", "success", (1, 0)), None, None, None),
    (OOM_OF_MAIN, AT_LIMIT, 7, 7),
    (OOM_OF_MAIN, AT_LIMIT, None, 100),
    (OOM_OF_MAIN, IN_SLICE, None, None),
    (OOM_OF_MAIN, OF_MACHINE, None, None),
    (OOM_OF_MAIN, None, None, None),
    (None, None, None, None),
]


@pytest.mark.parametrize(("end", "kill", "peak", "expected"), PEAKS)
def test_peak_memory(end: Unit | None, kill: OomKill | None, peak: int | None, expected: int | None) -> None:
    """Where systemd doesn't know it: a job that its own limit ended was there."""
    found = outcome(Seen(end, RUN, found=Found(kill), cgroup=SERVICE, limit=100, usage=Usage(5, peak)))
    assert found.usage == Usage(5, expected)


def exit_of(code: int, status: int) -> Exit | None:
    return [None, Exit(status), Exit(signal=status), Exit(signal=status, dumped=True)][code]


@pytest.mark.parametrize(
    ("end", "traces", "_", "expected"), [r[1:] for r in STOPS], ids=[r[0] for r in STOPS]
)
def test_seen_being_stopped(end: Unit | None, traces: Traces, _: str, expected: str) -> None:
    assert short(outcome(Seen(end, traces, stopped=True))) == expected


@pytest.mark.parametrize(("end", "traces", "_", "stopped"), [r[1:] for r in STOPS], ids=[r[0] for r in STOPS])
def test_stopped_because_the_machine_goes_down(
    end: Unit | None, traces: Traces, _: str, stopped: str
) -> None:
    expected = stopped.replace("CANCELLED stopped", "FAILED_DRIVER reboot").replace("lost", "reboot")
    assert short(outcome(Seen(end, traces, stopped=True, rebooting=True))) == expected


def test_what_a_reload_of_systemd_252_forgot_is_in_the_traces() -> None:
    end = unit("failed", "exit-code", (0, 0), (0, 0))
    assert told(outcome(Seen(end, Traces("setup", setup_code=7)))) == "FAILED_SETUP setup; setup: exit code 7"


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
    ("exec", 126, "not-executable"),
    ("exec", 127, "no-interpreter"),
    ("exec", 2, "start"),
]


@pytest.mark.parametrize(("step", "code", "reason"), TRACES)
def test_traces_of_the_start_script(step: str, code: int, reason: str) -> None:
    run = outcome(Seen(unit("failed", "exit-code", (1, code)), Traces("run", step, code)))
    shell_code = f"exit code {code}" if code in (126, 127) else ""
    assert told(run) == ", ".join(filter(None, (f"FAILED_DRIVER {reason}", shell_code)))
    end = unit("failed", "exit-code", (0, 0), (1, code))
    setup = outcome(Seen(end, Traces("setup", step, code)))
    assert told(setup) == "; setup: ".join(filter(None, (f"FAILED_DRIVER {reason}", shell_code)))


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
    (
        unit("failed", "oom-kill", (2, 9)),
        RUN,
        "It ran out of memory and was killed, by the kernel or by systemd-oomd.",
    ),
    (
        unit("failed", "oom-kill", (0, 0), (2, 9)),
        SETUP,
        "Its setup ran out of memory and was killed, by the kernel or by systemd-oomd.",
    ),
    (unit("failed", "exit-code", (1, 217)), NOTHING, "Could not be started: its user doesn't exist."),
    (
        unit("failed", "exit-code", (1, 127)),
        Traces("run", "command", 127),
        "Could not be started: its command was not found; a name without a slash is looked for in PATH.",
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
    assert end_time(unit("failed", "exit-code", (1, 3), changed=8)) == (6, None)
    assert end_time(unit("failed", "exit-code", (0, 0), (1, 1), changed=8)) == (8, None)
    assert end_time(Unit()) == (None, None)
    both = replace(
        unit("failed", "exit-code", (1, 3), changed=8), main_exited_monotonic=1, changed_monotonic=2
    )
    assert end_time(both) == (6, 1)
    assert end_time(replace(both, main_code=0)) == (8, 2)
