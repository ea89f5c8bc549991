"""What users of one node can't do to each other, to root, or to the daemon: tried as them, for real."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin_on_node import SETTINGS, Place, daemon, place, unit
from tests.node import Node
from tests.queue_on_node import QueueOnNode
from tests.raw_client import RawClient

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


# Who somebody is


def test_a_job_runs_as_who_submitted_it_and_no_other(node: Node, alice: Place) -> None:
    assert alice.output("id") == node.run(["id"], user="alice").stdout
    refused(
        alice,
        "unshare -r sysjobs cancel --all --all-users",
        "sudo -n sysjobs queue",
        "sysjobs submit --uid 0 true",
    )
    # Root of a user namespace is who made it.
    inside = alice.shell("unshare -r bash -c 'id -u; sysjobs run id -u' 2>/dev/null")
    assert inside.split() == ["0", "1000"]
    for field in ("uid", "user", "gid", "unit", "properties"):
        with RawClient(node) as client:
            answer = client.call("Submit", {"job": {"command": ["id"], field: 0}})
            assert answer["parameters"] == {"parameter": f"job.{field}"}


# Names


NAMES = [
    "a\nb",
    "a\rb",
    "\x1b[2J",
    "a\x7f",
    "\x9b31m",
    "a\u202eb",
    "a\u2066b",
    "a\u2028b",
    "\ud800",
    "a\0b",
    "\t",
]
SHOWN = "$HOME ${X} $(id) %n %% %h `id` 'a' \"b\" \\ ; & | <b> #"


def test_names_that_could_pass_for_something_else(node: Node, alice: Place) -> None:
    with RawClient(node) as client:
        for name in NAMES:
            answer = client.call("Submit", {"job": {"command": ["true"], "name": name}})
            assert answer["parameters"]["code"] == "bad-name", name
            answer = client.call("Cancel", {"all": True, "reason": name})
            assert answer["parameters"]["code"] == "bad-reason", name
    job = alice.start("--name", SHOWN, "-c", "touch up; sleep 1000")
    assert unit(node, job, "Description") == f"sysjobs job {job}: {SHOWN} (alice)"
    assert SHOWN in alice.run("queue").stdout.decode()
    assert node.sh(f"systemctl list-units --no-legend --plain 'sysjobs-{job}*' | wc -l").strip() == "1"
    alice.run("cancel", str(job), "--reason", SHOWN)
    assert alice.wait(job) == 103
    assert alice.show(job)["cancel_reason"] == SHOWN


def test_a_user_whose_name_is_odd(node: Node, alice: Place) -> None:
    """The name of an account is whatever a directory service says it is."""
    odd = "x\x1b[2J/../$(id)%n\u202e"
    node.sh("cat >>/etc/passwd", input=f"{odd}:x:1077:1000::/tmp:/bin/sh\n".encode())
    try:
        as_odd = "cd /tmp; setpriv --reuid 1077 --regid 1000 --clear-groups"
        job = node.sh(f"{as_odd} sysjobs submit --parsable -- sh -c 'touch /tmp/odd-up; sleep 1000'").strip()
        node.wait_for("[ -e /tmp/odd-up ]")
        shown = node.sh(f"systemctl status --no-pager sysjobs-{job}; sysjobs queue -a; sysjobs show {job}")
        assert not re.search("[\x1b\u202e]", shown)
        assert r"x\x1b[2J/../$(id)%n\u202e" in unit(node, int(job), "Description")
        assert node.sh("ls /var/log/sysjobs").split().count("1077") == 1
    finally:
        node.run(["sed", "-i", "/:1077:/d", "/etc/passwd"])


# Traces


FORGED = {
    "exit 0": "SUCCEEDED",
    "exit 3": "FAILED_DRIVER",
    "exit 127": "FAILED_DRIVER",
    "kill -SEGV $$": "FAILED",
    "kill -KILL $$": "FAILED_DRIVER",
}


def test_traces_that_a_job_forges_of_itself(node: Node, alice: Place) -> None:
    """They may give a failure another reason. They make no success of it, nor the other way round."""
    forge = (
        f"cd {SCRIPTS}/$SYSJOBS_JOB_ID; echo command 127 1<>1.failed; echo setup 1<>1.phase;"
        "[ ! -e 1.setup-code ] || echo 0 1<>1.setup-code;"
    )
    jobs = {
        alice.submit(*setup, "-c", f"{forge} {end}"): status
        for end, status in FORGED.items()
        for setup in ([], ["--setup", "true"])
    }
    failing = alice.submit("--setup", f"{forge} exit 5", "--", "true")
    alice.wait(*jobs, failing)
    ended = {job: view["status"] for job, view in alice.jobs().items() if job in jobs}
    assert ended == jobs
    assert alice.show(failing)["status"].startswith("FAILED")


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


# The daemon itself


def test_what_the_daemon_may_do(node: Node) -> None:
    """It has one capability, and systemd finds it well locked up."""
    status = node.get(f"/proc/{daemon(node, 'MainPID')}/status").decode()
    sets = dict(re.findall(r"^Cap(Eff|Prm|Bnd|Inh|Amb):\s+(\w+)$", status, re.MULTILINE))
    assert {name: int(value, 16) for name, value in sets.items()} == {
        "Eff": 1, "Prm": 1, "Bnd": 1, "Inh": 0, "Amb": 0,
    }  # fmt: skip
    report = node.sh("systemd-analyze security --no-pager sysjobsd.service")
    exposure = re.search(r"Overall exposure level for sysjobsd.service: (\d+\.\d+)", report)
    assert exposure
    assert float(exposure[1]) <= 2.0
    text = (Path(__file__).parents[1] / "units" / "sysjobsd.service").read_text()
    for name in re.findall(r"^✗ ([\w.]+)=", report, re.MULTILINE):
        assert f"# - {EXPLAINED.get(name, name)}" in text, f"{name} is exposed, and the unit doesn't say why"


# Where the comment has another word for it.
EXPLAINED = {
    "CapabilityBoundingSet": "CAP_CHOWN",
    "SystemCallFilter": "CAP_CHOWN",
    "RestrictAddressFamilies": "AF_",
}
