"""The command line: what its arguments become, what it prints, what it exits with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sysjobs import client as client_module
from sysjobs import wire
from sysjobs.cli import app
from sysjobs.cli.app import run
from sysjobs.cli.queue import COLUMNS
from tests.fake_daemon import Daemon
from tests.fake_server import Server
from tests.jobs import job

ENDED = {"started_at": 1_700_000_001_000_000, "ended_at": 1_700_000_002_000_000}
REPO = Path(__file__).resolve().parent.parent


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    monkeypatch.setattr(client_module.Client, "_CONNECT_PATIENCE", 0.1)
    daemon = Daemon()
    with Server(tmp_path / "socket", daemon) as server:
        monkeypatch.setenv("SYSJOBS_SOCKET", server.path)
        yield daemon


# What is submitted.


@pytest.mark.parametrize(
    ("arguments", "spec"),
    [
        (["true"], {"command": ["true"]}),
        (["--", "true"], {"command": ["true"]}),
        (["a", "b.py", "--lr", "0.1", "-n", "x"], {"command": ["a", "b.py", "--lr", "0.1", "-n", "x"]}),
        (["-n", "x", "--", "-odd", "--"], {"command": ["-odd", "--"], "name": "x"}),
        (["a", "--", "b"], {"command": ["a", "--", "b"]}),
        (["a", "\udcff"], {"command": ["a", {"b64": "/w=="}]}),
        (["-c", "a | b"], {"shell": "a | b"}),
        (["--command-line=a"], {"shell": "a"}),
        (["-c", ""], {"shell": ""}),
        (["--cpus", "0.25", "true"], {"command": ["true"], "cpus": 0.25}),
        (["--cpus", "2", "true"], {"command": ["true"], "cpus": 2}),
        (
            ["--memory", "4G", "-t", "1h", "--grace", "5s", "--setup", "make", "true"],
            {"command": ["true"], "memory": "4G", "time": "1h", "grace": "5s", "setup": "make"},
        ),
        (["--env", "A=1=2", "--env", "B=", "--env", "HOME", "true"],
         {"command": ["true"], "env": {"A": "1=2", "B": "", "HOME": "/home/x"}}),
        (["--env-file", "vars", "--env", "A=2", "a"], {"command": ["a"], "env": {"A": "2", "B": "b c"}}),
    ],
)  # fmt: skip
def test_submit(
    daemon: Daemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    spec: dict[str, Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/x")
    Path("vars").write_text("A=1\nB='b c'\n")
    assert run(["submit", *arguments]) == 0
    assert daemon.parameters["job"] == spec | {"workdir": str(tmp_path)}


def test_submit_environment(daemon: Daemon, tmp_path: Path) -> None:
    assert run(["submit", "-C", "..", "true"]) == 0
    assert daemon.parameters["job"]["workdir"] == f"{Path.cwd()}/.."
    names = [wire.from_wire(pair).partition(b"=")[0] for pair in daemon.parameters["context"]["environment"]]
    assert b"PATH" in names
    assert b"SYSJOBS_SOCKET" not in names
    assert run(["submit", "--export", "none", "true"]) == 0
    assert "environment" not in daemon.parameters["context"]


@pytest.mark.parametrize(
    ("arguments", "output"),
    [([], "Submitted job 42\n"), (["--parsable"], "42\n"), (["--json"], '{"id": 42}\n')],
)
def test_submit_output(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], arguments: list[str], output: str
) -> None:
    assert run(["submit", *arguments, "true"]) == 0
    assert capsys.readouterr() == (output, "")


def test_an_id_that_cannot_be_printed(daemon: Daemon) -> None:
    """That its job is submitted is said in any case: else it would be submitted again."""
    line = [sys.executable, "-m", "sysjobs", "submit", "true"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, cwd=REPO, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("sysjobs: Job 42 is submitted, but that can't be printed: No space left")


# What goes wrong.


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("", 2, "Missing command"),
        ("nonsense", 2, "nonsense"),
        ("submit", 2, "no COMMAND"),
        ("submit -c a b", 2, "both"),
        ("submit --odd true", 2, "--odd"),
        ("submit --parsable --json true", 2, "exclude"),
        ("submit --env =x true", 2, "no name"),
        ("submit --env MISSING_1 true", 2, "MISSING_1"),
        ("submit --env \udcff=x true", 2, "not UTF-8"),
        ("submit --env-file /nowhere/x true", 2, "/nowhere/x"),
        ("submit --cpus many true", 2, "--cpus 'many'"),
        ("submit --cpus nan true", 2, "--cpus 'nan'"),
        ("submit --cpus -1 true", 2, "--cpus '-1'"),
        ("submit -C /nowhere true", 2, "/nowhere"),
        ("submit -C /etc/passwd true", 2, "Not a directory"),
        ("show 7", 1, "no such job"),
        ("show", 2, "ID"),
        ("logs 7", 102, "no such job"),
        ("logs --status 7", 102, "no such job"),
        ("logs --status -f 42", 2, "--status"),
        ("logs --tail -1 42", 2, "--tail"),
        ("wait 7", 102, "no such job"),
        ("wait", 2, "ID"),
        ("wait --timeout soon 42", 2, "--timeout 'soon'"),
        ("cancel", 2, "--all"),
        ("cancel --all 42", 2, "--all"),
        ("queue --status odd", 2, "odd"),
        ("queue --limit -1", 2, "--limit"),
        ("--socket /nowhere/socket queue", 3, "/nowhere/socket"),
        ("--socket /etc/passwd submit true", 3, "isn't running"),
    ],
)
def test_errors(daemon: Daemon, capsys: pytest.CaptureFixture[str], line: str, code: int, words: str) -> None:
    """One line says what went wrong with which value, one what to do."""
    assert run(line.split()) == code
    out, err = capsys.readouterr()
    assert out == ""
    message, hint = err.splitlines()
    assert message.startswith("sysjobs: ")
    assert words.lower() in message.lower()
    assert hint.startswith("  ")


def test_a_fault_of_ours_has_no_traceback(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(app.COMMANDS, "queue", ("sysjobs.cli.nowhere", ""))
    assert run(["queue"]) == 1
    assert "fault in sysjobs" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["", *app.COMMANDS])
def test_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert run([*command.split(), "--help"]) == 0
    out, err = capsys.readouterr()
    assert "Example:" in out
    assert err == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("sysjobs 0.")


# Lists and details.


@pytest.mark.parametrize(
    ("line", "parameters"),
    [
        ("queue", {"all_users": False, "unfinished": False, "limit": 1000}),
        ("queue -s -a --limit 0", {"all_users": True, "unfinished": True, "limit": 0}),
        ("queue --status running --status FAILED",
         {"all_users": False, "unfinished": False, "limit": 1000, "statuses": ["RUNNING", "FAILED"]}),
        ("queue 1 3-9 @", {"all_users": True, "unfinished": False, "limit": 1000, "ids": ["1", "3-9", "@"]}),
    ],
)  # fmt: skip
def test_queue_asks(daemon: Daemon, line: str, parameters: dict[str, Any]) -> None:
    assert run(line.split()) == 0
    assert daemon.parameters == parameters


def test_queue_prints(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.jobs[43] = job(
        id=43, name="a\x1b[2Jb", status="FAILED", reason="exit code\n3", memory=4 << 30, **ENDED
    )
    daemon.reply = {"left_out": 2, "damaged": [9, 7, 8]}
    assert run(["queue"]) == 0
    out, err = capsys.readouterr()
    header, first, second = out.splitlines()
    assert header.split() == [*COLUMNS, "REASON"]
    assert first.split()[:3] == ["42", "train", "alice"]
    assert "a\\x1b[2Jb" in second
    assert "1s" in second.split()
    assert "cpus=0.5,memory=4G" in second
    assert second.endswith("exit code\\n3")
    assert "2 older jobs" in err
    assert "sysjobs: The records of jobs 7-9 are damaged, and left out; " in err


def test_queue_json(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.jobs = {}
    assert run(["queue", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    daemon.jobs = {42: job(status="FAILED", reason="r", reason_code="exit-code", exit_code=3, **ENDED)}
    assert run(["queue", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert [*shown] == [
        "id", "name", "user", "status", "reason", "reason_code", "exit_code", "signal", "submitted_at",
        "started_at", "ended_at", "waited", "resources", "unit", "log", "attempt", "priority",
        "cpu_time", "peak_memory", "io_read", "io_written", "array", "array_id", "task", "params",
    ]  # fmt: skip
    assert shown["resources"] == {"cpus": 0.5, "memory": None, "gpus": None}


def test_show(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.reply = {"spec": {"command": ["a b", {"b64": "/w=="}], "workdir": "/tmp"}, "time_limit": 90.0}
    assert run(["show", "42"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["Command"] == "'a b' '\\xff'"
    assert lines["Directory"] == "/tmp"
    assert lines["Status"] == "PENDING"
    assert run(["show", "--json", "42"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["spec"]["command"] == ["a b", {"b64": "/w=="}]
    assert shown["status"] == "PENDING"
    assert shown["time_limit"] == 90


# Cancel and wait.


@pytest.mark.parametrize(
    ("outcomes", "missing", "code"),
    [
        (["cancelled"], [], 0),
        (["cancelling"], [], 0),
        (["ended"], [], 0),
        (["cancelled", "denied"], [], 1),
        (["cancelled"], ["7"], 1),
    ],
)
def test_cancel(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], outcomes: list[str], missing: list[str], code: int
) -> None:
    results = [
        {"id": number, "name": "train", "status": "FAILED", "outcome": outcome}
        for number, outcome in enumerate(outcomes)
    ]
    daemon.reply = {"results": results, "missing": missing}
    assert run(["cancel", "3-9", "train", "--reason", "no use", "--grace", "5s"]) == code
    assert daemon.parameters == {"ids": ["3-9", "train"], "reason": "no use", "grace": "5s"}
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == len(outcomes)
    assert len(err.splitlines()) == len(missing)


def test_cancel_of_what_can_not_be_read(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    result = {"id": 3, "name": "train", "status": "FAILED", "outcome": "ended"}
    daemon.reply = {"results": [result], "missing": [], "damaged": [5, 4]}
    assert run(["cancel", "3-9"]) == 1
    out, err = capsys.readouterr()
    assert out == "Job 3 (train) had ended before: FAILED.\n"
    assert err.startswith("sysjobs: The records of jobs 4-5 are damaged, and left alone; ")


def test_cancel_all(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.reply = {"results": [], "missing": []}
    assert run(["cancel", "--all"]) == 0
    assert daemon.parameters == {"all": True}
    assert "nothing to cancel" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ends", "code", "propagated"),
    [
        ([("SUCCEEDED", 0, None)], 0, 0),
        ([("FAILED", 3, None)], 100, 3),
        ([("FAILED", None, 9)], 100, 137),
        ([("FAILED_SETUP", None, None)], 100, 100),
        ([("FAILED_DRIVER", None, 9)], 100, 137),
        ([("CANCELLED", None, None)], 103, 103),
        ([("CANCELLED", None, 15)], 103, 143),
        ([("CANCELLED", 0, None)], 103, 103),
        ([("SUCCEEDED", 0, None), ("CANCELLED", None, None), ("FAILED", 3, None)], 100, 103),
        ([("SUCCEEDED", 0, None), ("CANCELLED", None, 15)], 103, 143),
    ],
)
def test_wait(
    daemon: Daemon, ends: list[tuple[str, int | None, int | None]], code: int, propagated: int
) -> None:
    daemon.jobs = {
        number: job(id=number, status=status, exit_code=exit_code, signal=signal, **ENDED)
        for number, (status, exit_code, signal) in enumerate(ends)
    }
    ids = [str(number) for number in daemon.jobs]
    assert run(["wait", *ids]) == code
    assert run(["wait", "--propagate", *ids]) == propagated


@pytest.mark.parametrize("timeout", ["0", "0.1"])
def test_wait_timeout(daemon: Daemon, capsys: pytest.CaptureFixture[str], timeout: str) -> None:
    daemon.jobs[41] = job(id=41, status="FAILED", **ENDED)
    assert run(["wait", "--timeout", timeout, "41", "42"]) == 101
    out, err = capsys.readouterr()
    assert out == "Job 41 FAILED\n"
    assert err.endswith(": 42\n")


# Start time.


def test_submit_imports_little(daemon: Daemon) -> None:
    """What a submit imports beyond click, with the locale that its messages need."""
    code = (
        "import sys, click, json, socket; before = set(sys.modules); from sysjobs.cli.app import run;"
        "run(['submit', 'true']); print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, check=True, text=True, env=os.environ | {"PYTHONPATH": str(REPO)},
    )  # fmt: skip
    others = {name for name in done.stderr.split() if name.partition(".")[0] != "sysjobs"}
    assert others <= {"__future__", "gc", "resource", "_struct", "struct", "binascii", "locale", "_locale"}
    ours = {name.removeprefix("sysjobs.") for name in done.stderr.split()} - others
    assert ours <= {
        "sysjobs", "cli", "cli.app", "cli.output", "cli.submit",
        "caller", "client", "connection", "context", "environment", "errors", "wire",
    }  # fmt: skip
