"""The client against peers that answer, misbehave, or go away."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sysjobs import caller, wire
from sysjobs import client as client_module
from sysjobs.client import Client
from sysjobs.errors import Denied, NotFound, Refused, SysjobsError, Unavailable, Unreachable
from tests.fake_server import Answer, Peer, Server
from tests.jobs import job
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module.Client, "_CONNECT_PATIENCE", 0.1)
    monkeypatch.setattr(client_module.Client, "_LOST_PATIENCE", 0.3)
    monkeypatch.setattr(client_module.Client, "_WATCH_PATIENCE", 0.3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


def replies(*answers: Answer) -> Answer:
    """One answer a call, the last for all that follow."""
    left = list(answers)

    def answer(peer: Peer, call: dict[str, Any]) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(peer, call)

    return answer


def accepts(peer: Peer, _: dict[str, Any]) -> None:
    peer.reply(id=42)


def hangs_up(peer: Peer, _: dict[str, Any]) -> None:
    peer.hang_up()


def test_submit_is_byte_for_byte(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"ODD", b"\xff")
    monkeypatch.setitem(os.environb, b"SSH_AUTH_SOCK", b"/agent")
    directory = os.fsencode(tmp_path) + b"/d\xff"
    Path(os.fsdecode(directory)).mkdir()
    with Server(path, accepts) as server, Client(server.path) as client:
        assert client.submit([b"a\xff", "\udcfe", "x y"], workdir=directory, env={"K": b"\xfd"}) == 42
        parameters = server.calls[0]["parameters"]
    spec = parameters["job"]
    assert [wire.from_wire(argument) for argument in spec["command"]] == [b"a\xff", b"\xfe", b"x y"]
    assert wire.from_wire(spec["workdir"]) == directory
    assert wire.from_wire(spec["env"]["K"]) == b"\xfd"
    environment = [wire.from_wire(pair) for pair in parameters["context"]["environment"]]
    assert b"ODD=\xff" in environment
    assert b"SSH_AUTH_SOCK=/agent" not in environment
    assert "shell" not in spec


def test_submit_context(path: Path) -> None:
    before = os.umask(0o027)
    try:
        with Server(path, accepts) as server, Client(server.path) as client:
            client.submit(shell="true", export=False, memory=1 << 30, time=90)
            parameters = server.calls[0]["parameters"]
    finally:
        os.umask(before)
    assert parameters["context"]["umask"] == 0o027
    assert parameters["context"]["limits"]["nofile"] > 0
    assert "environment" not in parameters["context"]
    assert parameters["job"] == {
        "shell": "true", "memory": "1073741824", "time": "90", "workdir": str(Path.cwd())
    }  # fmt: skip


@pytest.mark.parametrize("workdir", ["missing", "file", "locked"])
def test_workdir_must_be_enterable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workdir: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "locked").mkdir()
    # Root may enter any directory.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(Refused, match=workdir) as caught:
        Client("/nowhere").submit(["true"], workdir=tmp_path / workdir)
    assert caught.value.code == "bad-workdir"


def test_lost_reply_is_the_same_job(path: Path) -> None:
    with Server(path, replies(hangs_up, accepts)) as server, Client(server.path) as client:
        assert client.submit(["true"]) == 42
        client.submit(["true"])
        first, again, other = (call["parameters"]["key"] for call in server.calls)
    assert first == again
    assert first != other


def test_connection_is_reused_and_made_anew(path: Path) -> None:
    with Server(path, replies(accepts, accepts, hangs_up, accepts)) as server, Client(server.path) as client:
        client.submit(["true"])
        client.submit(["true"])
        assert server.connections == 1
        client.submit(["true"])
        assert server.connections == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("io.sysjobs.Refused", Refused),
        ("io.sysjobs.NotFound", NotFound),
        ("io.sysjobs.Denied", Denied),
        ("io.sysjobs.Unavailable", Unavailable),
    ],
)
def test_errors(path: Path, name: str, kind: type[SysjobsError]) -> None:
    def answer(peer: Peer, _: dict[str, Any]) -> None:
        peer.error(name, code="c", message="m", hint="h")

    with Server(path, answer) as server, Client(server.path) as client, pytest.raises(kind) as caught:
        client.show(1)
    assert (caught.value.code, caught.value.message, caught.value.hint) == ("c", "m", "h")
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("name", "parameters", "code", "exit_code"),
    [
        ("org.varlink.service.MethodNotFound", {"method": "io.sysjobs.Show"}, "version-mismatch", 1),
        ("org.varlink.service.MethodNotImplemented", {"method": "io.sysjobs.Show"}, "version-mismatch", 1),
        ("org.varlink.service.InvalidParameter", {"parameter": "id"}, "version-mismatch", 1),
        ("org.varlink.service.PermissionDenied", {}, "denied", 1),
        ("org.varlink.service.InterfaceNotFound", {"interface": "io.sysjobs"}, "not-sysjobsd", 3),
        ("com.example.Odd", {}, "version-mismatch", 1),
    ],
)
def test_standard_errors(
    path: Path, name: str, parameters: dict[str, str], code: str, exit_code: int
) -> None:
    def answer(peer: Peer, _: dict[str, Any]) -> None:
        peer.error(name, **parameters)

    with Server(path, answer) as server, Client(server.path) as client, pytest.raises(SysjobsError) as caught:
        client.show(1)
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n\0", "not-sysjobsd"),
        (b"[]\0", "not-sysjobsd"),
        (b'{"parameters": 1}\0', "not-sysjobsd"),
        (b"\0", "not-sysjobsd"),
        (b"{}\0", "bad-answer"),
        (b'{"parameters": {"details": {"job": {"id": "1"}}}}\0', "bad-answer"),
        (b"x" * 2000, "not-sysjobsd"),
    ],
)
def test_strange_answers(path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, code: str) -> None:
    monkeypatch.setattr("sysjobs.connection.MAX_MESSAGE", 1000)

    def answer(peer: Peer, _: dict[str, Any]) -> None:
        peer.raw(data)

    with Server(path, answer) as server, Client(server.path) as client, pytest.raises(Unreachable) as caught:
        client.show(1)
    assert caught.value.code == code


def test_always_closed(path: Path) -> None:
    with Server(path, hangs_up) as server, Client(server.path) as client:
        with pytest.raises(Unreachable) as caught:
            client.show(1)
        assert len(server.calls) > 1
    assert caught.value.code == "broken-off"


def test_silence_ends(path: Path) -> None:
    with Server(path, lambda peer, call: None) as server, Client(server.path, timeout=1) as client:
        with pytest.raises(Unreachable) as caught:
            client.show(1)
        assert caught.value.code == "no-answer"
        with pytest.raises(Unreachable):
            next(client.watch([1]))


def test_late_answer_is_not_taken_for_another(path: Path) -> None:
    with Server(path, replies(lambda peer, call: None, accepts)) as server:
        client = Client(server.path, timeout=0.2)
        with pytest.raises(Unreachable):
            client.show(1)
        client.timeout = 60
        client.submit(["true"])
        assert server.connections == 2
        client.close()


def test_nobody_listens(path: Path) -> None:
    with pytest.raises(Unreachable, match="isn't running") as caught:
        Client(str(path)).list()
    assert "systemctl start sysjobsd.socket" in caught.value.hint
    path.touch()
    with pytest.raises(Unreachable, match="isn't running"):
        next(Client(str(path)).watch([1]))


def test_other_kind_of_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
        peer.bind(str(path))
        with pytest.raises(Unreachable, match="is not sysjobsd"):
            Client(str(path)).list()


def test_daemon_that_comes_up_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module.Client, "_CONNECT_PATIENCE", 5)
    ids: list[int] = []
    with Client(str(path)) as client:
        thread = threading.Thread(target=lambda: ids.append(client.submit(["true"])))
        thread.start()
        with Server(path, accepts):
            thread.join(5)
    assert ids == [42]


def test_too_big_is_not_sent(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_MESSAGE", 100_000)
    with Server(path, accepts) as server, Client(server.path) as client:
        with pytest.raises(Refused) as caught:
            client.submit(["x" * 100_000])
        assert server.connections == 0
    assert caught.value.code == "too-big"


def test_list_joins_replies(path: Path) -> None:
    def answer(peer: Peer, _: dict[str, Any]) -> None:
        peer.reply(continues=True, jobs=[job(id=1), job(id=2)], damaged=[5, 6])
        peer.reply(jobs=[job(id=3)], left_out=7, damaged=[4])

    with Server(path, answer) as server, Client(server.path) as client:
        jobs, left_out, damaged = client.list(statuses=["RUNNING"])
        assert server.calls[0]["more"] is True
        assert server.calls[0]["parameters"]["statuses"] == ["RUNNING"]
    assert [each.id for each in jobs] == [1, 2, 3]
    assert left_out == 7
    assert damaged == [4, 5, 6]


def test_list_starts_over_when_lost(path: Path) -> None:
    def breaks(peer: Peer, _: dict[str, Any]) -> None:
        peer.reply(continues=True, jobs=[job(id=1)])
        peer.hang_up()

    def whole(peer: Peer, _: dict[str, Any]) -> None:
        peer.reply(jobs=[job(id=1), job(id=2)])

    with Server(path, replies(breaks, whole)) as server, Client(server.path) as client:
        assert [each.id for each in client.list().jobs] == [1, 2]


def test_watch_across_a_restart(path: Path) -> None:
    """The name is resolved once, and what was known isn't told again."""

    def named(peer: Peer, _: dict[str, Any]) -> None:
        peer.reply(jobs=[job(id=7)])

    def dies(peer: Peer, _: dict[str, Any]) -> None:
        peer.reply(continues=True, job=job(id=7, status="RUNNING"))
        peer.reply(continues=True, job=job(id=8, status="SUCCEEDED", ended_at=1))
        peer.hang_up()

    def ends(peer: Peer, _: dict[str, Any]) -> None:
        peer.reply(continues=True, job=job(id=7, status="RUNNING"))
        peer.reply(job=job(id=7, status="FAILED", ended_at=2))

    with Server(path, replies(named, dies, ends)) as server, Client(server.path) as client:
        states = [(state.id, state.status) for state in client.watch(["train", "8-9"])]
        assert [call["parameters"]["ids"] for call in server.calls] == [["train"], ["7", "8-9"], ["7", "8-9"]]
    assert states == [(7, "RUNNING"), (8, "SUCCEEDED"), (7, "FAILED")]


