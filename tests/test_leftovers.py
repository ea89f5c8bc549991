"""Nothing is left of jobs that have ended, and what is there says whose it is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.admin_on_node import (
    DAEMON,
    SETTINGS,
    UNITS,
    Place,
    clear,
    daemon_files,
    kill_daemon,
    place,
    unit,
)
from tests.node import Node
from tests.queue_on_node import QueueOnNode

KINDS: list[dict[str, object]] = [
    {"command": ["true"]},
    {"command": ["true"], "setup": "true"},
    {"command": ["false"]},
    {"shell": "kill -KILL $$"},
    {"shell": "setsid nohup sleep 300 & exit 0"},
    {"shell": "trap '' TERM; sleep 300 & exit 1", "grace": 0},
    # A bash that has just been forked may miss a SIGTERM.
    {"command": ["true"], "setup": "sleep 300 & exit 4", "grace": 1},
    {"command": ["no-such-command"]},
    {"command": ["sleep", "300"], "time": 0.2},
    {"command": ["sleep", "300"], "time": 0.2, "setup": "sleep 300 & true"},
    {"command": ["sleep", "300"], "name": "to-cancel"},
    {"command": ["sleep", "300"], "name": "to-stop"},
]
EACH = 14
PROCESSES = "ps -e -o args= | grep -c '^sleep' || :"
USERS = ("alice", "bob", "root")


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


def test_systemd_is_reloaded_while_the_rest_of_a_job_is_being_stopped(node: Node, alice: Place) -> None:
    node.put(SETTINGS, b"[jobs]\nkeep-failed = 0\n")
    try:
        node.run(["systemctl", "reload", DAEMON])
        stubborn = (
            "setsid sh -c \"trap '' TERM; touch up; sleep 1000; sleep 1000\" & until [ -e up ]; do :; done"
        )
        job = alice.submit("-C", alice.path, "--cpus", "0", "--grace", "2s", "-c", stubborn)
        assert alice.wait(job) == 0
        node.wait_for(f"systemctl show -P ActiveState sysjobs-{job} | grep deactivating")
        node.run(["systemctl", "daemon-reload"])
        assert unit(node, job, "ActiveState") == "deactivating"
        node.wait_for(f"! systemctl list-units --all --no-legend | grep sysjobs-{job}.service")
    finally:
        node.sh(f"rm {SETTINGS}; systemctl reload {DAEMON}; systemctl reset-failed")


def test_nothing_takes_its_place_before_its_last_process_is_gone(node: Node, alice: Place) -> None:
    cpus = node.sh("nproc").strip()
    left = "setsid nohup bash -c \"trap '' TERM; touch up; until [ -e go ]; do sleep 0.05; done # left\""
    job = alice.start("--cpus", cpus, "--grace", "60s", "-c", f"{left} & until [ -e up ]; do :; done")
    waits = alice.submit("--cpus", cpus, "-c", "! pgrep -f '# lef[t]'")
    assert alice.wait(job) == 0
    assert alice.show(waits)["status"] == "PENDING"
    alice.shell("touch go")
    assert alice.wait(waits) == 0


def test_five_hundred_jobs_leave_nothing_that_the_queue_does_not_know(node: Node) -> None:
    clear(node)
    began = time.time()
    descriptors = daemon_files(node)
    processes = node.sh(PROCESSES)
    places = [Place(node, user) for user in USERS]
    specs = [kind | {"cpus": 0, "workdir": "/"} for kind in KINDS] * EACH
    with ThreadPoolExecutor() as threads:
        ids = sorted(
            job for jobs in threads.map(lambda place: place.submit_many(specs), places) for job in jobs
        )
    assert len(set(ids)) == len(ids) == len(USERS) * len(KINDS) * EACH >= 500
    for there in places:
        there.run("cancel", "to-cancel")
    active = f"systemctl list-units --no-legend --plain --state active '{UNITS}'"
    node.wait_for(f"[ $({active} | grep -c to-stop) = {len(USERS) * EACH} ]", timeout=120)
    node.sh(f"{active} | grep to-stop | cut -d' ' -f1 | xargs systemctl stop")
    everything = f"{ids[0]}-{ids[-1]}"
    QueueOnNode(node, "root").run("wait", everything, check=False, timeout=300)

    jobs = QueueOnNode(node, "root").run("queue", "-a", "--json", "--limit", "0", everything).stdout
    views = {view["id"]: view for view in json.loads(jobs)}
    assert set(views) == set(ids)
    assert all(view["ended_at"] for view in views.values())
    live = f"systemctl list-units --no-legend --state active,activating,deactivating '{UNITS}'"
    node.wait_for(f"! {live} | grep .")
    # The last failed ones are kept, for `systemctl status`.
    node.wait_for(f"[ $(systemctl list-units --all --no-legend '{UNITS}' | wc -l) -le 20 ]")
    kept = node.sh(f"systemctl list-units --all --no-legend --plain '{UNITS}' | awk '{{print $1, $3}}'")
    for name, state in (line.split() for line in kept.splitlines()):
        assert state == "failed"
        assert views[int(name.removeprefix("sysjobs-").removesuffix(".service"))]["status"] != "SUCCEEDED"
    # The slices of a user go some seconds after the user's last job.
    node.wait_for("! find /sys/fs/cgroup/sysjobs.slice -mindepth 1 -type d 2>/dev/null | grep .", timeout=60)
    node.wait_for("! systemctl list-units --no-legend 'sysjobs-*.slice' | grep .")
    assert node.sh("systemctl list-jobs --no-legend") == ""
    assert node.sh("ls /run/sysjobs/jobs") == ""
    assert node.sh(PROCESSES) == processes
    assert daemon_files(node) <= descriptors
    assert node.sh(f"journalctl -q -u sysjobsd --since @{began} --priority warning") == ""


def test_slices_go_though_the_daemon_was_killed_meanwhile(node: Node) -> None:
    with place(node, "bob") as bob:
        assert bob.wait(bob.submit("true")) == 0
        slice_ = "/sys/fs/cgroup/sysjobs.slice/sysjobs-u$(id -u bob).slice"
        node.sh(f"[ -e {slice_} ]")
        kill_daemon(node)
        node.wait_for(f"[ ! -e {slice_} ]", timeout=60)


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
