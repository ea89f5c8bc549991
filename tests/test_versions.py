"""A client and a daemon of different versions: what both know works; errors name both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sysjobs
from sysjobs import client as client_module
from sysjobs.cli.app import run
from sysjobs.client import Client
from sysjobs.errors import Refused, SysjobsError, Unreachable
from tests.fake_daemon import Daemon
from tests.fake_server import Peer, Server
from tests.jobs import job

ENDED = {"started_at": 1_700_000_001_000_000, "ended_at": 1_700_000_002_000_000}
MINE = sysjobs.__version__
SERVICE = "org.varlink.service"


class OtherDaemon(Daemon):
    """A daemon of this version (None: it doesn't say), which answers the calls in `errors` with those."""

    def __init__(self) -> None:
        super().__init__()
        self.version: object = "99.0.0"
        self.errors: dict[str, tuple[str, dict[str, str]]] = {}

    def __call__(self, peer: Peer, call: dict[str, Any]) -> None:
        method = call["method"].rpartition(".")[2]
        if method == "GetInfo" and self.version is None:
            peer.error(f"{SERVICE}.MethodNotFound", method=call["method"])
        elif method == "GetInfo":
            peer.reply(vendor="sysjobs", product="sysjobsd", version=self.version, url="", interfaces=[])
        elif method in self.errors:
            name, values = self.errors[method]
            peer.error(name, **values)
        else:
            super().__call__(peer, call)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OtherDaemon]:
    monkeypatch.setattr(client_module.Client, "_CONNECT_PATIENCE", 0.1)
    daemon = OtherDaemon()
    with Server(tmp_path / "socket", daemon) as server:
        monkeypatch.setenv("SYSJOBS_SOCKET", server.path)
        yield daemon


def said(method: str, *values: object) -> SysjobsError:
    """The error that the client makes of a call."""
    with Client() as client, pytest.raises(SysjobsError) as caught:
        getattr(client, method)(*values)
    return caught.value


@pytest.mark.parametrize(
    ("version", "who", "advice"),
    [
        (
            "0.0.9",
            "sysjobsd 0.0.9",
            "systemctl restart sysjobsd. If it is 0.0.9 then too, upgrade its package",
        ),
        ("0.0.10~rc1", "sysjobsd 0.0.10~rc1", "systemctl restart sysjobsd"),
        ("99.0.0", "sysjobsd 99.0.0", "Install sysjobs 99.0.0 here too"),
        ("0.10.0", "sysjobsd 0.10.0", "Install sysjobs 0.10.0 here too"),
        (MINE, f"sysjobsd {MINE}", "same version, so this is a fault in sysjobs"),
        (None, "sysjobsd of an unknown version", "systemctl restart sysjobsd. If it is the same then too"),
        ("", "sysjobsd of an unknown version", "systemctl restart sysjobsd"),
    ],
)
def test_both_versions_are_named(daemon: OtherDaemon, version: str | None, who: str, advice: str) -> None:
    daemon.version = version
    daemon.errors = {
        "Show": (f"{SERVICE}.MethodNotFound", {"method": "io.sysjobs.Show"}),
        "Submit": (f"{SERVICE}.InvalidParameter", {"parameter": "job.gpus"}),
        "List": ("io.sysjobs.Odd", {}),
    }
    daemon.reply = {"results": None, "missing": []}
    for method, values, what in (
        ("show", [1], "doesn't know Show."),
        ("submit", [["true"]], "refuses the parameter 'job.gpus' of Submit."),
        ("list", [], "answers List with io.sysjobs.Odd."),
    ):
        error = said(method, *values)
        assert error.message == f"{who}, asked by sysjobs {MINE}, {what}"
        assert advice in error.hint
        assert (type(error), error.code, error.exit_code) == (Refused, "version-mismatch", 1)
    error = said("cancel", [1])
    assert (
        error.message == f"The answer of {who}, asked by sysjobs {MINE}, makes no sense: an array is missing."
    )
    assert advice in error.hint
    assert (type(error), error.code, error.exit_code) == (Unreachable, "bad-answer", 3)


def test_a_watch_that_is_not_understood(daemon: OtherDaemon) -> None:
    daemon.errors = {"Watch": (f"{SERVICE}.InvalidParameter", {"parameter": "ids"})}
    with Client() as client, pytest.raises(Refused, match=r"sysjobsd 99\.0\.0, asked by sysjobs"):
        next(client.watch([42]))


def test_what_is_not_known_yet_is_passed_on(daemon: OtherDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    """Statuses, outcomes, reasons, signals and fields of a newer daemon."""
    new = {"mood": {"today": "good"}, "retries": 3}
    daemon.jobs = {
        42: job(id=42, status="SUSPENDED", reason_code="mood", reason="In no mood.", **new),
        43: job(id=43, status="EVAPORATED", signal=200, **ENDED, **new),
    }
    result = {"id": 42, "name": "", "status": "SUSPENDED", "outcome": "dissolving"}
    daemon.reply = new | {"results": [result | new], "missing": []}
    for line, code, words in (
        ("queue", 0, ["SUSPENDED", "EVAPORATED", "In no mood."]),
        ("queue --json", 0, ['"status": "SUSPENDED"']),
        ("show 42", 0, ["SUSPENDED", "In no mood."]),
        ("show 43", 0, ["EVAPORATED", "signal 200"]),
        ("show --json 43", 0, ['"status": "EVAPORATED"']),
        ("logs --status 42", 101, ["SUSPENDED"]),
        ("logs --status 43", 100, ["EVAPORATED"]),
        ("wait 43", 100, ["EVAPORATED"]),
        ("wait --timeout 0 42", 101, []),
        ("cancel 42", 0, ["Job 42: dissolving."]),
        ("submit true", 0, ["Submitted job 42"]),
    ):
        assert run(line.split()) == code, line
        out = capsys.readouterr().out
        assert all(word in out for word in words), (line, out)


def test_an_error_of_a_kind_that_is_not_known_yet(daemon: OtherDaemon) -> None:
    words = {"code": "too-moody", "message": "In no mood.", "hint": "Come back.", "more": "1"}
    daemon.errors = {"Show": ("io.sysjobs.Moody", words)}
    error = said("show", 42)
    assert (type(error), error.code, error.message, error.hint) == (
        Refused,
        "too-moody",
        "In no mood.",
        "Come back.",
    )
