"""Full disks, file systems that can't be written, damaged databases: nothing acknowledged is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from tests.admin_on_node import DAEMON, Place, cgroup, daemon, kill_daemon, place, unit, wait_empty
from tests.node import Node

DATABASE = "/var/lib/sysjobs"
LOGS = "/var/log/sysjobs"
SCRIPTS = "/run/sysjobs/jobs"
STUBBORN = "trap '' TERM; touch up; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def disk(own_node: Node) -> Node:
    """A node on which each directory is a small file system, to be filled."""
    own_node.sh(
        f"""
        systemctl stop sysjobsd.socket {DAEMON}
        mount -t tmpfs -o size=32M,mode=700 tmpfs {DATABASE}
        mount -t tmpfs -o size=8M,mode=755 tmpfs {LOGS}
        mount -t tmpfs -o size=8M,mode=711 tmpfs {SCRIPTS}
        systemctl start sysjobsd.socket {DAEMON}
        """
    )
    return own_node


@pytest.fixture
def alice(disk: Node) -> Iterator[Place]:
    with place(disk) as alice:
        yield alice


@contextmanager
def full(node: Node, directory: str) -> Iterator[None]:
    """With not a byte free there."""
    node.sh(f"cat /dev/zero >{directory}/fill || :")
    try:
        yield
    finally:
        node.run(["rm", f"{directory}/fill"])


@contextmanager
def unwritable(node: Node) -> Iterator[None]:
    """With each write of the daemon to a file failing, as on a broken disk."""
    limit(node, "0")
    try:
        yield
    finally:
        limit(node, "unlimited")


def limit(node: Node, size: str) -> None:
    node.run(["prlimit", "--pid", daemon(node, "MainPID"), f"--fsize={size}:unlimited"])


def ended(shown: dict[str, object]) -> float:
    return datetime.fromisoformat(str(shown["ended_at"])).timestamp()


def test_on_a_full_disk_what_was_accepted_is_finished(disk: Node, alice: Place) -> None:
    since = time.time()
    ends = alice.start("--cpus", "0", "-c", "touch up1; until [ -e go ]; do sleep 0.05; done; exit 3")
    stubborn = alice.start("--cpus", "0", "--grace", "1s", "-c", STUBBORN, count=2)
    limited = alice.submit("--cpus", "0", "--time", "3s", "sleep", "1000")
    away = alice.start("--cpus", "0", "-c", "touch up3; until [ -e leave ]; do sleep 0.05; done", count=3)
    cpus = disk.sh("nproc").strip()
    blocking = alice.start("--cpus", cpus, "-c", "touch up4; until [ -e go ]; do sleep 0.05; done", count=4)
    waiting = alice.submit("--cpus", cpus, "-C", alice.path, "touch", "ran")
    with full(disk, DATABASE):
        refused = alice.run("submit", "true", check=False)
        assert refused.returncode == 1
        assert refused.stderr.decode() == (
            f"sysjobs: The file system of {DATABASE} is full: nothing is free, 4M is needed.\n"
            "  See to that, and submit again. What was submitted before is not lost.\n"
        )
        doctor = alice.run("doctor", check=False)
        assert doctor.returncode == 1
        assert f"problem  disk      The file system of {DATABASE} is full" in doctor.stdout.decode()
        alice.run("cancel", str(stubborn))
        assert alice.wait(stubborn) == 103
        alice.shell("touch go")
        assert alice.wait(ends, blocking, limited) == 100
        assert (alice.show(ends)["status"], alice.show(ends)["exit_code"]) == ("FAILED", 3)
        assert alice.show(limited)["reason_code"] == "time-limit"
        # A restart doesn't give the reserve away, whatever way it comes about.
        disk.run(["systemctl", "stop", "sysjobsd.socket", DAEMON])
        alice.shell("touch leave")
        disk.wait_for(f"systemctl show -P SubState sysjobs-{away} | grep -q exited")
        left = time.time()
        disk.sh(f"cat /dev/zero >{DATABASE}/more || :; rm {DATABASE}/more")
        disk.run(["systemctl", "start", "sysjobsd.socket", DAEMON])
        assert alice.wait(away) == 0
        assert ended(alice.show(away)) <= left
        kill_daemon(disk)
        assert alice.show(stubborn)["status"] == "CANCELLED"
        # What hasn't begun waits for room, and says so.
        shown = alice.show(waiting)
        assert (shown["status"], shown["reason_code"]) == ("PENDING", "no-room")
        assert shown["reason"].startswith(f"The file system of {DATABASE} is full")
        assert alice.shell("ls ran 2>/dev/null || :") == ""
        assert disk.journal(DAEMON, since=since).count(f"The file system of {DATABASE} is full") <= 3
    assert alice.wait(waiting) == 0
    assert alice.wait(alice.submit("true")) == 0
    assert "can't be written" not in disk.journal(DAEMON, since=since)


def test_while_nothing_can_be_written(disk: Node, alice: Place) -> None:
    since = time.time()
    ends = alice.start("--cpus", "0", "-c", "touch up1; until [ -e go ]; do sleep 0.05; done; exit 3")
    stubborn = alice.start("--cpus", "0", "-c", STUBBORN, count=2)
    asked = alice.start("--cpus", "0", "-c", "touch up3; sleep 1000", count=3)
    group = cgroup(disk, stubborn)
    alice.run("cancel", str(stubborn), "--grace", "2s")
    with unwritable(disk):
        alice.shell("touch go")
        disk.wait_for(f"systemctl show -P StatusText {DAEMON} | grep -q 'database can.t be written'")
        # What was promised before is done.
        wait_empty(disk, group, timeout=30)
        done = alice.run("cancel", str(asked), check=False)
        assert done.returncode == 1
        assert done.stderr.decode().startswith("sysjobs: The queue's database can't be written: ")
        assert alice.run("submit", "true", check=False).returncode == 1
        # Nothing is told, and no unit is let go of, before it is on disk.
        for job in (ends, stubborn, asked):
            assert alice.show(job)["status"] == "RUNNING"
            assert unit(disk, job, "LoadState") == "loaded"
        assert disk.journal(DAEMON, since=since).count("can't be written") == 1
        left = time.time()
    assert alice.wait(ends) == 100
    assert ended(alice.show(ends)) <= left
    assert alice.wait(stubborn) == 103
    assert alice.show(asked)["status"] == "RUNNING"
    assert "the database can be written again" in disk.journal(DAEMON, since=since)
    assert "can't be written" not in daemon(disk, "StatusText")


def test_no_room_for_start_scripts(disk: Node, alice: Place) -> None:
    with full(disk, SCRIPTS):
        job = alice.submit("-C", alice.path, "touch", "ran")
        disk.wait_for(f"sysjobs show {job} | grep -q 'tried again'")
        shown = alice.show(job)
        assert (shown["status"], shown["reason_code"]) == ("PENDING", "no-files")
        assert shown["reason"].startswith(f"Can't start now: {SCRIPTS}/{job}"), shown
        assert shown["reason"].endswith("No space left on device. It is tried again.")
        assert alice.shell("ls ran 2>/dev/null || :") == ""
    assert alice.wait(job) == 0


def test_no_room_for_systemd_s_units(disk: Node, alice: Place) -> None:
    """What can't be foreseen: the jobs go back to where they stood, and what was made for them away."""
    used = int(disk.sh("df -k --output=used /run | tail -n 1"))
    disk.run(["mount", "-o", f"remount,size={used + 64}k", "/run"])
    try:
        with full(disk, "/run"):
            first, second = (alice.submit("-C", alice.path, "-c", "echo $0 >>ran") for _ in range(2))
            disk.wait_for(f"sysjobs show {second} | grep -q 'See that /run has room. It is tried again'")
            for job in (first, second):
                shown = alice.show(job)
                assert (shown["status"], shown["reason_code"]) == ("PENDING", "no-unit")
            assert disk.sh(f"ls {SCRIPTS}") == ""
        assert alice.wait(first, second) == 0
    finally:
        disk.run(["mount", "-o", "remount,size=1G", "/run"])
    assert alice.show(first)["started_at"] <= alice.show(second)["started_at"]
    assert alice.file("ran").count("\n") == 2


