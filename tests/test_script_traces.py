"""The start scripts, run for real: what they leave of a step that failed, and how that is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sysjobs.engine.outcome import Seen, outcome
from sysjobs.engine.script import Traces
from sysjobs.payload import Payload
from tests.attempt import ODD, PATH, SHELLS, Attempt
from tests.test_outcome import told, unit


@pytest.fixture(scope="module", params=SHELLS)
def attempt(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    return Attempt(request.param, tmp_path_factory.mktemp("attempt"))


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Things that can't be executed, and some that can."""
    (tmp_path / "text").write_text("no program")
    (tmp_path / "garbage").write_bytes(b"\0\1\2")
    (tmp_path / "no-interpreter").write_text("#!/no/such/interpreter\n")
    (tmp_path / "plain").write_text('echo "plain $1"; exit 9\n')
    (tmp_path / "a=b").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "-x").write_text("#!/bin/sh\nexit 9\n")
    for name in ("garbage", "no-interpreter", "plain", "a=b", "-x"):
        (tmp_path / name).chmod(0o755)
    return tmp_path


COMMANDS = [
    ("no-such-command", "FAILED_DRIVER no-command, exit code 127"),
    ("./no-such-command", "FAILED_DRIVER no-command, exit code 127"),
    ("no 'such\ncommand", "FAILED_DRIVER no-command, exit code 127"),
    ("-c", "FAILED_DRIVER no-command, exit code 127"),
    ("./text", "FAILED_DRIVER not-executable, exit code 126"),
    ("/", "FAILED_DRIVER not-executable, exit code 126"),
    ("./plain", "FAILED exit-code, exit code 9"),
    ("./a=b", "FAILED exit-code, exit code 9"),
    ("./-x", "FAILED exit-code, exit code 9"),
    ("-x", "FAILED exit-code, exit code 9"),
    ("false", "FAILED exit-code, exit code 1"),
    ("test", "FAILED exit-code, exit code 1"),
]
ONLY_PLAIN = [
    ("./no-interpreter", "FAILED_DRIVER no-interpreter, exit code 127"),
    ("./garbage", "FAILED_DRIVER not-executable, exit code 126"),
    ("cd", "FAILED_DRIVER no-command, exit code 127"),
]


@pytest.mark.parametrize(
    ("command", "variables", "expected"),
    [
        *((command, (), expected) for command, expected in COMMANDS + ONLY_PLAIN),
        *((command, (ODD,), expected) for command, expected in COMMANDS),
    ],
)
def test_commands(
    attempt: Attempt, programs: Path, command: str, variables: tuple[bytes, ...], expected: str
) -> None:
    """A command that can't be run is told from one that fails, also where env(1) comes in between."""
    environment = (b"PATH=/usr/bin:/bin:" + os.fsencode(programs), *variables)
    payload = Payload((command.encode(),), workdir=os.fsencode(programs), environment=environment)
    code = attempt.run(payload)
    assert told(outcome(Seen(unit("failed", "exit-code", (1, code)), attempt.traces))) == expected
    assert attempt.traces.phase == "run"
    if "DRIVER" in expected:
        assert Path(command).name.encode() in attempt.log.read_bytes(), "the log says so too"


@pytest.mark.parametrize("variables", [(), (ODD,)])
@pytest.mark.parametrize("code", [0, 1, 2, 126, 127, 137, 200, 203, 255])
def test_exit_codes_of_its_own(attempt: Attempt, code: int, variables: tuple[bytes, ...]) -> None:
    command = (b"/bin/sh", b"-c", b"exit %d" % code)
    assert attempt.run(Payload(command, environment=(PATH, *variables))) == code
    assert attempt.traces == Traces("run")


def test_the_log_of_an_earlier_job_of_this_number_is_put_aside(attempt: Attempt) -> None:
    """A lost database forgets its number, not its log."""
    process = attempt.start(Payload((b"echo", b"new"), environment=(PATH,)))
    process.communicate(timeout=60)
    assert attempt.again() == 0
    assert attempt.log.read_bytes() == b"new\n"
    assert Path(f"{attempt.log}.earlier").read_bytes() == b"new\n"


