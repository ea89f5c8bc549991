"""The machine goes down and comes up: jobs are told at once, have failed by it, and the queue goes on."""

from __future__ import annotations

from typing import Any

from tests.node import Node
from tests.queue_on_node import QueueOnNode

# Writes down when it is told, and ends well.
TRAPS = "trap 'date +%s.%N >told; exit 0' TERM; touch up; while :; do sleep 0.05; done"


def alone(node: Node) -> QueueOnNode:
    """A queue that runs one job at a time."""
    node.put("/etc/sysjobs/sysjobs.toml", b"[node]\ncpus = 1\n")
    node.run(["systemctl", "reload", "sysjobsd"])
    return QueueOnNode(node)


def check_lost(shown: dict[str, Any]) -> None:
    assert (shown["status"], shown["reason_code"]) == ("FAILED_DRIVER", "reboot"), shown
    assert "rebooted" in shown["reason"]
    assert shown["started_at"] <= shown["ended_at"]


def test_a_reboot_ends_what_runs_and_nothing_else(suite: str) -> None:
    with Node(suite) as node:
        queue = alone(node)
        trapping = queue.submit("--cpus", "0.4", "-c", f"cd; {TRAPS}")
        node.wait_for("test -e ~alice/up")
        setting_up = queue.submit("--cpus", "0.3", "--setup", "sleep 1000", "--", "true")
        deaf = queue.submit("--cpus", "0.3", "--grace", "2s", "-c", "trap '' TERM; while :; do sleep 1; done")
        pending = queue.submit("--cpus", "1", "-c", "echo ran >>~/pending")
        assert queue.show(pending)["status"] == "PENDING"
        done = queue.submit("--cpus", "0", "-c", "true")
        asked = float(node.sh("date +%s.%N"))
        node.reboot()
        told = float(node.get("/home/alice/told"))
        assert told - asked < 5, "the job was told last of all"
        for job in (trapping, setting_up, deaf):
            check_lost(queue.show(job))
        assert queue.wait(pending, done) == 0
        assert node.get("/home/alice/pending") == b"ran\n"


def test_a_power_cut_does_the_same(suite: str) -> None:
    with Node(suite) as node:
        queue = alone(node)
        running = queue.submit("--cpus", "1", "--", "sleep", "1000")
        node.wait_for("systemctl -q is-active 'sysjobs-*.service'")
        pending = queue.submit("--cpus", "1", "-c", "echo ran >>~/pending")
        node.kill()
        node.boot()
        check_lost(queue.show(running))
        assert queue.wait(pending) == 0
        assert node.get("/home/alice/pending") == b"ran\n"