def test_a_job_fills_the_disk_with_its_log(disk: Node, alice: Place) -> None:
    job = alice.submit("-c", "head -c 20M /dev/zero")
    try:
        assert alice.wait(job) == 100
        shown = alice.show(job)
        assert (shown["status"], shown["reason_code"], shown["exit_code"]) == ("FAILED", "exit-code", 1)
        waiting = alice.submit("echo", "ran")
        assert alice.show(waiting)["reason"].startswith(f"The file system of {LOGS} is full: ")
    finally:
        disk.run(["truncate", "-s", "0", f"{LOGS}/alice/{job}.log"])
    assert alice.wait(waiting) == 0
    assert alice.log(waiting) == b"ran\n"


def test_a_read_only_file_system_at_the_start(disk: Node, alice: Place) -> None:
    since = time.time()
    job = alice.start("--cpus", "0", "-c", "touch up; until [ -e go ]; do sleep 0.05; done; exit 3")
    disk.run(["systemctl", "stop", "sysjobsd.socket", DAEMON])
    disk.run(["mount", "-o", "remount,ro", DATABASE])
    try:
        assert disk.run(["systemctl", "start", "sysjobsd.socket", DAEMON], check=False).returncode == 1
        assert daemon(disk, "ExecMainStatus") == "78"
        said = disk.journal(DAEMON, since=since)
        assert f"{DATABASE}/sysjobs.db can't be opened: " in said
        assert "See that its file system is mounted and writable, and has room. Jobs run on meanwhile" in said
        assert "Traceback" not in said
        alice.shell("touch go")
        disk.wait_for(f"systemctl show -P SubState sysjobs-{job} | grep -q failed")
    finally:
        disk.run(["mount", "-o", "remount,rw", DATABASE])
    # Nothing more is to be done: the socket is there, and who comes starts it.
    assert alice.wait(job) == 100
    assert alice.show(job)["exit_code"] == 3