def test_a_signal_leaves_no_trace(attempt: Attempt) -> None:
    assert attempt.run(Payload((b"/bin/sh", b"-c", b"kill $$"), environment=None)) == -15
    assert attempt.traces == Traces("run")


def test_no_directory(attempt: Attempt, programs: Path) -> None:
    for name in (b"missing", b"text"):
        code = attempt.run(Payload((b"true",), workdir=os.fsencode(programs) + b"/" + name, environment=None))
        end = outcome(Seen(unit("failed", "exit-code", (1, code)), attempt.traces))
        assert told(end) == "FAILED_DRIVER no-directory"
        assert name in attempt.log.read_bytes()


def test_no_log(attempt: Attempt) -> None:
    """Something that isn't a file is in its place when the script begins."""
    attempt.run(Payload((b"true",), environment=None))
    attempt.log.unlink()
    attempt.log.mkdir()
    code = attempt.again()
    attempt.log.rmdir()
    end = outcome(Seen(unit("failed", "exit-code", (1, code)), attempt.traces))
    assert told(end) == "FAILED_DRIVER no-log"


SETUPS = [
    (b"true", 0, 0),
    (b"", 0, 0),
    (b"# nothing", 0, 0),
    (b"false\ntrue", 0, 0),
    (b"exit 7", 7, 7),
    (b"false", 1, 1),
    (b"set -e; false; true", 1, 1),
    (b"no-such-command", 127, 127),
    (b"exit 126", 126, 126),
    (b"cat <<END\n$A 'x\nEND", 0, 0),
    (b"trap 'echo own' EXIT; exit 5", 5, None),
    (b"exec true", 0, None),
    (b"if", 2, None),
    (b"kill -9 $$", -9, None),
]


@pytest.mark.parametrize(("text", "code", "trace"), SETUPS)
def test_setup(attempt: Attempt, text: bytes, code: int, trace: int | None) -> None:
    payload = Payload((b"true",), setup=text, environment=(PATH, b"A=1"))
    assert attempt.run(payload, setup=True) == code
    assert attempt.traces == Traces("setup", setup_code=trace)
    assert not attempt.log.exists()
    expected = {b"cat <<END\n$A 'x\nEND": b"1 'x\n", b"trap 'echo own' EXIT; exit 5": b"own\n"}
    if code in (0, 5):
        assert attempt.setup_log.read_bytes() == expected.get(text, b"")


def test_setup_runs_where_and_as_the_job_does(attempt: Attempt, tmp_path: Path) -> None:
    text = b"pwd; umask; ulimit -n; echo $A; f; [[ -n $BASH_VERSION ]] && echo bash"
    payload = Payload(
        (b"x",),
        setup=text,
        workdir=os.fsencode(tmp_path),
        umask=0o27,
        limits={"nofile": 64},
        environment=(PATH, b"A=1", ODD),
    )
    assert attempt.run(payload, setup=True) == 0
    assert attempt.setup_log.read_text() == f"{tmp_path}\n0027\n64\n1\nf\nbash\n"


def test_a_job_that_was_told_to_end_during_its_setup(attempt: Attempt) -> None:
    """Its command does not begin when setup takes SIGTERM for a reason to end well."""
    assert attempt.run(Payload((b"true",), setup=b"true", environment=None), setup=True) == 0
    attempt.files.mark_ending(attempt.job)
    attempt.files.mark_ending(attempt.job)
    assert attempt.again() == -15
    assert attempt.traces == Traces("run", setup_code=0)
    assert not attempt.log.exists()


def test_setup_that_cannot_begin(attempt: Attempt) -> None:
    payload = Payload((b"x",), setup=b"true", workdir=b"/nowhere", environment=None)
    code = attempt.run(payload, setup=True)
    end = outcome(Seen(unit("failed", "exit-code", (0, 0), (1, code)), attempt.traces))
    assert told(end) == "FAILED_DRIVER no-directory"
