"""Pure: how a unit ended, in the queue's words. Decided from codes, never from systemd's Result alone.

The table in tests/test_outcome.py has a row for each way to end that was measured on systemd 252 and 257.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sysjobs.engine import oom
from sysjobs.engine.evidence import SLACK, Victim, entries
from sysjobs.engine.oom import OomKill, find_kill
from sysjobs.engine.requests import Requests
from sysjobs.engine.script import Traces
from sysjobs.engine.units import DUMPED, EXITED, Unit
from sysjobs.jobs import REBOOTED, Exit, Job, Outcome, Reason, Status, Usage

# Exit statuses by which systemd says that it couldn't even execute the start script.
_START_FAILURES = {
    200: ("no-directory", "its working directory can't be entered"),
    203: ("no-command", "its start script can't be executed"),
    204: ("no-memory", "there was no memory left"),
    205: ("bad-limit", "its resource limits can't be set"),
    206: ("bad-oom-score", "its OOM score can't be set"),
    208: ("no-stdin", "its standard input can't be opened"),
    209: ("no-log", "its output can't be opened"),
    216: ("no-group", "its group doesn't exist"),
    217: ("no-user", "its user doesn't exist"),
    219: ("no-cgroup", "its cgroup can't be made"),
}

# Signals by which the kernel answers what a program did; anybody may send the others.
_FAULTS = frozenset(
    getattr(signal, f"SIG{name}")
    for name in ("SEGV", "BUS", "FPE", "ILL", "ABRT", "TRAP", "SYS", "PIPE", "XCPU", "XFSZ")
)

_CLEAN = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)

# What is sent to end a process for want of memory; whoever did so may have said so in the journal. Of other
# signals it knows something only where systemd says of a unit what it was asked to send.
_SENT_TO_KILL = frozenset((signal.SIGTERM, signal.SIGKILL))

_LONGEST_LOOK = 600_000_000
"""Microseconds of the journal that are read for one job at most: all that wait share the time for it."""

# Steps of the start script (`engine.script.STEPS`) that come before the command.
_STEPS = {
    "log": ("no-log", "its log can't be opened; see that the log directory can be written and has room"),
    "directory": ("no-directory", "its working directory is missing or can't be entered"),
}

# What the step that looks the command up and the one that executes it may end with.
_COMMANDS: dict[tuple[str, int | None], tuple[str, str]] = {
    ("command", 126): ("not-executable", "its command is no executable file; `chmod +x` makes a script one"),
    ("command", 127): (
        "no-command",
        "its command was not found; a name without a slash is looked for in PATH",
    ),
    ("exec", 126): ("not-executable", "its command can't be executed; its log says why"),
    ("exec", 127): (
        "no-interpreter",
        "its command is there, but the interpreter that its first line names is not",
    ),
}


@dataclass(frozen=True, slots=True)
class Found:
    """What the journal has of an end.

    `kill`: who did so for want of memory. `requested`: systemd sent the signal, as somebody asked it to.
    """

    kill: OomKill | None = None
    requested: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """A unit (None: not loaded), what its scripts left, and what happened around it.

    `stopped`: systemd was told to stop it, not by us. `rebooting`: the machine is going down, or went down.
    `told`: it had our SIGTERM. `found`: what the journal has of its end; `cgroup`, `limit`: the job's own;
    `usage`: what it used, as far as systemd knows.
    """

    unit: Unit | None
    traces: Traces = field(default_factory=Traces)
    stopped: bool = False
    rebooting: bool = False
    told: bool = False
    found: Found = Found()
    cgroup: str = ""
    limit: int = 0
    usage: Usage = Usage()  # noqa: RUF009 - it is frozen


def has_ended(unit: Unit) -> bool:
    """Whether the job in this unit came to its end, though processes of it may be left."""
    return unit.over or unit.main_ended


def end_time(unit: Unit) -> tuple[int | None, int | None]:
    """When, in both clocks: its main process' exit, else the unit's last change."""
    if unit.main_ended and unit.main_exited_at is not None:
        return unit.main_exited_at, unit.main_exited_monotonic
    return unit.changed_at, unit.changed_monotonic


def asks_journal(seen: Seen) -> bool:
    """Whether the journal may know more of this end than systemd does."""
    unit = seen.unit
    if unit is None:
        return False
    if unit.result == "oom-kill":
        return True
    if seen.stopped or seen.told:
        return False
    number = _signal(seen)
    return number in _SENT_TO_KILL or (number is not None and unit.tells_all)


def _signal(seen: Seen) -> int | None:
    """What ended its main process, or setup."""
    assert seen.unit is not None
    end = _exit(seen.unit.main_code, seen.unit.main_status) or _setup_exit(seen.unit, seen.traces)
    return end.signal if end is not None else None


def victim(job: Job, seen: Seen, now: int) -> Victim:
    """What to look for in the journal about a job that has ended."""
    assert seen.unit is not None
    until = end_time(seen.unit)[0] or now
    # Who killed it at the end of a longer grace is told by the lines about its end.
    since = until - min(int(job.grace * 1_000_000), _LONGEST_LOOK) - SLACK
    if job.started_at is not None and job.started_at <= until:
        # Else the clock was set back since.
        since = max(since, job.started_at)
    return Victim(
        cgroup=seen.cgroup,
        pid=seen.unit.main_pid if seen.unit.main_ended else seen.unit.setup_pid,
        since=since,
        until=until,
        all_of_it=seen.unit.result == "oom-kill",
        signal=_signal(seen),
        invocation=seen.unit.invocation_id or "",
        # Before the last one that we know of there may have been others. That one itself is told by the job.
        ours_until=job.sent.at if job.sent is not None else 0,
    )


def look_up(output: bytes, victims: Mapping[int, Victim]) -> dict[int, Found]:
    """What the journal's `output` has of each of them."""
    lines = entries(output)
    requests = Requests(lines)
    others = [entry for entry in lines if entry not in requests]
    return {key: Found(find_kill(others, victim), requests.ended(victim)) for key, victim in victims.items()}


