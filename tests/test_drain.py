"""What the node has and who uses it; a node that is drained."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sysjobs.answers import NodeDevice, NodeState, NodeUser
from sysjobs.cli.node import bar, describe
from sysjobs.drain import read_drain, write_drain
from sysjobs.scheduling.waiting import Drain
from tests.admin_on_node import DAEMON, Place, place
from tests.node import Node
from tests.queue_on_node import QueueOnNode

CPUS = os.cpu_count() or 1


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


@pytest.fixture
def root(node: Node) -> Iterator[QueueOnNode]:
    root = QueueOnNode(node, "root")
    yield root
    root.run("node", "resume")


def state(queue: QueueOnNode) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(queue.run("node", "--json").stdout)
    return shown


def test_what_the_node_has_and_who_uses_it(node: Node, alice: Place) -> None:
    bob = QueueOnNode(node, "bob")
    alice.start("--cpus", "0.5", "--memory", "1M", "-c", "touch up; sleep 1000")
    waits = alice.submit("--cpus", str(CPUS), "true")
    held = bob.submit("--hold", "true")
    shown = state(bob)
    assert (shown["cpus"], shown["cpus_used"], shown["memory_used"]) == (CPUS, 0.5, 1 << 20)
    assert (shown["running"], shown["waiting"], shown["drained_by"]) == (1, 2, None)
    assert [(user["user"], user["running"], user["waiting"], user["cpus"]) for user in shown["users"]] == [
        ("alice", 1, 1, 0.5),
        ("bob", 0, 1, 0),
    ]
    text = alice.run("node").stdout.decode()
    assert f"0.5 of {CPUS}" in text
    assert "1 running, 2 waiting" in text
    bob.run("cancel", str(held))
    alice.run("cancel", str(waits))


def test_a_drained_node_starts_nothing(node: Node, alice: Place, root: QueueOnNode) -> None:
    runs = alice.start("--cpus", "0", "-c", "touch up; until [ -e go ]; do sleep 0.05; done")
    root.run("node", "drain", "--reason", "new disks")
    waits = alice.submit("--cpus", "0", "true")
    why = "The node was drained by root: new disks. No job starts before `sysjobs node resume`."
    assert (alice.show(waits)["reason_code"], alice.show(waits)["reason"]) == ("drained", why)
    assert f"warning  node      {why}" in alice.run("doctor").stdout.decode()
    assert "Drained by root" in alice.run("node").stdout.decode()
    node.run(["systemctl", "restart", DAEMON])
    assert alice.show(waits)["reason"] == why
    alice.shell("touch go")
    assert alice.wait(runs) == 0
    assert alice.show(waits)["status"] == "PENDING"
    for verb in ("drain", "resume"):
        denied = alice.run("node", verb, check=False)
        assert (denied.returncode, b"Only root drains and resumes" in denied.stderr) == (1, True)
    root.run("node", "resume")
    assert alice.wait(waits) == 0
    assert state(alice)["drained_by"] is None
    root.run("node", "resume")


def test_a_drain_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "drained"
    assert read_drain(path) is None
    drain = Drain("root", 7, "new \u00e9 disks")
    write_drain(path, drain)
    assert read_drain(path) == drain
    assert [each.name for each in tmp_path.iterdir()] == ["drained"]
    write_drain(path, None)
    write_drain(path, None)
    assert read_drain(path) is None


@pytest.mark.parametrize(
    "text", ["", "{", "7", "null", '{"user": "root"}', '{"user": 1, "at": 2}', '{"user": "r", "at": "x"}']
)
def test_a_drain_that_cannot_be_read_is_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "drained"
    path.write_text(text)
    assert read_drain(path) == Drain("somebody", 0, f"{path} can't be read")


STATE = NodeState(
    cpus=4, memory=8 << 30, cpus_used=1.5, memory_used=0, devices=[], resources={}, resources_used={},
    running=2, waiting=3, users=[NodeUser("alice", 1000, 2, 3, 1.5, 0, 1.25)],
    drained_by=None, drained_at=None, drained_for=None,
)  # fmt: skip


def test_what_people_see() -> None:
    assert describe(STATE) == [
        "CPUs    1.5 of 4              [########------------]",
        "Memory  0 of 8G               [--------------------]",
        "Jobs    2 running, 3 waiting",
        "",
        "USER    RUNNING    WAITING    CPUS    MEMORY",
        "alice   2          3          1.5     0",
    ]


def test_what_people_see_of_devices() -> None:
    devices = [
        NodeDevice("0000:3b:00.0", "NVIDIA L4", "GPU-1", 0.25, None),
        NodeDevice("0000:5e:00.0", "NVIDIA L4", None, 0, "/dev/nvidia1 is missing"),
    ]
    state = replace(STATE, devices=devices, resources={"licence": 3}, resources_used={"licence": 3})
    assert describe(state) == [
        "CPUs          1.5 of 4                                        [########------------]",
        "Memory        0 of 8G                                         [--------------------]",
        "0000:3b:00.0  0.25 of NVIDIA L4                               [#####---------------]",
        "0000:5e:00.0  NVIDIA L4, out of use: /dev/nvidia1 is missing",
        "licence       3 of 3                                          [####################]",
        "Jobs          2 running, 3 waiting",
        "",
        "USER    RUNNING    WAITING    CPUS    MEMORY    GPUS",
        "alice   2          3          1.5     0         1.25",
    ]


@pytest.mark.parametrize(
    ("used", "of_all", "filled"), [(0, 4, 0), (0.001, 4, 1), (2, 4, 10), (4, 4, 20), (9, 4, 20), (0, 0, 20)]
)
def test_bars(used: float, of_all: float, filled: int) -> None:
    assert bar(used, of_all) == f"[{'#' * filled}{'-' * (20 - filled)}]"
