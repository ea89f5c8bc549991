"""Who starts first on a node, and what the others are told."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.admin_on_node import DAEMON, SETTINGS, Place, place, put_settings
from tests.node import Node
from tests.queue_on_node import QueueOnNode

CPUS = os.cpu_count() or 1


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


@pytest.fixture
def settings(node: Node) -> Iterator[None]:
    """What a test sets is gone afterwards."""
    yield
    node.sh(f"rm -f {SETTINGS}; systemctl reload {DAEMON}")


def set_limits(node: Node, text: str) -> None:
    put_settings(node, f"[limits]\n{text}\n")


def hold_all(alice: Place, *options: str) -> int:
    """A job that has all CPUs, until it finds a file."""
    text = "touch up; until [ -e go ]; do sleep 0.05; done"
    return alice.start("-n", "holds", "--cpus", str(CPUS), *options, "-c", text)


def test_the_highest_priority_starts_first(alice: Place) -> None:
    hold_all(alice)
    says = ("--cpus", str(CPUS), "-C", alice.path, "-c", "echo $SYSJOBS_JOB_NAME >>order")
    jobs = [
        alice.submit("-n", name, "--priority", priority, *says)
        for name, priority in (("last", "-1000"), ("second", "0"), ("third", "0"), ("first", "1000"))
    ]
    assert alice.show(jobs[0])["priority"] == -1000
    assert f"Job {jobs[3]}, the head of the queue, goes before it." in alice.show(jobs[1])["reason"]
    assert [(job["position"], job["pending"]) for job in map(alice.show, jobs)] == [
        (4, 4),
        (2, 4),
        (3, 4),
        (1, 4),
    ]
    done = alice.run("set", str(jobs[0]), "--priority", "-999", "--time", "1h")
    assert done.stdout.decode() == f"Job {jobs[0]} (last) is set.\n"
    assert (alice.show(jobs[0])["priority"], alice.show(jobs[0])["time_limit"]) == (-999, 3600.0)
    runs = alice.run("set", "holds", "--priority", "7", check=False)
    assert (runs.returncode, b"has begun; of one that runs only the time limit" in runs.stdout) == (1, True)
    refused = alice.run("set", str(jobs[0]), "--cpus", "1000", check=False)
    assert (refused.returncode, b"--cpus 1000 is more than this node has" in refused.stderr) == (1, True)
    alice.shell("touch go")
    assert alice.wait(*jobs) == 0
    assert alice.show(jobs[0])["position"] is None
    assert alice.file("order").split() == ["first", "second", "third", "last"]
    assert re.search(r"^Priority +1000$", alice.run("show", str(jobs[3])).stdout.decode(), re.MULTILINE)


@pytest.mark.parametrize("value", ["1001", "-1001", "high", "1.5", ""])
def test_no_priority(alice: Place, value: str) -> None:
    refused = alice.run("submit", "--priority", value, "true", check=False)
    assert (refused.returncode, refused.stdout) == (2, b"")
    said = refused.stderr.decode()
    if value.strip("-").isdigit():
        advice = "Give a number from -1000 to 1000; the highest starts first."
        assert said == f"sysjobs: --priority {value} is out of range.\n  {advice}\n"
    else:
        assert f"Invalid value for '--priority': {value!r} is not a valid integer." in said


def test_a_short_job_starts_before_the_head_of_the_queue_and_a_long_one_does_not(alice: Place) -> None:
    runs = alice.start("--cpus", "0.5", "-t", "1h", "--grace", "0", "-c", "touch up; sleep 1000")
    head = alice.submit("-n", "head", "--cpus", str(CPUS), "true")
    options = ("--cpus", "0.5", "--grace", "0")
    longer = [alice.submit(*options, *time, "--", "true") for time in ([], ["-t", "2h"])]
    assert alice.wait(alice.submit(*options, "-t", "1m", "--", "true")) == 0
    reason = alice.show(head)["reason"]
    assert reason.startswith(
        f"Waits for CPUs: asks for {CPUS}; {CPUS - 0.5:g} of the node's {CPUS} are free. It can start in "
    )
    for job in longer:
        shown = alice.show(job)
        assert (shown["status"], shown["reason_code"]) == ("PENDING", "resources")
        behind = f"Waits behind job {head}, the head of the queue, which can start in "
        assert re.fullmatch(rf"{behind}(1h|5\dm.*) at the latest\.", shown["reason"]), shown
    # As soon as it is known when the head starts, as it does now.
    alice.run("cancel", "--grace", "0", str(runs))
    assert alice.wait(head, *longer) == 0


def test_what_starts_behind_a_head_that_waits_for_nobody_knows_how_long(alice: Place) -> None:
    hold_all(alice)
    head = alice.submit("--cpus", str(CPUS), "true")
    waits = alice.submit("--cpus", "0.1", "-t", "1m", "true")
    assert alice.wait(alice.submit("--cpus", "0", "true")) == 0, "that takes nothing that the head needs"
    assert alice.show(waits)["reason"].endswith(f" Job {head}, the head of the queue, goes before it.")
    alice.shell("touch go")
    assert alice.wait(head, waits) == 0


def test_limits_of_users(node: Node, alice: Place, settings: None) -> None:
    set_limits(node, "running-per-user = 1")
    text = ("--cpus", "0.1", "-c", "touch up; until [ -e go ]; do sleep 0.05; done")
    alice.start(*text)
    second = alice.submit("--cpus", "0.1", "true")
    bob = QueueOnNode(node, "bob")
    assert bob.wait(bob.submit("--cpus", "0.1", "true")) == 0
    shown = alice.show(second)
    assert (shown["status"], shown["reason_code"]) == ("PENDING", "limits")
    assert shown["reason"] == (
        "Waits for others of the same user to end: 1 run at once (running-per-user in [limits])."
    )
    set_limits(node, "running = 1")
    waits = bob.submit("--cpus", "0.1", "true")
    assert bob.show(waits)["reason"] == (
        "Waits for others to end: 1 run, and here no more may at once (running in [limits])."
    )
    set_limits(node, "running-per-user = 2")
    assert alice.wait(second) == 0
    assert bob.wait(waits) == 0


REFUSED = [
    ("highest-priority = 0", ("--priority", "1"), "--priority 1 is more than the 0 that a user may give."),
    (
        "cpus-per-user = 0.5",
        ("--cpus", "0.6"),
        "--cpus 0.6 is more than the 0.5 that a user may have at once.",
    ),
    (
        "memory-per-user = '1M'",
        ("--memory", "2M"),
        "--memory 2M is more than the 1M that a user may have at once.",
    ),
    ("pending = 0", (), "0 jobs are waiting, and here no more may than 0."),
    ("pending-per-user = 0", (), "You have 0 jobs waiting, and nobody may have more than 0."),
]


@pytest.mark.parametrize(("limit", "options", "says"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_beyond_a_limit(
    node: Node, alice: Place, settings: None, limit: str, options: tuple[str, ...], says: str
) -> None:
    set_limits(node, limit)
    refused = alice.run("submit", *options, "true", check=False)
    assert refused.returncode == 1
    assert says in refused.stderr.decode()
    assert f"the administrator sets {limit.split()[0]} in [limits]" in refused.stderr.decode()
    if limit.startswith("highest"):
        assert alice.wait(alice.submit("--priority", "0", "true")) == 0
        root = QueueOnNode(node, "root")
        assert root.wait(root.submit(*options, "true")) == 0


@pytest.mark.parametrize("restarts", [False, True], ids=["at once", "after a restart"])
def test_those_who_had_less_go_first(node: Node, alice: Place, settings: None, restarts: bool) -> None:
    put_settings(node, "[order]\nfair-share-half-life = '1h'\n")
    assert alice.wait(alice.submit("--cpus", str(CPUS), "sleep", "1")) == 0
    root = Place(node, "root")
    root.start("--cpus", str(CPUS), "-c", "touch up; until [ -e go ]; do sleep 0.05; done")
    says = ("--cpus", str(CPUS), "-c", "echo $USER >>/run/order")
    node.sh("touch /run/order; chmod 666 /run/order")
    bob = QueueOnNode(node, "bob")
    hers, his = alice.submit(*says), bob.submit(*says)
    if restarts:
        node.run(["systemctl", "restart", DAEMON])
    assert alice.show(hers)["reason"].endswith(f" Job {his}, the head of the queue, goes before it.")
    root.shell("touch go")
    assert alice.wait(hers) == bob.wait(his) == 0
    assert node.sh(f"cat /run/order; rm -r /run/order {root.path}").split() == ["bob", "alice"]