def outcome(seen: Seen) -> Outcome:
    """How a unit ended that has ended, as if the queue had left it alone."""
    usage = seen.usage
    if usage.peak_memory is None and seen.limit and oom.at_own_limit(seen.found.kill, seen.cgroup):
        # It is within a page or so of that.
        usage = replace(usage, peak_memory=seen.limit)
    return replace(_outcome(seen), usage=usage)


def _outcome(seen: Seen) -> Outcome:
    unit, traces = seen.unit, seen.traces
    if unit is None:
        return _vanished(seen)
    main = _exit(unit.main_code, unit.main_status)
    setup = _setup_exit(unit, traces)
    kill = seen.found.kill
    if unit.result == "oom-kill" or kill is not None:
        code, text = oom.sentence(kill, seen.cgroup, seen.limit, seen.usage.peak_memory, setup=main is None)
        return Outcome(Status.FAILED_DRIVER, Reason(code, text), main, setup)
    if seen.stopped or (unit.active_state == "inactive" and _is_clean(main) and _is_clean(setup)):
        # By itself a unit stays active or fails: only being stopped leads here, or a reset after it failed.
        return _stopped(seen, main, setup)
    if main is not None:
        return _main_outcome(main, setup, seen)
    if setup is not None or traces.phase == "setup":
        return _setup_outcome(setup, seen)
    text = f"Could not be started: systemd says {unit.result!r}."
    return Outcome(Status.FAILED_DRIVER, Reason("start", text))


def _main_outcome(main: Exit, setup: Exit | None, seen: Seen) -> Outcome:
    if main.code == 0:
        return Outcome(Status.SUCCEEDED, None, main, setup)
    if main.code is not None:
        failure = _start_failure(main.code, seen.traces, "run")
        if failure is not None:
            return Outcome(Status.FAILED_DRIVER, failure, _shell_code(main), setup)
        return Outcome(Status.FAILED, Reason("exit-code", f"Ended with exit code {main.code}."), main, setup)
    if seen.unit is not None and seen.unit.result == "timeout":
        # No property of ours lets a running job time out: a drop-in, or a stop that was not seen to begin.
        text = (
            f"Ended by systemd with {main}: it was stopped, or ran into a time limit that its unit was given."
        )
        return Outcome(Status.FAILED_DRIVER, Reason("unit-timeout", text), main, setup)
    if seen.found.requested:
        return Outcome(Status.FAILED_DRIVER, _requested("Ended", main), main, setup)
    if main.signal == signal.SIGKILL:
        return Outcome(Status.FAILED_DRIVER, _killed("Killed"), main, setup)
    return Outcome(Status.FAILED, Reason("signal", f"Ended by {_whence(main)}."), main, setup)


