"""Nothing is left of jobs that have ended, and what is there says whose it is."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.admin_on_node import UNITS, Place, clear, daemon_files, place
from tests.node import Node
from tests.queue_on_node import QueueOnNode

KINDS = (
    "-- true",
    "-c 'exit 3'",
    "-c 'kill -KILL $$'",
    "-c 'setsid nohup sleep 300 & exit 0'",
    "--grace 0 -c 'trap \"\" TERM; sleep 300 & exit 1'",
    "--setup 'exit 4' -- true",
    "--setup true -- true",
    "-- no-such-command",
    "--time 0.2 -- sleep 300",
    "-- false",
)
EACH = 25
USERS = ("alice", "bob")


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


def test_five_hundred_jobs_leave_nothing_that_the_queue_does_not_know(node: Node) -> None:
    clear(node)
    descriptors = daemon_files(node)
    processes = node.sh("ps -e -o uid= | awk '$1 >= 1000' | wc -l")
    submits = "; ".join(f"sysjobs submit --parsable --cpus 0.05 {kind}" for kind in KINDS)
    script = f"for i in $(seq {EACH}); do {submits}; done"
    clients = [node.spawn(["bash", "-c", script], user=user) for user in USERS]
    ids = [int(line) for client in clients for line in client.communicate(timeout=300)[0].split()]
    assert len(set(ids)) == len(ids) == len(USERS) * len(KINDS) * EACH >= 500
    QueueOnNode(node, "root").run("wait", f"{min(ids)}-{max(ids)}", check=False, timeout=300)

    jobs = json.loads(node.sh(f"sysjobs queue -a --json --limit 0 {min(ids)}-{max(ids)}"))
    assert {job["id"] for job in jobs} == set(ids)
    assert all(job["ended_at"] for job in jobs)
    node.wait_for(
        f"! systemctl list-units --no-legend --state active,activating,deactivating '{UNITS}' | grep ."
    )
    node.wait_for(f"[ $(systemctl list-units --all --no-legend '{UNITS}' | wc -l) -le 20 ]")
    failed = node.sh(
        f"systemctl list-units --no-legend --plain --state failed '{UNITS}' | cut -d' ' -f1"
    ).split()
    known = {job["unit"] for job in jobs if job["status"] != "SUCCEEDED"}
    assert set(failed) <= known, "units that the queue doesn't account for"
    # The slices of a user go some seconds after the user's last job.
    node.wait_for("! find /sys/fs/cgroup/sysjobs.slice -mindepth 1 -type d 2>/dev/null | grep .", timeout=60)
    assert node.sh("ls /run/sysjobs/jobs") == ""
    assert node.sh("ps -e -o uid= | awk '$1 >= 1000' | wc -l") == processes
    node.wait_for(f"[ $(ls /proc/$(systemctl show -P MainPID sysjobsd)/fd | wc -l) -le {descriptors} ]")


def test_an_administrator_sees_whose_it_is(node: Node, alice: Place) -> None:
    job = alice.start("-n", "a name", "--cpus", "0", "-c", "touch up; sleep 1000")
    status = node.run(["systemctl", "status", "--no-pager", f"sysjobs-{job}"]).stdout.decode()
    assert f"sysjobs job {job}: a name (alice)" in status
    assert f"Docs: file:/var/log/sysjobs/alice/{job}.log" in status
    assert "Active: active (running)" in status
    assert "sleep 1000" in status
    tree = node.run(["systemd-cgls", "--no-pager", "/sysjobs.slice"]).stdout.decode()
    assert f"sysjobs-{job}.service" in tree
    assert "sysjobs-u1000-0.slice" in tree


def test_a_failed_unit_stays_for_systemctl_status(node: Node, alice: Place) -> None:
    job = alice.submit("-n", "broken", "-c", "exit 3")
    assert alice.wait(job) == 100
    shown = node.run(["systemctl", "status", "--no-pager", f"sysjobs-{job}"], check=False)
    assert shown.returncode == 3
    assert "code=exited, status=3" in shown.stdout.decode()


def test_the_daemon_s_journal_has_no_errors(node: Node) -> None:
    journal = node.journal("sysjobsd")
    assert "Traceback" not in journal
    assert "Started sysjobsd.service" in journal
