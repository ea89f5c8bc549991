"""The daemon may be killed, stopped, upgraded, and systemd restarted: jobs go on, and no outcome is lost."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.admin_on_node import DAEMON, Place, daemon, kill_daemon, place, unit
from tests.crowd import BEGIN, END, check, crowd, ends
from tests.node import Node
from tests.raw_client import RawClient, request

BOTH = "sysjobsd.socket sysjobsd.service"


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


def test_killed_while_fifty_jobs_run_and_end(node: Node, alice: Place) -> None:
    cpus = int(node.sh("nproc"))
    jobs = alice.submit_many(crowd(50, 6, cpus=cpus / 50))
    queued = alice.submit_many([{"shell": BEGIN + "exit 0" + END, "cpus": cpus}] * 5)
    for number in range(0, 50, 6):
        ends(alice, number)
        node.run(["systemctl", "kill", "--signal", "KILL", DAEMON])
    assert alice.wait(*jobs) == 100
    assert alice.wait(*queued) == 0
    alice.shell("rm begun.{" + ",".join(map(str, queued)) + "}")
    check(alice, jobs)


def test_away_while_jobs_end(node: Node, alice: Place) -> None:
    jobs = alice.submit_many(crowd(18, 2, cpus=0.05))
    stays = "trap 'echo told >told' TERM; until [ -e go ]; do sleep 0.1; done"
    vanishing, cancelled, running = (
        alice.start("--cpus", "0", "--grace", "60s", "-c", f"touch up{number}; {text}", count=number)
        for number, text in ((1, "sleep 1000"), (2, stays), (3, "sleep 1000"))
    )
    waiting = alice.submit("--cpus", node.sh("nproc").strip(), "touch", "waited")
    invocation = unit(node, running, "InvocationID")
    alice.run("cancel", str(cancelled))
    alice.until("[ -e told ]")
    node.sh(f"systemctl stop {BOTH}")
    ends(alice, len(jobs))
    node.sh(f"systemctl stop sysjobs-{vanishing}")
    alice.shell("touch go")
    node.wait_for(f"systemctl show -P SubState sysjobs-{cancelled} | grep -q exited")
    assert alice.shell("ls waited 2>/dev/null || :") == ""
    one = "systemctl list-units --no-legend --plain --state running,start-pre 'sysjobs-[0-9]*'"
    node.wait_for(f'[ "$({one} | cut -d" " -f1)" = sysjobs-{running}.service ]')
    left = time.time()
    node.sh(f"systemctl start {BOTH}")
    assert alice.wait(*jobs) == 100
    check(alice, jobs, before=left)
    assert alice.wait(cancelled) == 103
    lost = alice.show(vanishing)
    assert (lost["status"], lost["reason_code"]) == ("FAILED_DRIVER", "lost")
    assert alice.show(running)["status"] == "RUNNING"
    assert unit(node, running, "InvocationID") == invocation
    alice.run("cancel", str(running), "--grace", "0")
    assert alice.wait(waiting) == 0


def test_what_has_begun_begins_no_second_time_though_its_traces_are_lost(node: Node, alice: Place) -> None:
    job = alice.start("--cpus", "0", "-c", "echo begun >>up; sleep 1000")
    node.sh(f"systemctl stop {BOTH}; rm -r /run/sysjobs/jobs/{job}; systemctl stop sysjobs-{job}")
    node.sh(f"systemctl start {BOTH}")
    assert alice.wait(job) == 100
    assert alice.show(job)["reason_code"] == "lost"
    assert alice.file("up") == "begun\n"


def test_killed_before_it_gave_a_log_directory_to_its_user(node: Node) -> None:
    node.sh("cd /var/log/sysjobs; [ ! -e bob ] || mv bob .bob; mkdir -m 700 bob")
    try:
        with place(node, "bob") as bob:
            assert bob.output("--cpus", "0", "echo", "hello") == b"hello\n"
    finally:
        node.sh("cd /var/log/sysjobs; rm -r bob; [ ! -e .bob ] || mv .bob bob")


def test_killed_at_random_moments_of_a_hundred_submits(node: Node, alice: Place) -> None:
    processes, each = 4, 25
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    names = [f"n{process}-{number}" for process in range(processes) for number in range(each)]
    script = f"""
        cd {alice.path}
        for number in $(seq 0 {each - 1}); do
            sysjobs submit --parsable --cpus 0.01 -n n$0-$number -c 'echo >>begun.$SYSJOBS_JOB_ID' || exit
        done >>submitted
    """
    clients = [
        alice.node.spawn(["bash", "-c", script, str(number)], user="alice") for number in range(processes)
    ]
    submitted = 0
    kills = 0
    while submitted < 0.9 * len(names):
        submitted += chance.randrange(1, 12)
        alice.until(f"[ $(cat submitted 2>/dev/null | wc -l) -ge {submitted} ]", timeout=60)
        for _ in range(chance.randrange(1, 3)):
            node.run(["systemctl", "kill", "--signal", "KILL", DAEMON], check=False)
            kills += 1
    said = [(client.communicate(timeout=120)[1], client.returncode) for client in clients]
    assert said == [(b"", 0)] * processes, f"seed {seed}"
    ids = sorted(map(int, alice.file("submitted").split()))
    assert len(set(ids)) == len(ids) == len(names), f"seed {seed}, {kills} kills"
    assert alice.wait(*ids, timeout=120) == 0
    listed = alice.jobs(f"{ids[0]}-{ids[-1]}")
    assert sorted(view["name"] for view in listed.values()) == sorted(names), f"seed {seed}"
    begun = alice.shell("grep -c '' begun.* | sed 's/^begun[.]//'").split()
    assert sorted(begun) == sorted(f"{job}:1" for job in ids), f"seed {seed}"


def test_sigterm_ends_it_and_leaves_jobs_alone(node: Node, alice: Place) -> None:
    job = alice.start("-c", "trap ': >told' TERM; touch up; while :; do sleep 0.1; done")
    before, pid = unit(node, job, "InvocationID"), daemon(node, "MainPID")
    node.run(["systemctl", "stop", DAEMON])
    # By itself: systemd had to kill nothing.
    assert daemon(node, "Result") == "success"
    # The socket is there still: who comes starts it again.
    assert alice.show(job)["status"] == "RUNNING"
    assert daemon(node, "MainPID") not in (pid, "0")
    assert unit(node, job, "InvocationID") == before
    assert unit(node, job, "ActiveState") == "active"
    assert alice.file("told") == alice.shell("ls told 2>/dev/null || :") == ""


def test_no_call_is_refused_while_it_ends(node: Node, alice: Place) -> None:
    """It's answered, or the connection ends and the call can be made again."""
    clients, calls, answers = 8, 1000, []
    pid = daemon(node, "MainPID")
    with ExitStack() as stack:
        connections = [stack.enter_context(RawClient(node)).socket for _ in range(clients)]
        for connection in connections:
            connection.sendall(request("List", {"limit": 1, "unfinished": True}) * calls)
        node.run(["kill", "-TERM", pid])
        for connection in connections:
            received = b""
            while data := connection.recv(1 << 20):
                received += data
            answers += received.split(b"\0")[:-1]
    assert 0 < len(answers) < clients * calls, "it ended in the middle"
    assert {answer for answer in answers if b"error" in answer} == set()
    alice.run("queue")
    assert daemon(node, "MainPID") != pid


