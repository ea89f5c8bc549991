"""Rude clients harm nobody: others are served meanwhile, and what they took of the daemon is given back."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise

import pytest

from sysjobs.handlers import WATCHED
from sysjobs.server import MAX_CONNECTIONS, MAX_HELD
from sysjobs.wire import MAX_MESSAGE
from tests.admin_on_node import Place, clear, daemon, daemon_files, daemon_memory, multiply, place, stopped
from tests.node import Node
from tests.raw_client import PATIENCE, RawClient, request
from tests.waiting import wait_until

# What Python and the kernel keep of memory that was given back, and caches of the daemon's own.
MEMORY_SLACK = 96 << 20

QUEUED = 4000
INFO = request("org.varlink.service.GetInfo")


@pytest.fixture(autouse=True)
def _empty(node: Node) -> None:
    clear(node)


@pytest.fixture
def bob(node: Node) -> Iterator[RawClient]:
    """Somebody else, who must be served, and a daemon that must be left as it was."""
    with RawClient(node, "bob") as client:
        client.call("List")
        pid, files, memory = daemon(node, "MainPID"), daemon_files(node), daemon_memory(node)
        yield client
        served(client)
        assert daemon(node, "MainPID") == pid
        wait_until(lambda: daemon_files(node) <= files)
        wait_until(lambda: daemon_memory(node) <= memory + MEMORY_SLACK)
    assert "Traceback" not in node.journal("sysjobsd")


def served(client: RawClient) -> None:
    """Answered, however busy the machine is, while somebody is rude."""
    reply = client.call("List", {"unfinished": True})
    assert "jobs" in reply["parameters"]


def answered(clients: list[RawClient]) -> int:
    """How many of them have something to read."""
    return len(select.select([client.socket for client in clients], [], [], 0)[0])


RUBBISH = {
    "random": os.urandom(100_000) + b"\0",
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n\0",
    "empty": b"\0",
    "not UTF-8": b'{"method": "\xff"}\0',
    "not an object": b"[]\0",
    "no method": b"{}\0",
    "a number for a method": b'{"method": 5}\0',
    "a list of parameters": b'{"method": "io.sysjobs.List", "parameters": []}\0',
    "infinity": b'{"method": "io.sysjobs.List", "parameters": {"limit": Infinity}}\0',
    "half": b'{"method": "io.sysjobs.List"\0',
    "deep": b"[" * 1_000_000 + b"\0",
    "a number of a million digits": b'{"method": ' + b"9" * 1_000_000 + b"}\0",
    "deeper": b'{"a":' * 200_000 + b"\0",
}


def test_rubbish_ends_the_connection(node: Node, bob: RawClient) -> None:
    for kind, data in RUBBISH.items():
        with RawClient(node) as client:
            client.send(data)
            served(bob)
            assert client.receive() is None, kind


ODD = {
    "a number beyond SQLite": request("List", {"limit": 1 << 70}),
    "an id beyond SQLite": request("Show", {"id": "9" * 19}),
    "a lone surrogate": b'{"method": "io.sysjobs.Show", "parameters": {"id": "\\ud800"}}\0',
    "a NUL": b'{"method": "io.sysjobs.Show", "parameters": {"id": "\\u0000"}}\0',
    "ten thousand names": request("Cancel", {"ids": ["no-such-name"] * 10_000}),
    "a million names": request("Cancel", {"ids": ["no-such-name"] * 1_000_000}),
    "many ranges": request("List", {"ids": ["1-1000000"] * 5_000}),
    "a key twice": b'{"method": "io.sysjobs.Show", "method": "io.sysjobs.List"}\0',
}


def test_odd_calls_get_an_answer(node: Node, bob: RawClient) -> None:
    for kind, data in ODD.items():
        with RawClient(node) as client:
            client.send(data)
            client.send(INFO)
            served(bob)
            answer, following = client.receive(), client.receive()
            assert answer, kind
            assert answer["parameters"].get("code") != "bug", kind
            assert following, kind
            assert following["parameters"]["product"] == "sysjobsd"


def test_half_messages(node: Node, bob: RawClient) -> None:
    with ExitStack() as stack:
        for number in range(200):
            client = stack.enter_context(RawClient(node))
            client.send(INFO[: number % (len(INFO) - 1) + 1])
        served(bob)
        # The other half may come whenever it likes.
        client.send(INFO[number % (len(INFO) - 1) + 1 :])
        answer = client.receive()
        assert answer is not None
        assert answer["parameters"]["product"] == "sysjobsd"


def test_a_message_that_is_too_big(node: Node, bob: RawClient) -> None:
    with RawClient(node) as client:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            client.send(b" " * (100 << 20))
        answer = client.receive()
        assert answer is not None
        assert answer["error"] == "io.sysjobs.Refused"
        assert answer["parameters"]["code"] == "too-big"
        assert f"larger than {MAX_MESSAGE >> 20} MiB" in answer["parameters"]["message"]
        assert client.receive() is None


def test_what_one_user_can_have_kept_is_bounded(node: Node, bob: RawClient) -> None:
    before = daemon_memory(node)
    part = b" " * (MAX_MESSAGE - 1)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(node)) for _ in range(12)]
        refused = 0
        for client in clients:
            try:
                client.send(part)
            except (BrokenPipeError, ConnectionResetError):
                answer = client.receive()
                assert answer is not None
                assert answer["parameters"]["code"] == "too-much"
                refused += 1
            served(bob)
        assert refused >= len(clients) - MAX_HELD // len(part)
        assert daemon_memory(node) < before + 3 * MAX_HELD


def test_a_client_that_calls_and_calls_and_never_reads(node: Node, bob: RawClient) -> None:
    before = daemon_memory(node)
    with RawClient(node) as client:
        client.socket.settimeout(2)
        # It can't send on, or is sent away; what it did send is bounded either way.
        with pytest.raises((TimeoutError, BrokenPipeError, ConnectionResetError)):
            client.send(INFO * (4 * MAX_HELD // len(INFO)))
        served(bob)
        assert daemon_memory(node) < before + 3 * MAX_HELD


def test_calls_without_end_are_answered_in_turn(node: Node, bob: RawClient) -> None:
    number = 5_000
    with RawClient(node) as client:
        bad = request("Nope")
        client.socket.setblocking(False)
        outgoing = memoryview((INFO + bad) * number)
        answers = others = 0
        while answers < 2 * number:
            sends = [client.socket] if outgoing else []
            readable, writable, _ = select.select([client.socket], sends, [], PATIENCE)
            assert readable or writable
            if writable:
                outgoing = outgoing[client.socket.send(outgoing[: 1 << 16]) :]
            if readable:
                answers += client.socket.recv(1 << 20).count(b"\0")
            if answers >= 500 * others:
                served(bob)
                others += 1


def test_half_closed_connections_get_their_answers(node: Node, bob: RawClient) -> None:
    with RawClient(node) as client:
        client.send(INFO * 3)
        client.socket.shutdown(socket.SHUT_WR)
        for _ in range(3):
            answer = client.receive()
            assert answer is not None
            assert answer["parameters"]["product"] == "sysjobsd"
        assert client.receive() is None


def test_more_connections_than_a_user_may_have(node: Node, bob: RawClient) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(node)) for _ in range(600)]
        for client in clients:
            # Some are sent away before they can say anything.
            with suppress(BrokenPipeError):
                client.send(INFO)
        served(bob)
        answers = [client.receive() for client in clients]
        codes = [answer and answer["parameters"].get("code") for answer in answers]
        assert codes == [None] * MAX_CONNECTIONS + ["too-many-connections"] * (600 - MAX_CONNECTIONS)
        # Their owner is told so by the command too; root and others are served.
        told = node.run(["sysjobs", "queue"], user="alice", check=False)
        assert told.returncode == 1
        assert b"User id 1000 has 512 connections open already." in told.stderr
        assert node.run(["sysjobs", "queue"], user="bob").returncode == 0
    wait_until(lambda: node.run(["sysjobs", "queue"], user="alice", check=False).returncode == 0)


def test_one_users_many_ids_have_no_more_connections(node: Node, bob: RawClient) -> None:
    """Those of a user namespace, that is: by default there are 65,536 of them for each user."""
    with ExitStack() as stack:
        users = ["id 100000", "id 100001"] * 300
        clients = [stack.enter_context(RawClient(node, user)) for user in users]
        for client in clients:
            with suppress(BrokenPipeError):
                client.send(INFO)
        answers = [client.receive() for client in clients]
        codes = [answer and answer["parameters"].get("code") for answer in answers]
        assert codes.count("too-many-connections") == 600 - MAX_CONNECTIONS
        served(bob)


EXPENSIVE = ["name{}", "1-{}", "@~{}", "{}"]


def test_many_calls_that_take_long_hold_up_nobody_else(node: Node, bob: RawClient) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(node)) for _ in range(80)]
        calls = [
            request("Cancel", {"ids": [kind.format(number) for number in range(2, 10_000)]})
            for kind in EXPENSIVE
        ]
        # All that she wants is there before bob comes.
        with stopped(node):
            for number, client in enumerate(clients):
                client.send(calls[number % len(calls)])
        for _ in range(3):
            served(bob)
        assert answered(clients) < len(clients) // 2


def test_clients_that_vanish_while_they_wait(node: Node, bob: RawClient) -> None:
    with place(node) as alice:
        job = alice.start("-c", "touch up; sleep 1000")
        files = daemon_files(node)
        for _ in range(100):
            with RawClient(node) as client:
                client.send(request("Watch", {"ids": [str(job)]}, more=True))
                assert client.receive()
        # While the job goes on: its end is not what clears them away.
        wait_until(lambda: daemon_files(node) <= files)
        assert alice.show(job)["status"] == "RUNNING"


def test_a_client_that_vanishes_within_a_call(node: Node, bob: RawClient) -> None:
    with place(node) as alice:
        for number in range(50):
            with RawClient(node) as client:
                job = {"shell": "echo >>begun", "cpus": 0, "workdir": alice.path, "name": f"v{number}"}
                client.send(request("Submit", {"job": job})[: -1 if number % 2 else None])
        served(bob)
        # Complete or absent, and as often as it was asked for.
        alice.until("[ $(grep -c '' begun) = 25 ]")
        names = sorted(view["name"] for view in alice.jobs().values() if view["name"].startswith("v"))
        assert names == sorted(f"v{number}" for number in range(0, 50, 2))


@pytest.fixture
def queued(node: Node) -> Iterator[Place]:
    """A queue in which a List or Watch is large."""
    with place(node) as alice:
        alice.submit("--cpus", node.sh("nproc").strip(), "--grace", "0", "sleep", "1000")
        multiply(node, alice.submit("--cpus", "1", "-n", "n" * 200, "true"), QUEUED - 1)
        yield alice


def test_clients_that_stop_reading_a_large_reply(node: Node, queued: Place, bob: RawClient) -> None:
    files = daemon_files(node)
    after = []
    for _ in range(6):
        with ExitStack() as stack:
            for number in range(20):
                client = stack.enter_context(RawClient(node))
                method = ("List", "Watch")[number % 2]
                client.send(request(method, {"ids": ["1-1000000"]}, more=True))
            served(bob)
            # One that does read gets all of it meanwhile.
            with RawClient(node) as reader:
                replies = list(reader.replies("List", {"unfinished": True}, more=True))
                assert sum(len(reply["parameters"]["jobs"]) for reply in replies) == QUEUED + 1
            served(bob)
        wait_until(lambda: daemon_files(node) <= files)
        after.append(daemon_memory(node))
    # Some memory stays with Python's allocator, in rounds of its own; a leak would grow in each.
    assert min(later - earlier for earlier, later in pairwise(after)) < 1 << 20, after


def test_what_may_be_watched_and_listed_at_once_is_bounded(node: Node, queued: Place, bob: RawClient) -> None:
    before = daemon_memory(node)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(node)) for _ in range(50)]
        codes = []
        for client in clients:
            client.send(request("Watch", {"ids": ["1-1000000"]}, more=True))
            answer = client.receive()
            codes.append(answer and answer["parameters"].get("code"))
        refused = codes.index("too-much")
        assert codes == [None] * refused + ["too-much"] * (len(codes) - refused)
        assert 0 < refused * QUEUED * WATCHED <= MAX_HELD
        assert daemon_memory(node) < before + 3 * MAX_HELD
        served(bob)


def test_who_watches_many_jobs_is_told_of_all(node: Node, queued: Place, bob: RawClient) -> None:
    waiting = sorted(queued.jobs("-s"))
    watching = node.spawn(["sysjobs", "wait", f"{waiting[0]}-{waiting[-1]}"], user="alice")
    with RawClient(node) as client:
        client.send(request("Watch", {"ids": [f"{waiting[0]}-{waiting[-1]}"]}, more=True))
        first = [client.receive() for _ in waiting]
        assert sorted(message["parameters"]["job"]["id"] for message in first if message) == waiting
        # All of them change at once.
        queued.run("cancel", "--all", "--grace", "0")
        served(bob)
        states = {}
        while message := client.receive():
            job = message["parameters"]["job"]
            states[job["id"]] = job["status"]
            if not message.get("continues"):
                break
        assert states == dict.fromkeys(waiting, "CANCELLED")
    told, said = watching.communicate(timeout=60)
    assert (watching.returncode, said) == (103, b"")
    assert len(told.splitlines()) == len(waiting)
