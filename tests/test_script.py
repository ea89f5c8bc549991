"""The start script, run for real: what was submitted arrives byte for byte."""

from __future__ import annotations

import os
import re
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysjobs.engine.script import job_variables, quote
from sysjobs.payload import Payload
from sysjobs.protocol import Params
from sysjobs.submission import CONTEXT_KEYS, SPEC_KEYS, Submitter, new_job
from tests.attempt import ODD, PATH, SHELLS, SYSTEMD, Attempt
from tests.models import NOW, queued


@pytest.fixture(scope="module", params=SHELLS)
def attempt(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    return Attempt(request.param, tmp_path_factory.mktemp("attempt"))


bytestrings = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b""))
EVERY_BYTE = bytes(range(1, 256))
awkward = st.sampled_from(
    [b"", b" ", b"'", b'"', b"\\", b"'\\''", b"$HOME", b"`id`", b"a\nb", b"\n", b"%n", b";", b"-n", b"--",
     b"*", b"#", b"~", b"!!", b"=", b"\r", b"\xff", b"\x81'\\", b"\xe2\x82", EVERY_BYTE, b"x" * 131_071]
)  # fmt: skip


@settings(max_examples=40)
@given(arguments=st.lists(bytestrings | awkward, min_size=1, max_size=8))
def test_arguments(attempt: Attempt, arguments: list[bytes]) -> None:
    output = attempt.output(Payload((b"printf", b"%s\\0", *arguments), environment=(PATH,)))
    assert output == b"".join(argument + b"\0" for argument in arguments)


@given(data=bytestrings)
def test_quote(data: bytes) -> None:
    assert re.fullmatch(rb"(?:'[^']*'|\\')+", quote(data))


identifiers = st.from_regex(rb"[A-Za-z_][A-Za-z0-9_]{1,12}", fullmatch=True).map(lambda name: b"V" + name)
names = identifiers | st.sampled_from([b"A.B", b"a-b", b"1A", b"a b", b"\xff", b"BASH_FUNC_f%%", b"-x", b"'"])


@settings(max_examples=40)
@given(
    variables=st.dictionaries(names, bytestrings | awkward.filter(lambda data: len(data) < 9999), max_size=8)
)
def test_variables(attempt: Attempt, variables: dict[bytes, bytes]) -> None:
    environment = tuple(name + b"=" + value for name, value in variables.items())
    found = attempt.environ(Payload((b"x",), environment=(PATH, b"PYTHONUNBUFFERED=", *environment)))
    assert found.pop(b"PWD") == b"/"
    assert found == variables | {b"PATH": b"/usr/bin:/bin", b"PYTHONUNBUFFERED": b""}


# Names that sh or bash know something about, or treat in a way of their own.
_SPECIAL = b"""
BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_COMPAT
BASH_ENV BASH_LINENO BASH_LOADABLES_PATH BASH_REMATCH BASH_SOURCE BASH_SUBSHELL BASH_VERSINFO BASH_VERSION
BASH_XTRACEFD CDPATH COLUMNS COMP_WORDBREAKS DIRSTACK ENV EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME
GLOBIGNORE GROUPS HISTCMD HISTSIZE HOME HOSTNAME IFS IGNOREEOF LINENO LINES LOGNAME MACHTYPE MAIL MAILCHECK
MAPFILE OLDPWD OPTARG OPTERR OPTIND PIPESTATUS POSIXLY_CORRECT PPID PROMPT_COMMAND PS1 PS2 PS3 PS4 RANDOM
REPLY SECONDS SHELL SHELLOPTS SRANDOM TERM TMOUT TZ UID USER
"""
SPECIAL = _SPECIAL.split()


@pytest.mark.parametrize("name", SPECIAL, ids=bytes.decode)
def test_special_variables(attempt: Attempt, name: bytes) -> None:
    found = attempt.environ(Payload((b"x",), environment=(PATH,), env=((name, b"x y"),)))
    assert found.pop(b"PYTHONUNBUFFERED") == b"1"
    assert found == {b"PATH": b"/usr/bin:/bin", b"PWD": b"/", name: b"x y"}


def test_all_special_variables_at_once(attempt: Attempt) -> None:
    variables = dict.fromkeys(SPECIAL, b"7") | {
        b"PATH": b"/usr/bin:/bin",
        b"PYTHONUNBUFFERED": b"1",
    }
    found = attempt.environ(Payload((b"x",), environment=(PATH,), env=tuple(variables.items())))
    assert found.pop(b"PWD") == b"/"
    assert found == variables


def test_a_clean_environment_is_the_accounts(attempt: Attempt) -> None:
    found = attempt.environ(Payload((b"x",), environment=None, env=((b"A", b"1"), (b"LANG", b"C"))))
    account = {name.encode(): SYSTEMD[name].encode() for name in ("HOME", "LOGNAME", "PATH", "SHELL", "USER")}
    assert found == account | {b"A": b"1", b"LANG": b"C", b"PWD": b"/", b"PYTHONUNBUFFERED": b"1"}


def test_what_env_says_goes_before_what_was_exported(attempt: Attempt) -> None:
    exported = (PATH, b"A=0", b"B=0", b"B=1", b"PWD=/nowhere", b"SYSJOBS_JOB_ID=7")
    found = attempt.environ(Payload((b"x",), environment=exported, env=((b"A", b"1"), (b"USER", b"me"))))
    assert (found[b"A"], found[b"B"], found[b"USER"], found[b"PWD"]) == (b"1", b"1", b"me", b"/")
    assert b"HOME" not in found