def test_systemd_is_reloaded_and_restarted_while_jobs_come_and_go(node: Node, alice: Place) -> None:
    jobs: list[int] = []
    for _ in range(3):
        reloads = node.spawn(["bash", "-c", "for i in {1..9}; do systemctl daemon-reload; done"])
        jobs += alice.submit_many(crowd(18, 2, cpus=0.02))
        reloads.communicate()
        node.run(["systemctl", "daemon-reexec"])
    alice.wait(*jobs)
    check(alice, jobs)


def test_the_file_of_a_unit_is_removed_and_systemd_reloaded(node: Node, alice: Place) -> None:
    job = alice.start("--cpus", "0", "-c", "touch up; until [ -e go ]; do sleep 0.05; done; exit 3")
    node.sh(f"rm /run/systemd/transient/sysjobs-{job}.service; systemctl daemon-reload")
    assert unit(node, job, "LoadState") == "not-found"
    kill_daemon(node)
    node.run(["sysjobs", "doctor"], check=False)
    assert alice.show(job)["status"] == "RUNNING"
    alice.shell("touch go")
    assert alice.wait(job) == 100
    assert alice.show(job)["exit_code"] == 3


def test_a_unit_with_the_highest_of_all_ids(node: Node, alice: Place) -> None:
    highest = 10**18 - 1
    node.sh(f"systemd-run --unit sysjobs-{highest} sleep 1000; systemctl reload {DAEMON}")
    try:
        node.wait_for(f"sysjobs doctor | grep sysjobs-{highest}")
        job = alice.start("--cpus", "0", "-c", "touch up; until [ -e go ]; do sleep 0.05; done; exit 3")
        assert job < highest
        node.run(["sysjobs", "doctor"], check=False)
        alice.shell("touch go")
        assert alice.wait(job) == 100
        assert alice.show(job)["exit_code"] == 3
    finally:
        node.run(["systemctl", "stop", f"sysjobs-{highest}"])


def test_systemd_is_restarted_while_nothing_happens(node: Node, alice: Place) -> None:
    since = time.time()
    for _ in range(2):
        node.run(["systemctl", "daemon-reexec"])
        assert alice.wait(alice.submit("true")) == 0
    said = node.journal(DAEMON, since=since)
    assert said.count("connected to systemd again") == 2, said
    assert "Traceback" not in said, said