def _setup_outcome(setup: Exit | None, seen: Seen) -> Outcome:
    if setup is None:
        text = "Setup failed; systemd was reloaded meanwhile and no longer says how."
        return Outcome(Status.FAILED_SETUP, Reason("setup", text), None, None)
    if setup.signal is not None and seen.found.requested:
        return Outcome(Status.FAILED_DRIVER, _requested("Setup was ended", setup), None, setup)
    if setup.signal == signal.SIGKILL:
        return Outcome(Status.FAILED_DRIVER, _killed("Setup was killed"), None, setup)
    if setup.signal is not None:
        return Outcome(
            Status.FAILED_SETUP, Reason("setup", f"Setup was ended by {_whence(setup)}."), None, setup
        )
    assert setup.code is not None
    failure = _start_failure(setup.code, seen.traces, "setup")
    if failure is not None:
        return Outcome(Status.FAILED_DRIVER, failure, None, _shell_code(setup))
    return Outcome(
        Status.FAILED_SETUP, Reason("setup", f"Setup ended with exit code {setup.code}."), None, setup
    )


def _shell_code(end: Exit) -> Exit | None:
    """What a program that never ran ended with: what a shell says of such a command, or nothing."""
    return end if end.code in (126, 127) else None


def _start_failure(code: int, traces: Traces, phase: str) -> Reason | None:
    """Why the program never ran, or None if it did and this exit code is its own."""
    if traces.phase != phase and 200 <= code < 250:
        # The script didn't begin: this is systemd's status, not the program's.
        name, why = _START_FAILURES.get(code, ("start", f"systemd gave up with status {code}"))
        return Reason(name, f"Could not be started: {why}.")
    if traces.failed_step is None:
        return None
    key = (traces.failed_step, traces.failed_code)
    name, why = _STEPS.get(traces.failed_step) or _COMMANDS.get(key) or (
        "start", f"its start script failed with status {traces.failed_code}"
    )  # fmt: skip
    return Reason(name, f"Could not be started: {why}.")


def _is_clean(end: Exit | None) -> bool:
    """Whether systemd takes this for no failure."""
    return end is None or end.code == 0 or end.signal in _CLEAN


def _stopped(seen: Seen, main: Exit | None, setup: Exit | None) -> Outcome:
    if seen.rebooting:
        return Outcome(Status.FAILED_DRIVER, REBOOTED, main, setup)
    text = "Stopped through systemd, as `systemctl stop` does, not through sysjobs."
    return Outcome(Status.CANCELLED, Reason("stopped", text), main, setup)


def _vanished(seen: Seen) -> Outcome:
    if seen.rebooting:
        return Outcome(Status.FAILED_DRIVER, REBOOTED)
    text = "Its unit vanished before its end could be read: it was stopped or reset through systemd."
    return Outcome(Status.FAILED_DRIVER, Reason("lost", text))


def _killed(what: str) -> Reason:
    return Reason("killed", f"{what} by SIGKILL, not by sysjobs; sender unknown.")


def _requested(what: str, end: Exit) -> Reason:
    text = f"{what} by {end}, sent through systemd, as `systemctl kill` does, not through sysjobs."
    return Reason("killed", text)


def _whence(end: Exit) -> str:
    """The signal, and that nobody knows who sent it where it isn't the kernel's answer to a fault."""
    return f"{end}" if end.signal in _FAULTS else f"{end}; sender unknown"


def _exit(code: int, status: int) -> Exit | None:
    if code == 0:
        return None
    return Exit(code=status) if code == EXITED else Exit(signal=status, dumped=code == DUMPED)


def _setup_exit(unit: Unit, traces: Traces) -> Exit | None:
    seen = _exit(unit.setup_code, unit.setup_status)
    if seen is None and traces.setup_code is not None:
        return Exit(code=traces.setup_code)
    return seen


def refusal(job: Job, number: int, said: str) -> Reason:
    """Why systemd took no unit for this job: the error's number, negative, and what it said."""
    if number == -errno.EEXIST:
        text = f"Could not be started: {job.unit} exists already and is not this job's."
        return Reason("name-taken", text)
    return Reason("refused", f"Could not be started: systemd refused its unit: {said}")
