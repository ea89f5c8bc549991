"""The daemon under a hail of messages: --messages says how many, --seed which."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.admin_on_node import clear, daemon, daemon_memory, place
from tests.fuzz import Fuzzer
from tests.node import Node
from tests.raw_client import RawClient, request

# What the daemon has in memory of a job that waits, and of everything else that it was asked.
JOB = 2048
SLACK = 96 << 20

INFO = request("org.varlink.service.GetInfo")
ERRORS = {f"io.sysjobs.{name}" for name in ("Refused", "NotFound", "Denied", "Unavailable")} | {
    f"org.varlink.service.{name}" for name in ("InvalidParameter", "MethodNotFound", "InterfaceNotFound")
}


def test_a_hail_of_messages(
    node: Node, seed: int, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
) -> None:
    """It is the same daemon afterwards, it told of no fault of its own, and it does its work."""
    since = time.time()
    clear(node)
    fuzzer, messages = Fuzzer(seed), pytestconfig.getoption("--messages")
    with place(node) as alice, place(node, "root") as root:
        # Root's jobs are in front, so that those of alice wait.
        root.start("--cpus", node.sh("nproc").strip(), "-c", "touch up; sleep 100000")
        root.submit("--cpus", node.sh("nproc").strip(), "true")
        pid, memory = daemon(node, "MainPID"), daemon_memory(node)
        began, sent, answers = time.monotonic(), 0, 0
        while sent < messages:
            if fuzzer.chance(0.7):
                answers += calls(node, fuzzer, count := min(50, messages - sent))
            else:
                rubbish(node, fuzzer, count := 1)
            sent += count
        took = time.monotonic() - began
        jobs = alice.jobs()
        waiting = len(alice.jobs("-s"))
        grown = daemon_memory(node) - memory
        record_property(
            "figures",
            f"seed {seed}: {sent:,} messages in {took:.0f} s, {answers:,} answers, {len(jobs):,} jobs, "
            f"of which {waiting:,} wait; the daemon grew by {grown >> 20} MiB",
        )
        assert daemon(node, "MainPID") == pid
        assert grown < SLACK + JOB * waiting
        assert_well(node, since)
        alice.run("cancel", "--all", timeout=300)
        root.run("cancel", "--all", "--grace", "0")
        assert alice.output("echo", "works") == b"works\n"


def assert_well(node: Node, since: float) -> None:
    journal = node.journal("sysjobsd", since=since)
    assert len(journal.splitlines()) < 100, "what clients send doesn't fill the journal"
    for word in ("Traceback", "failed", "can't be written"):
        assert word not in journal


def calls(node: Node, fuzzer: Fuzzer, count: int) -> int:
    """Send calls, all at once, and then one that is right: how many answers there are. Each makes sense."""
    frames = [fuzzer.call() for _ in range(count)]
    answers = 0
    with RawClient(node) as client:
        try:
            for piece in fuzzer.pieces(b"".join(frame + b"\0" for frame in frames) + INFO):
                client.send(piece)
            while (message := client.receive()) is not None:
                check(message, frames)
                answers += 1
                if message.get("parameters", {}).get("product") == "sysjobsd":
                    break
        except (BrokenPipeError, ConnectionResetError):
            pass
    return answers


def check(message: dict[str, Any], frames: list[bytes]) -> None:
    assert message.keys() <= {"parameters", "continues", "error"}
    if "error" in message:
        assert message["error"] in ERRORS
        assert message["parameters"].get("code") != "bug", frames
        text = json.dumps(message["parameters"], ensure_ascii=False)
        assert len(text) < 20_000, text
    else:
        assert isinstance(message["parameters"], dict)


def rubbish(node: Node, fuzzer: Fuzzer, count: int) -> None:
    """Send what may be no call; who sent it may stay to hear the answer, or not."""
    with RawClient(node) as client, suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(count):
            for piece in fuzzer.pieces(fuzzer.rubbish() + b"\0"):
                client.send(piece)
        if fuzzer.chance(0.5):
            client.send(b"\0")
            while client.receive() is not None:
                pass
