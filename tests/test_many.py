"""Hundreds and thousands of jobs at once: none is lost or taken for another, and little is to be done."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.admin_on_node import DAEMON, Place, daemon_memory, multiply, place
from tests.node import Node
from tests.raw_client import RawClient, request


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


AT_ONCE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from sysjobs.client import Client

def submit_and_cancel(number):
    with Client() as client:
        job = client.submit(["sleep", "1000"], name=f"n{number}", cpus=number % 8 and 1, workdir="/")
        return job, client.cancel([job], grace=0).results[0].outcome

with ThreadPoolExecutor(128) as threads:
    for job, outcome in threads.map(submit_and_cancel, range(int(sys.argv[1]))):
        print(job, outcome)
"""


def test_submits_and_cancels_all_at_once(node: Node, alice: Place) -> None:
    number, since = 500, time.time()
    said = node.run(["python3", "-c", AT_ONCE, str(number)], user="alice", timeout=120).stdout.decode()
    outcomes = {int(job): outcome for job, outcome in map(str.split, said.splitlines())}
    assert len(outcomes) == number
    assert set(outcomes.values()) <= {"cancelled", "cancelling"}
    assert alice.wait(*outcomes) == 103
    jobs = alice.jobs(*map(str, outcomes))
    assert {view["status"] for view in jobs.values()} == {"CANCELLED"}
    assert sorted(view["name"] for view in jobs.values()) == sorted(f"n{each}" for each in range(number))
    assert "locked" not in node.journal(DAEMON, since=since)


def test_a_cancel_of_all_that_live(node: Node, alice: Place) -> None:
    number, cpus = 256, int(node.sh("nproc"))
    with place(node, "bob") as bob:
        stays = bob.start("--cpus", "0", "-c", "trap ': >told' TERM; touch up; while :; do sleep 0.1; done")
        before = daemon_memory(node)
        jobs = submit(node, number, {"command": ["sleep", "4747"], "cpus": 1000 * cpus // number / 1000})
        waits = bob.submit("--cpus", str(cpus), "-c", "! pgrep -xf 'sleep 4747'")
        node.wait_for(f"[ $(pgrep -cxf 'sleep 4747') = {number} ]", timeout=120)
        # It has nothing of its own beside a job, and remembers little.
        assert daemon_memory(node) - before < number * 64 * 1024
        alice.run("cancel", "--all")
        assert alice.wait(*jobs) == 103
        assert bob.wait(waits) == 0, "it had the CPUs before the last process was gone"
        assert bob.show(stays)["status"] == "RUNNING"
        assert bob.shell("ls") == "up\n"


def submit(node: Node, number: int, spec: dict[str, object]) -> list[int]:
    """So many of the same, as fast as they can be sent."""
    with RawClient(node) as client:
        client.send(request("Submit", {"job": spec}) * number)
        return [answer["parameters"]["id"] for _ in range(number) if (answer := client.receive())]


def test_ten_thousand_that_wait(node: Node, alice: Place) -> None:
    """They cost little memory, and the first of them starts as if it were alone."""
    cpus = node.sh("nproc").strip()
    runs = alice.start("--cpus", cpus, "-c", "touch up; until [ -e go ]; do sleep 0.05; done")
    head = alice.submit("--cpus", cpus, "-C", alice.path, "-c", "touch up.head; exec sleep 1000")
    last = alice.submit("--cpus", cpus, "true")
    node.run(["systemctl", "restart", DAEMON])
    before = daemon_memory(node)
    multiply(node, last, 9998)
    assert "1 running, 10000 waiting" in alice.run("doctor").stdout.decode()
    assert daemon_memory(node) - before < 10_000 * 4 * 1024
    left_out = alice.run("queue", "-s", "--limit", "2").stderr.decode()
    assert left_out == "sysjobs: 9999 older jobs are left out; --limit 0 shows all.\n"
    alice.shell("touch go")
    assert alice.wait(runs) == 0
    alice.until("[ -e up.head ]")
    assert alice.jobs("-s", "--status", "running").keys() == {head}
    # Others on this node shall not have to do with so many.
    alice.run("cancel", "--all", "--grace", "0")
    node.wait_for(f"! systemctl -q is-active sysjobs-{head}")
    node.sh(
        f"""
        systemctl stop sysjobsd.socket {DAEMON}
        sqlite3 /var/lib/sysjobs/sysjobs.db 'DELETE FROM jobs WHERE id > {last}'
        systemctl start sysjobsd.socket {DAEMON}
        """
    )