def test_what_a_job_is_told_of_itself() -> None:
    told = {name.decode(): value.decode() for name, value in job_variables(queued()).items()}
    assert told == {
        "SYSJOBS_JOB_ID": "42",
        "SYSJOBS_JOB_NAME": "train",
        "SYSJOBS_ATTEMPT": "1",
        "SYSJOBS_CPUS": "0.5",
        "SYSJOBS_GPUS": "0",
        "SYSJOBS_MEMORY": "1073741824",
        "SKYPILOT_INTERNAL_JOB_ID": "42",
        "SKYPILOT_TASK_ID": "sysjobs-1700000000_train_42",
        "SKYPILOT_NODE_RANK": "0",
        "SKYPILOT_NODE_IPS": "127.0.0.1",
        "SKYPILOT_NUM_NODES": "1",
        "SKYPILOT_NUM_GPUS_PER_NODE": "0",
    }
    again = job_variables(replace(queued(), attempt=3))
    assert (again[b"SYSJOBS_ATTEMPT"], again[b"SLURM_RESTART_COUNT"]) == (b"3", b"2")


DIRECTORIES = [
    b"plain",
    b"with space",
    b"'quotes\"",
    b"$HOME %h;",
    b"new\nline",
    b"-x",
    b"\xff\xfe",
    EVERY_BYTE[:46],
]


@pytest.mark.parametrize("name", DIRECTORIES)
def test_working_directory(attempt: Attempt, tmp_path: Path, name: bytes) -> None:
    path = os.fsencode(tmp_path) + b"/" + name
    Path(os.fsdecode(path)).mkdir()
    command = (b"/bin/sh", b"-c", b'readlink /proc/$$/cwd; printf %s "$PWD"')
    for environment in (PATH,), (PATH, b"PWD=/", b"OLDPWD=/usr"), None:
        output = attempt.output(Payload(command, workdir=path, environment=environment))
        assert output == path + b"\n" + path


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_umask(attempt: Attempt, umask: int) -> None:
    output = attempt.output(Payload((b"/bin/sh", b"-c", b"umask"), umask=umask, environment=None))
    assert int(output, 8) == umask


# By the names that the kernel has for them.
LIMITS = {
    "open files": ("nofile", 64),
    "core file": ("core", 0),
    "file size": ("fsize", 1 << 30),
    "stack size": ("stack", 4 << 20),
    "processes": ("nproc", 100),
    "cpu time": ("cpu", 500),
    "data size": ("data", 1 << 30),
    "locked memory": ("memlock", 32 << 10),
    "address space": ("as", 1 << 32),
}


def test_limits(attempt: Attempt) -> None:
    payload = Payload((b"cat", b"/proc/self/limits"), limits=dict(LIMITS.values()), environment=(PATH,))
    lines = re.findall(
        r"^Max (\w+(?: \w+)?) .*?(\d+|unlimited)", attempt.output(payload).decode(), re.MULTILINE
    )
    soft = dict(lines)
    assert {name: (limit, int(soft[name])) for name, (limit, _) in LIMITS.items()} == LIMITS


def test_limits_that_are_none(attempt: Attempt) -> None:
    """Those that no hard limit keeps from it; names that this version doesn't know are left alone."""
    unlimited = {"cpu": -1, "as": -1, "rss": -1, "mood": 7, "$(id)": 1}
    assert resource.getrlimit(resource.RLIMIT_CPU)[1] == resource.RLIM_INFINITY
    output = attempt.output(Payload((b"cat", b"/proc/self/limits"), limits=unlimited, environment=(PATH,)))
    assert re.match(rb"Limit.*\nMax cpu time +unlimited ", output)


def test_a_limit_that_cannot_be_set(attempt: Attempt) -> None:
    above = resource.getrlimit(resource.RLIMIT_NOFILE)[1] + 1
    output = attempt.output(Payload((b"echo", b"ran"), limits={"nofile": above}, environment=(PATH,)))
    assert output == b"sysjobs: the soft limit nofile could not be set to %d\nran\n" % above


def test_no_shell_stays(attempt: Attempt) -> None:
    for environment in (PATH,), (PATH, ODD):
        process = attempt.start(Payload((b"/bin/sh", b"-c", b"echo $$"), environment=environment))
        process.communicate(timeout=60)
        assert int(attempt.log.read_bytes()) == process.pid


def test_both_streams_are_appended_to_the_log(attempt: Attempt) -> None:
    output = attempt.output(Payload((b"/bin/sh", b"-c", b"echo out; echo err >&2"), environment=None))
    assert output == b"out\nerr\n"
    flags = attempt.output(Payload((b"grep", b"flags", b"/proc/self/fdinfo/1"), environment=None))
    assert int(flags.split()[1], 8) & os.O_APPEND


@pytest.mark.parametrize("variables", [[], [ODD.decode()]])
def test_the_most_that_a_submit_takes_is_executed(attempt: Attempt, variables: list[str]) -> None:
    many = ["x" * 100_000] * 20
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    spec = {"command": ["/bin/true", "x" * 131_071, *many[:18]]}
    context = {"environment": ["PATH=/usr/bin", "V=" + "x" * 131_069, *variables], "limits": {"stack": stack}}
    new = new_job(
        Submitter(0, 0, "root"),
        Params(spec, SPEC_KEYS),
        Params(context, CONTEXT_KEYS),
        None,
        default_grace=1.0,
        now=NOW,
    )
    assert attempt.output(new.payload) == b""