def test_watch_gives_up_in_the_end(path: Path) -> None:
    def dies(peer: Peer, _: dict[str, Any]) -> None:
        peer.reply(continues=True, job=job(status="RUNNING"))
        peer.hang_up()

    with Server(path, replies(dies, hangs_up)) as server, Client(server.path) as client:
        states: Iterator[object] = client.watch([1])
        next(states)
        with pytest.raises(Unreachable):
            next(states)


def test_follow_ticks(path: Path) -> None:
    def answer(peer: Peer, _: dict[str, Any]) -> None:
        peer.reply(continues=True, job=job(status="RUNNING"))

    with Server(path, answer) as server, Client(server.path) as client:
        states = client.follow([1], 0.01)
        first = next(states)
        assert first is not None
        assert first.status == "RUNNING"
        assert [next(states), next(states)] == [None, None]


@pytest.mark.parametrize(
    "answers", [(hangs_up, hangs_up, accepts), (None, accepts)], ids=["restarts", "hangs"]
)
def test_whoever_waits_is_told_so_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, answers: tuple[Answer | None, ...]
) -> None:
    told: list[str] = []
    monkeypatch.setattr(caller, "tell_silence", told.append)
    monkeypatch.setattr(caller, "_MOMENT", 0.01)

    def hangs(peer: Peer, _: dict[str, Any]) -> None:
        wait_until(lambda: bool(told))
        peer.reply(id=42)

    server = Server(path, replies(*(answer or hangs for answer in answers)))
    with server, Client(server.path) as client:
        assert client.submit(["true"]) == 42
    assert told == [server.path]
