"""What users of one node can't do to each other, to root, or to the daemon: tried as them, for real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admin_on_node import SETTINGS, Place, place
from tests.node import Node
from tests.queue_on_node import QueueOnNode

SCRIPTS = "/run/sysjobs/jobs"


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


@pytest.fixture
def bob(node: Node) -> Iterator[Place]:
    with place(node, "bob") as bob:
        yield bob


def refused(there: Place, *attempts: str) -> None:
    """None of these commands of a user succeeds."""
    script = "".join(
        f"if {{ {attempt}; }} >/dev/null 2>&1; then echo {number}; fi\n"
        for number, attempt in enumerate(attempts)
    )
    done = there.node.run(["bash", "-c", script], user=there.user)
    assert [attempts[int(number)] for number in done.stdout.split()] == []


# Directories


def test_directories_of_the_daemon(node: Node, alice: Place) -> None:
    """A job's directory is not its user's to change: they may write to its traces and read its scripts."""
    job = alice.start("--setup", "true", "-c", "touch up; sleep 1000")
    there = f"{SCRIPTS}/{job}"
    assert alice.shell(f"cat {there}/1.phase; grep -c '' {there}/1.run").splitlines()[0] == "run"
    refused(
        alice,
        *(f"touch {directory}/new" for directory in ("/run/sysjobs", SCRIPTS, there, "/var/lib/sysjobs")),
        *(f"mkdir {directory}/new" for directory in ("/run/sysjobs", SCRIPTS, there, "/var/log/sysjobs")),
        f"mv -T {there} {SCRIPTS}/0",
        f"rm -f {there}/1.phase",
        f"ln -sf /etc/shadow {there}/1.phase",
        f"mv {there}/1.phase {there}/1.failed",
        f"echo id >>{there}/1.run",
        f"chmod u+w {there}/1.run",
        f"chmod 777 {there}",
        f"ls {there}",
        f"ls {SCRIPTS}",
        "ls /var/lib/sysjobs",
        "ln -sfT /etc /var/log/sysjobs/alice",
        "mv /var/log/sysjobs/alice /tmp/alice",
        "rm /run/sysjobs/io.sysjobs",
    )
    options = node.sh(f"findmnt -no OPTIONS {SCRIPTS}").split(",")
    assert {"nosuid", "nodev", "noexec"} <= set(options)


def test_what_belongs_to_somebody_else(alice: Place, bob: Place) -> None:
    secret = "do-not-tell"
    job = alice.start("--env", f"TOKEN={secret}", "bash", "-c", f"touch up; echo {secret}; sleep 1000")
    assert alice.shell(f"cat {SCRIPTS}/{job}/1.run").count(secret) == 2
    alice.until(f"sysjobs logs {job} | grep {secret}")
    refused(
        bob,
        f"cat {SCRIPTS}/{job}/1.run",
        f"stat {SCRIPTS}/{job}/1.phase",
        f"cat /var/log/sysjobs/alice/{job}.log",
        "ls /var/log/sysjobs/alice",
        f"sysjobs logs {job}",
        f"sysjobs logs -f {job}",
        f"sysjobs cancel {job}",
        "sysjobs cancel --all --all-users",
        f"systemctl --no-ask-password stop sysjobs-{job}",
        f"systemctl --no-ask-password kill sysjobs-{job}",
        "systemctl --no-ask-password stop sysjobsd",
        f"kill -KILL $(systemctl show -P MainPID sysjobs-{job})",
        f"cat /proc/$(systemctl show -P MainPID sysjobs-{job})/environ",
        # What everybody may see has none of it.
        f"systemctl show sysjobs-{job} | grep {secret}",
        f"systemctl cat sysjobs-{job} | grep {secret}",
        f"{{ sysjobs show {job}; sysjobs show --json {job}; sysjobs queue -a --json; }} | grep {secret}",
        f"grep -rs {secret} /run /var/log /var/lib",
        f"journalctl | grep {secret}",
    )
    assert alice.show(job)["status"] == "RUNNING"


def test_filling_the_directory_of_a_job(node: Node, alice: Place, bob: Place) -> None:
    """A trace can be made to grow. That harms no one: it has room of its own, and is cut back for others."""
    job = alice.start("-c", "touch up; sleep 1000")
    size = node.sh(f"findmnt -bno SIZE {SCRIPTS}").strip()
    try:
        node.run(["mount", "-o", "remount,size=1m", SCRIPTS])
        waiting = bob.start("-c", "touch up; sleep 1000")
        fill = f"cat /dev/zero 1<>{SCRIPTS}/{job}/1.phase"
        alice.shell(f"! {fill} 2>/dev/null")
        assert node.sh(f"df --output=avail {SCRIPTS}").split()[1] == "0"
        assert bob.output("echo", "works") == b"works\n"
        assert "user id 1000 filled" in node.journal("sysjobsd")
        # As often as it is tried.
        with node.spawn(["bash", "-c", f"while :; do {fill}; done 2>/dev/null"], user="alice") as filling:
            for number in range(2):
                assert bob.output("--setup", "true", "echo", str(number)) == b"%d\n" % number
            filling.kill()
        assert bob.show(waiting)["status"] == "RUNNING"
        # Of her own job only she forged the traces; how it ended is what systemd saw.
        alice.run("cancel", str(job))
        assert alice.wait(job) == 103
    finally:
        node.run(["mount", "-o", f"remount,size={size}", SCRIPTS])


# What root opens


def test_root_reads_no_link_that_a_user_put_in_the_place_of_a_log(node: Node, alice: Place) -> None:
    job = alice.submit("true")
    assert alice.wait(job) == 0
    log = f"/var/log/sysjobs/alice/{job}.log"
    root = QueueOnNode(node, "root")
    # A hard link as a kernel would let her make that doesn't protect them.
    node.run(["ln", "-f", "/etc/shadow", f"{alice.path}/hard"])
    for command in ("ln -sf /etc/shadow", "ln -f hard", "rm -f", "mkfifo", "rm -f", "mkdir"):
        run_by = "root" if "hard" in command else "alice"
        node.sh(f"cd {alice.path}; {command} {log}", user=run_by)
        for options in ([], ["-f"], ["--tail", "1"]):
            told = root.run("logs", *options, str(job), check=False)
            assert told.stdout == b"", command
            if command != "rm -f":
                assert told.returncode == 1
                assert f"The log {log} is not a file of the job's user." in told.stderr.decode()


def test_a_job_whose_log_is_a_link_writes_as_its_user(node: Node, alice: Place) -> None:
    last = alice.submit("true")
    assert alice.wait(last) == 0
    shadow = "stat -c '%s %Y %Z %U' /etc/shadow; ls /etc"
    before = node.sh(shadow)
    for number, target in enumerate(("/etc/shadow", "/etc/new"), last + 1):
        alice.shell(f"ln -s {target} /var/log/sysjobs/alice/{number}.log")
        job = alice.submit("echo", "root::0:::::::")
        assert job == number
        alice.wait(job)
        assert node.sh(shadow) == before
    assert alice.show(job)["reason_code"] == "no-log"
    alice.shell("find /var/log/sysjobs/alice -type l -delete")


# What one user can have of the daemon


def test_jobs_that_wait_are_bounded_for_each_user(node: Node, alice: Place, bob: Place) -> None:
    node.put(SETTINGS, b"[limits]\npending-per-user = 3\n")
    try:
        node.run(["systemctl", "reload", "sysjobsd"])
        alice.start("--cpus", node.sh("nproc").strip(), "-c", "touch up; sleep 1000")
        waiting = [alice.submit("true") for _ in range(3)]
        told = alice.run("submit", "true", check=False)
        assert told.returncode == 1
        assert told.stderr.decode().splitlines()[0] == (
            "sysjobs: You have 3 jobs waiting, and nobody may have more than 3."
        )
        bob.submit("true")
        # A daemon that starts anew counts them again.
        node.run(["systemctl", "restart", "sysjobsd"])
        assert alice.run("submit", "true", check=False).returncode == 1
        alice.run("cancel", str(waiting[0]))
        alice.submit("true")
        assert alice.run("submit", "true", check=False).returncode == 1
    finally:
        node.run(["rm", SETTINGS])
        node.run(["systemctl", "reload", "sysjobsd"])
