"""sysjobs logs: byte for byte, while the log grows, until the job or the reader ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sysjobs.cli.app import run
from tests.fake_daemon import Daemon
from tests.fake_server import Peer, Server
from tests.jobs import job

ENDED = {"started_at": 1_700_000_001_000_000, "ended_at": 1_700_000_002_000_000}
REPO = Path(__file__).resolve().parent.parent


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    daemon = Daemon()
    with Server(tmp_path / "socket", daemon) as server:
        monkeypatch.setenv("SYSJOBS_SOCKET", server.path)
        yield daemon


@pytest.fixture
def log(daemon: Daemon, tmp_path: Path) -> Path:
    log = tmp_path / "42.log"
    daemon.jobs[42] = job(status="RUNNING", log=str(log))
    return log


def test_a_log_that_is_no_file(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.mkdir()
    assert run(["logs", "42"]) == 1
    log.rmdir()
    os.mkfifo(log)
    assert run(["logs", "--tail", "1", "42"]) == 1
    assert run(["logs", "-f", "42"]) == 1
    log.unlink()
    log.symlink_to(REPO / "README.md")
    assert run(["logs", "42"]) == 1
    assert run(["logs", "-f", "42"]) == 1
    said = capsys.readouterr()
    assert said.err.count(f"The log {log} is not a file of the job's user.") == 5
    assert said.out == ""


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("SUCCEEDED", 0), ("FAILED", 100), ("FAILED_SETUP", 100), ("FAILED_DRIVER", 100), ("CANCELLED", 103),
        ("INIT", 101), ("PENDING", 101), ("SETTING_UP", 101), ("RUNNING", 101),
    ],
)  # fmt: skip
def test_logs_status(daemon: Daemon, capsys: pytest.CaptureFixture[str], status: str, code: int) -> None:
    daemon.jobs[42] = job(status=status)
    assert run(["logs", "--status", "42"]) == code
    assert capsys.readouterr().out == f"Job 42 {status}\n"


def test_logs_are_exact(log: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    log.write_bytes(b"a\r\n\xff\x00\x1b[2J\r50%\rend")
    assert run(["logs", "42"]) == 0
    assert capfdbinary.readouterr() == (b"a\r\n\xff\x00\x1b[2J\r50%\rend", b"")
    assert run(["logs", "--tail", "1", "42"]) == 0
    assert capfdbinary.readouterr().out == b"\xff\x00\x1b[2J\r50%\rend"


def test_a_log_that_is_gone(daemon: Daemon, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.jobs[42] = job(status="SUCCEEDED", log=str(log), exit_code=0, **ENDED)
    assert run(["logs", "42"]) == 1
    assert run(["logs", "-f", "42"]) == 1
    assert capsys.readouterr().err.count(f"The log {log} is gone.") == 2
    # It never came to have one.
    daemon.jobs[42] = job(status="FAILED_DRIVER", log=str(log), **ENDED)
    assert run(["logs", "42"]) == 0
    assert run(["logs", "-f", "42"]) == 100
    assert "is gone" not in capsys.readouterr().err


def test_logs_of_somebody_else(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.jobs[42] = job(log=None)
    assert run(["logs", "42"]) == 1
    assert "belongs to alice" in capsys.readouterr().err


def test_no_log_says_why(daemon: Daemon, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.jobs[42] |= {"status": "PENDING", "reason": "waits for 2 CPUs"}
    assert run(["logs", "42"]) == 0
    assert "PENDING: waits for 2 CPUs" in capsys.readouterr().err
    daemon.jobs[42] |= {"status": "FAILED_DRIVER", "reason": "No such command.", "ended_at": 1}
    assert run(["logs", "42"]) == 0
    assert capsys.readouterr() == ("", "sysjobs: Job 42 FAILED_DRIVER: No such command\n")
    assert run(["logs", "--setup", "42"]) == 1
    assert "has no setup" in capsys.readouterr().err


def test_follow(daemon: Daemon, log: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """From before the log exists to its last byte, across a restart of the daemon."""
    restart = None
    states: Iterator[list[tuple[str, bytes | None] | None]] = iter(
        [
            [("PENDING", None), ("RUNNING", b"one\n"), restart],
            [("RUNNING", b"two"), ("FAILED", b" and the last byte")],
        ]
    )

    def watch(peer: Peer, _: dict[str, Any]) -> None:
        for state in next(states):
            if state is restart:
                peer.hang_up()
                return
            assert state is not None
            status, data = state
            if data is not None:
                with log.open("ab") as file:
                    file.write(data)
            ended = {"ended_at": 1, "reason": "exit code 3"} if status == "FAILED" else {}
            peer.reply(continues=not ended, job=job(status=status, log=str(log), **ended))

    daemon.jobs[42]["status"] = "PENDING"
    daemon.watch = watch
    assert run(["logs", "-f", "42"]) == 100
    out, err = capfdbinary.readouterr()
    assert out == b"one\ntwo and the last byte"
    assert err.splitlines()[-1] == b"sysjobs: Job 42 FAILED: exit code 3"


def test_follow_shows_writes_without_news(daemon: Daemon, log: Path) -> None:
    """A growing log is shown while the daemon has nothing to say."""
    log.write_bytes(b"1\n2\n3\n")
    over = threading.Event()

    def watch(peer: Peer, _: dict[str, Any]) -> None:
        peer.reply(continues=True, job=job(status="RUNNING", log=str(log)))
        over.wait(10)
        peer.reply(job=job(status="SUCCEEDED", log=str(log), **ENDED))

    daemon.watch = watch
    with _start("logs", "-f", "--tail", "1", "42") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"3\n"
        for line in (b"4\n", b"5\n"):
            with log.open("ab") as file:
                file.write(line)
            assert process.stdout.readline() == line
        over.set()
        assert process.stdout.read() == b""
        assert process.wait(5) == 0


@pytest.mark.parametrize("silent", [True, False])
def test_follow_ends_with_its_reader(daemon: Daemon, log: Path, silent: bool) -> None:
    log.write_bytes(b"x\n")
    with _start("logs", "-f", "42") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"x\n"
        process.stdout.close()
        if not silent:
            log.write_bytes(b"x\n" * 10)
        assert process.wait(5) == 141
        assert process.stderr.read() == b""


def test_follow_is_interrupted_quietly(daemon: Daemon, log: Path) -> None:
    log.write_bytes(b"x\n")
    with _start("logs", "-f", "42") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"x\n"
        process.send_signal(2)
        assert process.wait(5) == 130
        assert process.stderr.read() == b""


def test_run_shows_a_log_that_was_over_with_setup(
    daemon: Daemon, log: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Nobody is told of each status that a job is in for a moment."""
    setup = tmp_path / "42.setup.log"
    setup.touch()
    daemon.jobs[42]["status"] = "SETTING_UP"
    daemon.reply = {"setup_log": str(setup)}

    def watch(peer: Peer, _: dict[str, Any]) -> None:
        setup.write_text("set up\n")
        log.write_text("hi\n")
        peer.reply(continues=True, job=job(status="SETTING_UP", log=str(log)))
        peer.reply(job=job(status="FAILED", exit_code=3, reason="exit code 3", log=str(log), **ENDED))

    daemon.watch = watch
    assert run(["run", "--setup", "echo set up", "-c", "echo hi; exit 3"]) == 3
    out, err = capfdbinary.readouterr()
    assert out == b"hi\n"
    assert err == b"sysjobs: Submitted job 42\nset up\nsysjobs: Job 42 FAILED: exit code 3\n"


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "sysjobs", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(REPO)},
    )
