"""The start scripts of a job: shell text that sets up what the submitter had and becomes the command.

Nothing is interpolated but single-quoted bytes. Each step that can fail leaves a trace beside the script
(`Traces`), which is how a command that could not be run is told apart from one that exits 127 by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sysjobs.devices import WHOLE, format_gpus
from sysjobs.jobs import Job
from sysjobs.payload import Payload
from sysjobs.resources import format_cpus

SHELL = b"/bin/bash"
"""Runs setup and the text of -c."""

_IDENTIFIER = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")

STEPS = ("log", "directory", "command", "exec")
"""Steps of a script that can fail, by the names that its traces use; the command is looked up, then run."""

# Names that sh, which may be bash, keeps for itself or refuses to set: these travel through env(1), as do
# those that no shell can name, such as bash's exported functions.
_RESERVED = frozenset(
    b"""
    BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_CMDS BASH_COMMAND BASH_COMPAT BASH_LINENO
    BASH_SOURCE BASH_SUBSHELL BASH_VERSINFO BASH_XTRACEFD DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID
    FUNCNAME GROUPS HISTCMD LINENO OPTIND PIPESTATUS PPID RANDOM SECONDS SHELLOPTS SRANDOM UID _
    """.split()
)

# What a shell finds without there being a file of this name.
_SHELLS_OWN = frozenset(
    b"""
    ! . : [ [[ { } alias bg bind break builtin caller case cd chdir command compgen complete compopt continue
    coproc declare dirs disown do done echo elif else enable esac eval exec exit export false fc fg fi for
    function getopts hash help history if in jobs kill let local logout mapfile popd printf pushd pwd read
    readarray readonly return select set shift shopt source suspend test then time times trap true type
    typeset ulimit umask unalias unset until wait while
    """.split()
)

# systemd gives these to each unit: an account's environment if none was exported, else the submitter's take
# their place. What describes the unit itself (INVOCATION_ID, MEMORY_PRESSURE_*) stays.
_FROM_SYSTEMD = (
    b"HOME",
    b"LANG",
    b"LANGUAGE",
    b"LC_ALL",
    b"LOGNAME",
    b"PATH",
    b"SHELL",
    b"USER",
)

# Of systemd and of the script's cd: no job has a use for them.
_NOBODYS = (b"JOURNAL_STREAM", b"OLDPWD", b"SYSTEMD_EXEC_PID")

# ulimit's letter and unit for each soft limit; nproc has another letter in each shell.
_LIMITS = {
    "core": ("c", 512), "cpu": ("t", 1), "data": ("d", 1024), "fsize": ("f", 512), "memlock": ("l", 1024),
    "nofile": ("n", 1), "stack": ("s", 1024), "as": ("v", 1024),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Traces:
    """What the scripts of an attempt left: how far they came, and which step failed with which status."""

    phase: str | None = None
    failed_step: str | None = None
    failed_code: int | None = None
    setup_code: int | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one attempt, all in the job's directory under /run."""

    directory: str
    attempt: int

    def _path(self, suffix: str) -> str:
        return f"{self.directory}/{self.attempt}.{suffix}"

    @property
    def run(self) -> str:
        return self._path("run")

    @property
    def setup(self) -> str:
        return self._path("setup")

    @property
    def phase(self) -> str:
        return self._path("phase")

    @property
    def failed(self) -> str:
        return self._path("failed")

    @property
    def setup_code(self) -> str:
        return self._path("setup-code")

    @property
    def ending(self) -> str:
        return self._path("ending")


def quote(data: bytes) -> bytes:
    return b"'" + data.replace(b"'", b"'\\''") + b"'"


def run_script(job: Job, payload: Payload, files: Files, log: bytes) -> bytes:
    """The script that becomes the job's command."""
    return _script(job, payload, files, log, "run", payload.command)


def setup_script(job: Job, payload: Payload, files: Files, log: bytes) -> bytes:
    """The script that becomes the shell that runs setup and leaves its exit code."""
    assert payload.setup is not None
    # systemd 252 forgets how ExecStartPre ended when it is reloaded; the trap's file does not.
    text = b"trap 'echo $? 1<>%s' EXIT; %s" % (files.setup_code.encode(), payload.setup)
    return _script(job, payload, files, log, "setup", (SHELL, b"-c", text))


def _script(
    job: Job, payload: Payload, files: Files, log: bytes, phase: str, command: tuple[bytes, ...]
) -> bytes:
    exported, odd = _environment(job, payload)
    failed = files.failed.encode()

    def trap(step: bytes) -> bytes:
        return b"trap 'echo %s $? 1<>%s' EXIT" % (step, failed)

    # Traces are there and are written over: what takes up room already has it on a full file system too.
    lines = [b"echo %s 1<>%s" % (phase.encode(), files.phase.encode())]
    if phase == "run" and job.has_setup:
        # The job was told to end, and its setup took that for a reason to end well.
        lines.append(b"[ ! -e %s ] || { kill -s TERM $$; exit 143; }" % files.ending.encode())
    name = quote(log)
    # Of a job of this number that a lost database forgot.
    lines += [trap(b"log"), b"[ ! -f %s ] || [ ! -s %s ] || /bin/mv -f -- %s %s.earlier" % (4 * (name,))]
    lines.append(b"exec >>%s 2>&1" % name)
    # After the log, so that the shell's own words about a directory or a limit are found there.
    lines += [trap(b"directory"), b"cd -- %s || exit" % quote(payload.workdir), trap(b"command")]
    # Where sh is bash, an exec that fails would run no trap.
    lines.append(b'[ -z "${BASH_VERSION-}" ] || shopt -s execfail')
    if payload.umask is not None:
        lines.append(b"umask %04o" % payload.umask)
    lines += _limits(payload.limits)
    lines.append(b"unset " + b" ".join(_NOBODYS if payload.environment is None else _FROM_SYSTEMD + _NOBODYS))
    lines += [b"export %s=%s" % (name, quote(value)) for name, value in exported.items()]
    words = b" ".join(map(quote, command))
    if odd or command[0] not in _SHELLS_OWN:
        # By itself exec says "not found" of a script whose interpreter is missing too.
        lines += [*_look_up(command[0]), trap(b"exec")]
    # bash would take a command that begins with a dash for an option of exec.
    if odd or command[0].startswith(b"-"):
        if b"=" in command[0]:
            # env(1) would take it for a variable; nice(1) as it is here only executes it.
            words = b"/usr/bin/nice -n 0 -- " + words
        entries = b" ".join(quote(name + b"=" + value) for name, value in odd.items())
        words = b"/usr/bin/env -- %s %s" % (entries, words)
    lines += [b"exec " + words, b"exit"]
    return b"\n".join(lines) + b"\n"


def _look_up(command: bytes) -> list[bytes]:
    """Lines that end the script, as a shell would, if there is no such command."""
    name = quote(command)
    missing = b"{ echo sysjobs: %s: not found; exit 127; }" % name
    if b"/" not in command:
        return [b"command -v -- %s >/dev/null || %s" % (name, missing)]
    denied = b"{ echo sysjobs: %s: not an executable file; exit 126; }" % name
    return [b"[ -e %s ] || %s" % (name, missing), b"[ -x %s ] && [ ! -d %s ] || %s" % (name, name, denied)]


def _limits(limits: dict[str, int]) -> list[bytes]:
    lines = []
    for name, value in limits.items():
        if name == "nproc":
            text = str(value) if value >= 0 else "unlimited"
            command = f"ulimit -S -u {text} 2>/dev/null || ulimit -S -p {text}"
        elif name in _LIMITS:
            letter, unit = _LIMITS[name]
            text = str(value // unit) if value >= 0 else "unlimited"
            command = f"ulimit -S -{letter} {text}"
        else:
            continue
        said = f"sysjobs: the soft limit {name} could not be set to {text}"
        lines.append(f"{command} 2>/dev/null || echo '{said}'".encode())
    return lines


def _environment(job: Job, payload: Payload) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The job's variables: those that the script exports, and those that only env(1) can set."""
    variables: dict[bytes, bytes] = {}
    for entry in payload.environment or ():
        name, _, value = entry.partition(b"=")
        variables[name] = value
    if b"PWD" in variables:
        variables[b"PWD"] = payload.workdir
    variables.pop(b"OLDPWD", None)
    variables.setdefault(b"PYTHONUNBUFFERED", b"1")
    variables.update(payload.env)
    variables.update(job_variables(job))
    odd = {
        name: value
        for name, value in variables.items()
        if not _IDENTIFIER.fullmatch(name) or name in _RESERVED
    }
    odd.pop(b"_", None)
    return {name: value for name, value in variables.items() if name not in odd and name != b"_"}, odd


def job_variables(job: Job) -> dict[bytes, bytes]:
    """What a job is told of itself: SYSJOBS_*, and SKYPILOT_* as that system's jobs know them."""
    variables = {
        "SYSJOBS_JOB_ID": job.id,
        "SYSJOBS_JOB_NAME": job.name,
        "SYSJOBS_ATTEMPT": job.attempt,
        "SYSJOBS_CPUS": format_cpus(job.amount.cpus),
        "SYSJOBS_MEMORY": job.amount.memory or "",
        "SYSJOBS_GPUS": format_gpus(job.amount.gpus),
        "SKYPILOT_INTERNAL_JOB_ID": job.id,
        "SKYPILOT_TASK_ID": f"sysjobs-{job.submitted_at // 1_000_000}_{job.name}_{job.id}",
        "SKYPILOT_NODE_RANK": 0,
        "SKYPILOT_NODE_IPS": "127.0.0.1",
        "SKYPILOT_NUM_NODES": 1,
        "SKYPILOT_NUM_GPUS_PER_NODE": -(-job.amount.gpus // WHOLE),
    }
    if job.attempt > 1:
        # As in Slurm, where a script asks whether it is there.
        variables["SLURM_RESTART_COUNT"] = job.attempt - 1
    return {name.encode(): str(value).encode("utf-8", "surrogateescape") for name, value in variables.items()}
