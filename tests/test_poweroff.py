"""The machine goes down and comes up: jobs are told at once, have failed by it, and the queue goes on."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.admin_on_node import DAEMON, Place
from tests.node import Node
from tests.queue_on_node import QueueOnNode

# Writes down when it is told, and ends well. Without a fork: that process could get the SIGTERM too.
TRAPS = "trap 'echo $EPOCHREALTIME >told; exit 0' TERM; touch up; while :; do sleep 0.05; done"


# Stops as services do, and doesn't end before the job was told; then it writes which came first.
LAST = """
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=true
ExecStop=sh -c 'for i in $(seq 200); do test -e ~alice/told && exec touch /srv/job-first; sleep 0.05; done'
"""


def alone(node: Node) -> QueueOnNode:
    """A queue that runs one job at a time."""
    node.put("/etc/sysjobs/sysjobs.toml", b"[node]\ncpus = 1\n")
    node.run(["systemctl", "reload", "sysjobsd"])
    return QueueOnNode(node)


def check_lost(shown: dict[str, Any], to: str = "reboot") -> None:
    assert (shown["status"], shown["reason_code"]) == ("FAILED_DRIVER", to), shown
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
        node.put("/etc/systemd/system/last.service", LAST.encode())
        node.sh("systemctl daemon-reload; systemctl start last.service")
        node.reboot()
        assert node.get("/home/alice/told")
        assert node.get("/srv/job-first") == b"", "the job was told after others had ended"
        for job in (trapping, setting_up, deaf):
            check_lost(queue.show(job))
        assert queue.wait(pending, done) == 0
        assert node.get("/home/alice/pending") == b"ran\n"


def test_a_power_cut_does_the_same(suite: str) -> None:
    with Node(suite) as node:
        queue = alone(node)
        # That an earlier boot was shut down says nothing of this one.
        node.reboot()
        running = queue.submit("--cpus", "1", "--", "sleep", "1000")
        node.wait_for("systemctl -q is-active 'sysjobs-*.service'")
        pending = queue.submit("--cpus", "1", "-c", "echo ran >>~/pending")
        node.kill()
        node.boot()
        check_lost(queue.show(running), "power-cut")
        assert queue.wait(pending) == 0
        assert node.get("/home/alice/pending") == b"ran\n"


def test_what_waits_is_left_for_the_next_boot(suite: str) -> None:
    """Jobs that end by the shutdown make room, and a machine that goes down must not fill it."""
    with Node(suite) as node:
        alone(node)
        alice = Place(node)
        quick = {"shell": "trap 'exit 0' TERM; touch up$SYSJOBS_JOB_ID; while :; do sleep 0.05; done"}
        running = alice.submit_many([quick | {"cpus": 0.1}] * 10)
        alice.until("[ $(ls | grep -c up) = 10 ]")
        waiting = alice.submit_many([{"shell": "echo >>ran.$SYSJOBS_JOB_ID", "cpus": 0.5}] * 30)
        node.reboot()
        booted = node.sh("systemctl show --timestamp=unix -P UserspaceTimestamp")
        assert alice.wait(*waiting) == 0
        for job in running:
            check_lost(alice.show(job))
        for view in alice.jobs(f"{waiting[0]}-{waiting[-1]}").values():
            assert datetime.fromisoformat(view["started_at"]).timestamp() >= int(booted.strip("@\n"))
        assert alice.shell("cat ran.* | wc -l; ls ran.* | wc -l").split() == ["30", "30"]
        assert "Traceback" not in node.journal(DAEMON)


def test_what_was_cancelled_before_stays_so(suite: str) -> None:
    with Node(suite) as node:
        alice = Place(node)
        deaf = "trap '' TERM; touch up$SYSJOBS_JOB_ID; while :; do sleep 0.05; done"
        job = alice.start("--grace", "1h", "-c", deaf)
        waiting = alice.submit("--cpus", node.sh("nproc").strip(), "true")
        alice.run("cancel", str(job), str(waiting), "--reason", "no longer wanted")
        assert alice.show(job)["status"] == "RUNNING"
        node.kill()
        node.boot()
        assert alice.wait(job, waiting) == 103
        assert alice.show(job)["reason"] == "Cancelled by its owner: no longer wanted."