def test_a_reinstall_leaves_jobs_alone(node: Node, alice: Place) -> None:
    job = alice.start("-c", "touch up; until [ -e go ]; do sleep 0.05; done; exit 3")
    before, pid = unit(node, job, "InvocationID"), daemon(node, "MainPID")
    socket_since = node.sh("systemctl show -P ActiveEnterTimestampMonotonic sysjobsd.socket")
    node.put("/tmp/sysjobs.deb", node.deb)
    node.run(["apt-get", "-o", "APT::Sandbox::User=root", "install", "--reinstall", "-y", "/tmp/sysjobs.deb"])
    assert daemon(node, "MainPID") not in (pid, "0")
    # Nobody was refused meanwhile.
    assert node.sh("systemctl show -P ActiveEnterTimestampMonotonic sysjobsd.socket") == socket_since
    assert unit(node, job, "InvocationID") == before
    assert alice.show(job)["status"] == "RUNNING"
    alice.shell("touch go")
    alice.wait(job)
    assert alice.show(job)["exit_code"] == 3


def test_one_key_is_one_job(node: Node, alice: Place) -> None:
    def submit(user: str, key: str) -> int:
        with RawClient(node, user) as client:
            reply: dict[str, Any] = client.call(
                "Submit", {"job": {"command": ["true"], "cpus": 0}, "key": key}
            )
            number = reply["parameters"]["id"]
            assert isinstance(number, int)
            return number

    job = submit("alice", "a key")
    assert submit("alice", "a key") == job
    kill_daemon(node)
    assert submit("alice", "a key") == job
    assert alice.wait(job) == 0
    assert submit("alice", "a key") == job
    # Another key, or the same of another user, is another job.
    assert len({job, submit("alice", "another"), submit("bob", "a key")}) == 3


def test_start_scripts_of_an_older_version_stay_where_jobs_find_them(node: Node) -> None:
    mount, scripts = "run-sysjobs-jobs.mount", "/run/sysjobs/jobs"
    node.sh(f"systemctl stop {BOTH} {mount}; mkdir {scripts}/1; systemctl start {BOTH}")
    node.sh(f"! mountpoint -q {scripts}")
    # What is of no use any more goes as always.
    node.wait_for(f"! ls {scripts} | grep .")
    node.sh(f"systemctl stop {BOTH}; systemctl start {BOTH}; mountpoint -q {scripts}")


FAULTY = """
import asyncio, socket
from sysjobs.config import SYSTEM, Settings
from sysjobs.daemon import Daemon

loop = asyncio.new_event_loop()
daemon = Daemon(SYSTEM, Settings(), loop)
sock = socket.socket(socket.AF_UNIX)
sock.bind("/run/faulty")
sock.listen()
loop.call_later(0.1, lambda: 1 / 0)
raise SystemExit(loop.run_until_complete(daemon.run(sock)))
"""


def test_a_fault_of_its_own_ends_it(node: Node, alice: Place) -> None:
    """So that systemd starts it again: who knows what a daemon does that missed a step."""
    node.sh(f"systemctl stop {BOTH}")
    try:
        done = node.run(["python3", "-c", FAULTY], check=False)
    finally:
        node.sh(f"rm -f /run/faulty; systemctl start {BOTH}")
    assert done.returncode == 1
    assert b"ZeroDivisionError" in done.stderr
    assert daemon(node, "Restart") == "always"


def test_what_systemd_shows_of_it(node: Node, alice: Place) -> None:
    alice.run("queue")
    assert daemon(node, "ActiveState") == "active"
    assert re.fullmatch(r"\d+ running, \d+ waiting", daemon(node, "StatusText"))
    assert daemon(node, "WatchdogUSec") == "2min"
    assert int(daemon(node, "WatchdogTimestampMonotonic")) >= int(
        daemon(node, "ExecMainStartTimestampMonotonic")
    )
    assert daemon(node, "Type") == "notify"
    status = node.run(["systemctl", "status", "--no-pager", DAEMON]).stdout.decode()
    assert "Status: " in status
    assert "sysjobsd.socket" in status


def test_the_watchdog_heals_a_daemon_that_hangs(node: Node, alice: Place) -> None:
    since = time.time()
    drop_in = "/run/systemd/system/sysjobsd.service.d/watchdog.conf"
    node.put(drop_in, b"[Service]\nWatchdogSec=3s\nTimeoutAbortSec=1s\n")
    try:
        node.sh(f"systemctl daemon-reload; systemctl restart {DAEMON}")
        job = alice.start("-c", "touch up; until [ -e go ]; do sleep 0.05; done")
        hanging = daemon(node, "MainPID")
        node.run(["kill", "-STOP", hanging])
        alice.shell("touch go")
        node.wait_for(f"[ $(systemctl show -P MainPID {DAEMON}) != {hanging} ]")
        assert alice.wait(job) == 0
    finally:
        node.sh(f"rm {drop_in}; systemctl daemon-reload; systemctl restart {DAEMON}")
    # Fed in time, it isn't killed.
    assert node.journal(DAEMON, since=since).count(": Watchdog timeout (") == 1
