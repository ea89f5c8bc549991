"""What goes on around the daemon: systemd, D-Bus and the journal restart or hang, others stop units,
signals come at bad moments, descriptors are scarce. Jobs go on, no outcome is lost, none begins twice."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.admin_on_node import (
    DAEMON,
    Place,
    daemon,
    daemon_seconds,
    drop_in,
    kill_daemon,
    place,
    stopped,
    systemd_stopped,
    unit,
)
from tests.crowd import check, crowd, ends
from tests.node import Node
from tests.waiting import wait_until

BOTH = "sysjobsd.socket sysjobsd.service"
STOPPED = ("CANCELLED", "stopped")
PAUSE = "read -t 0.1 <> <(:) || :"
LOST = ("FAILED_DRIVER", "lost")


@pytest.fixture(scope="module")
def node(own_node: Node) -> Node:
    return own_node


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


@contextmanager
def meanwhile(node: Node, script: str) -> Iterator[None]:
    """Do this over and over on the node; it must have been done once at least."""
    flag = f"/run/enough.{time.monotonic_ns()}"
    loop = f"count=0; until [ -e {flag} ]; do {script}\ncount=$((count + 1)); done; echo $count"
    process = node.spawn(["bash", "-c", loop])
    try:
        yield
    finally:
        node.run(["touch", flag])
        output, errors = process.communicate(timeout=60)
    assert int(output.split()[-1]) > 0, errors


SAVES = """
trap 'sleep 0.5; touch saved.{0}; exit' TERM
touch up.{0}
while :; do sleep 0.1; done
"""


def became(alice: Place, jobs: list[int]) -> Counter[tuple[str, str]]:
    """Which statuses and reasons these jobs have, and how often."""
    listed = alice.jobs(*map(str, jobs))
    return Counter((listed[job]["status"], listed[job]["reason_code"]) for job in jobs)


def test_systemd_is_reloaded_all_the_time(node: Node, alice: Place) -> None:
    # Back to back, reloads would leave systemd no time for anything else.
    with meanwhile(node, f"systemctl daemon-reload; {PAUSE}"):
        jobs = alice.submit_many(crowd(60, 3, cpus=0.02))
        assert alice.wait(*jobs) == 100
    check(alice, jobs)


def test_dbus_and_the_journal_are_restarted(node: Node, alice: Place) -> None:
    # Reset, since systemd would give up on services that start this often.
    restart = "systemctl reset-failed $each; systemctl restart $each"
    with meanwhile(node, f"for each in dbus systemd-journald; do {restart}; done; {PAUSE}"):
        jobs = alice.submit_many(crowd(60, 3, cpus=0.02))
        assert alice.wait(*jobs) == 100
    check(alice, jobs)


def test_there_is_no_journal_for_a_while(node: Node, alice: Place) -> None:
    since = time.time()
    parts = "systemd-journald.socket systemd-journald-dev-log.socket systemd-journald-audit.socket"
    node.sh(f"systemctl stop {parts} systemd-journald")
    try:
        assert node.run(["systemctl", "is-active", "systemd-journald"], check=False).returncode != 0
        jobs = alice.submit_many(crowd(60, 2, cpus=0.02))
        assert alice.wait(*jobs) == 100
    finally:
        node.sh("systemctl start systemd-journald.socket systemd-journald-dev-log.socket systemd-journald")
    check(alice, jobs)
    # What it says afterwards is there again.
    node.run(["systemctl", "reload", DAEMON])
    node.wait_for(f"journalctl -q -u {DAEMON} --since=@{since:.0f} -o cat | grep 'settings were read'")


def test_the_journal_hangs(node: Node, alice: Place) -> None:
    journald = node.sh("systemctl show -P MainPID systemd-journald").strip()
    assert journald != "0"
    pid = daemon(node, "MainPID")
    before = node.get(f"/proc/{pid}/stat").split()[13:15]
    node.run(["kill", "-STOP", journald])
    try:
        # Each makes it say something, until nothing more fits into its connection to the journal.
        node.sh(f"for i in {{1..2000}}; do kill -HUP {pid}; read -t 0.001 <> <(:) || :; done")
        jobs = alice.submit_many(crowd(12, 1, cpus=0.02))
        assert alice.wait(*jobs) == 100
    finally:
        node.run(["kill", "-CONT", journald])
    assert node.get(f"/proc/{pid}/stat").split()[13:15] != before
    check(alice, jobs)


def test_systemd_does_not_answer(node: Node, alice: Place) -> None:
    since = time.time()
    jobs = alice.submit_many(crowd(60, 8, cpus=0.01))
    # Both take a while to end, the second in a process that the job itself leaves behind.
    ended = [alice.start("--cpus", "0", "--grace", "2s", "-c", SAVES.format("main"))]
    rest = f"bash -c {shlex.quote(SAVES.format('rest'))} & until [ -e go ]; do sleep 0.1; done; touch gone"
    ended.append(alice.start("--cpus", "0", "--grace", "2s", "-c", rest, count=2))
    pid = daemon(node, "MainPID")
    late = []

    def submit() -> int:
        late.append(alice.submit("--cpus", "0", "-C", alice.path, "-c", "echo $SYSJOBS_JOB_ID >>late"))
        return late[-1]

    with systemd_stopped(node):
        # The first finds out, in the time that a call may take; nothing after it waits for systemd.
        submit()
        alice.run("queue", timeout=15)
        alice.shell("touch go; until [ -e gone ]; do sleep 0.01; done")
        alice.run("cancel", *map(str, ended))
        cancelled = time.monotonic()
        for _ in range(4):
            shown = alice.show(submit())
            assert (shown["status"], shown["reason_code"]) == ("PENDING", "no-systemd"), shown
            assert "systemd, which doesn't answer" in alice.run("queue", "-s", timeout=15).stdout.decode()
            alice.log(jobs[0])
            assert alice.show(ended[0])["reason_code"] == "no-systemd"
        # Longer than the grace, which counts from the SIGTERM.
        wait_until(lambda: time.monotonic() > cancelled + 3)
    assert alice.wait(*ended) == 103
    alice.until("[ $(ls | grep -c ^saved) = 2 ]")
    assert alice.wait(*jobs) == 100
    assert alice.wait(*late) == 0
    # When they ended is systemd's word, and it looked later.
    check(alice, jobs, within=30)
    assert sorted(map(int, alice.file("late").split())) == late
    assert daemon(node, "MainPID") == pid
    said = node.journal(DAEMON, since=since)
    assert said.count("out of touch with systemd") == said.count("connected to systemd again") == 1


def test_unix_signals_in_the_middle_of_calls(node: Node, alice: Place) -> None:
    since = time.time()
    pid = daemon(node, "MainPID")
    kills = "; ".join(f"kill -{name} {pid}" for name in ("STOP", "CONT", "HUP", "WINCH", "CHLD", "URG"))
    with meanwhile(node, f"{kills}; {PAUSE}"):
        jobs = alice.submit_many(crowd(60, 2, cpus=0.02))
        assert alice.wait(*jobs) == 100
    check(alice, jobs)
    assert daemon(node, "MainPID") == pid
    assert "out of touch" not in node.journal(DAEMON, since=since)


def test_sigterm_in_the_middle_of_calls(node: Node, alice: Place) -> None:
    began = f"$(ls {alice.path} | grep -c ^begun)"
    # After some more jobs, since a submit gives up on a daemon that always ends before it answers.
    some_more = (
        f"until=$(({began} + 8)); for i in {{1..100}}; do [ {began} -ge $until ] && break; {PAUSE}; done"
    )
    with meanwhile(node, f"{some_more}; systemctl kill --signal TERM {DAEMON}"):
        jobs = alice.submit_many(crowd(60, 2, cpus=0.02))
    assert alice.wait(*jobs) == 100
    check(alice, jobs)


def test_units_are_reset_and_stopped_by_others(node: Node, alice: Place) -> None:
    with meanwhile(node, "systemctl reset-failed 'sysjobs-*'"):
        jobs = alice.submit_many(crowd(60, 2, cpus=0.01))
        assert alice.wait(*jobs) == 100
    check(alice, jobs)
    one = alice.start("-c", "touch up1; exec sleep 1000")
    node.run(["systemctl", "stop", f"sysjobs-{one}"])
    assert alice.wait(one) == 103
    specs = [{"shell": "exec sleep 1000", "cpus": 0.01}] * 25
    specs += [{"setup": "exec sleep 1000", "command": ["touch", "never"], "cpus": 0.01}] * 5
    many = alice.submit_many(specs)
    node.run(["systemctl", "stop", "sysjobs.slice"])
    later = alice.submit_many([{"command": ["true"], "cpus": 0.01}] * 5)
    # What had not started by then, or was still asked for, may run.
    alice.run("cancel", "--all", "--grace", "0")
    assert alice.wait(*many) == 103
    assert alice.wait(*later) in (0, 103)
    assert became(alice, [one]) == {STOPPED: 1}
    assert became(alice, many).keys() <= {STOPPED, ("CANCELLED", "cancelled")}
    assert became(alice, many)[STOPPED] > 0
    assert "never" not in alice.shell("ls")


def test_units_are_reset_and_stopped_while_it_is_away(node: Node, alice: Place) -> None:
    stays = alice.submit_many([{"shell": f"touch up{n}; exec sleep 1000", "cpus": 0} for n in range(4)])
    waits = "until [ -e go ]; do sleep 0.1; done; exit 3"
    fails = alice.submit_many([{"shell": f"touch up1{n}; {waits}", "cpus": 0} for n in range(3)])
    alice.until("[ $(ls | grep -c ^up) = 7 ]")
    node.sh(f"systemctl stop {BOTH}")
    alice.shell("touch go")
    node.wait_for(" && ".join(f"systemctl -q is-failed sysjobs-{job}" for job in fails))
    node.run(["systemctl", "reset-failed", f"sysjobs-{fails[0]}"])
    node.run(["systemctl", "stop", f"sysjobs-{stays[0]}"])
    node.sh(f"systemctl start {BOTH}")
    assert alice.wait(*fails, stays[0]) == 100
    assert became(alice, [fails[0], stays[0]]) == {LOST: 2}
    assert became(alice, fails[1:]) == {("FAILED", "exit-code"): 2}
    assert became(alice, stays[1:]) == {("RUNNING", None): 3}
    node.sh(f"systemctl stop {BOTH}; systemctl stop sysjobs.slice; systemctl start {BOTH}")
    assert alice.wait(*stays) == 100
    assert became(alice, stays) == {LOST: 4}
    assert alice.output("true") == b""


DEAF = """
import sys
from pathlib import Path
from sysjobs import daemon, sysjobsd
from sysjobs.engine.bus import Bus

hear = Bus.signals
Bus.signals = lambda bus: hear(bus) * (not Path("/run/sysjobs/deaf").exists())
daemon.CHECK_EVERY = float(sys.argv[1])
sys.exit(sysjobsd.main([]))
"""


@pytest.mark.parametrize("every", [60, 0.5])
def test_signals_are_missed(node: Node, alice: Place, every: float) -> None:
    """A reload finds what no signal told, and so does a look from time to time."""
    node.put("/run/deaf.py", DEAF.encode())
    with drop_in(node, f"ExecStart=\nExecStart=python3 /run/deaf.py {every}"):
        queued = alice.submit_many(crowd(18, 1, cpus=0.02))
        waits = alice.submit("--cpus", node.sh("nproc").strip(), "true")
        node.run(["touch", "/run/sysjobs/deaf"])
        try:
            ends(alice, len(queued))
            node.wait_for("! systemctl list-units --no-legend --state running 'sysjobs-[0-9]*' | grep .")
            if every == 60:
                assert became(alice, [queued[-2]]) == {("RUNNING", None): 1}
                node.run(["systemctl", "reload", DAEMON])
            assert alice.wait(*queued) == 100
            check(alice, queued)
            if every == 60:
                # What it asked for since is told by no signal either.
                node.wait_for(f"systemctl reload {DAEMON}; sysjobs logs --status {waits}", user="root")
            assert alice.wait(waits) == 0
        finally:
            node.run(["rm", "-f", "/run/sysjobs/deaf"])


def test_the_daemon_is_stopped_while_hundreds_end(node: Node, alice: Place) -> None:
    pid = daemon(node, "MainPID")
    jobs = alice.submit_many(crowd(150, 3, cpus=0.01))
    with stopped(node):
        ends(alice, len(jobs) - 1)
    assert alice.wait(*jobs) == 100
    check(alice, jobs)
    assert daemon(node, "MainPID") == pid


FULL = b"sysjobs: sysjobsd has as many connections open as its LimitNOFILE= allows."
HOG = """
import select, socket, sys
held = []
# It takes what the daemon gives back, too.
while not select.select([sys.stdin], [], [], 0.01)[0]:
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect("/run/sysjobs/io.sysjobs")
    if select.select([held[-1]], [], [], 0.2)[0]:
        held.pop().close()
        print(flush=True)
"""


def test_few_descriptors(node: Node, alice: Place) -> None:
    with drop_in(node, "LimitNOFILE=24"):
        jobs = alice.submit_many(crowd(30, 3, cpus=0.01))
        hog = node.spawn(["python3", "-c", HOG], user="bob")
        assert hog.stdout is not None
        hog.stdout.readline()
        began, used = time.monotonic(), daemon_seconds(node)
        wait_until(lambda: FULL in alice.run("queue", check=False).stderr)
        # But for what a start or a look opens for a moment.
        node.wait_for(f"[ $(ls /proc/{daemon(node, 'MainPID')}/fd | wc -l) -le 17 ]")
        ends(alice, len(jobs))
        # It waits rather than tries all the time.
        assert daemon_seconds(node) - used < (time.monotonic() - began) / 2
        hog.communicate()
        assert alice.wait(*jobs) == 100
        check(alice, jobs)


def test_no_descriptors_at_all(node: Node, alice: Place) -> None:
    since = time.time()
    cpus = int(node.sh("nproc"))
    pid = daemon(node, "MainPID")
    stays = alice.start("--cpus", "0", "--grace", "60s", "-c", "sleep 1000 & touch up; exec sleep 1000")
    jobs = alice.submit_many(crowd(30, 3, cpus=cpus / 20))
    limit = node.sh(f"prlimit --pid {pid} --nofile -o SOFT --noheadings").strip()
    # Of those that can be had its standard streams are all, whatever else was just closed.
    node.run(["prlimit", "--pid", pid, "--nofile=3:"])
    try:
        ends(alice, 20)
        node.wait_for(
            f"journalctl -q -u {DAEMON} --since=@{since:.0f} -o cat | grep -i 'too many open files'"
        )
    finally:
        node.run(["prlimit", "--pid", pid, f"--nofile={limit}:"])
    assert alice.wait(*jobs) == 100
    check(alice, jobs)
    assert became(alice, [stays]) == {("RUNNING", None): 1}
    assert daemon(node, "MainPID") == pid


OTHERS = """
import sys
from sysjobs.engine.bus import Bus

bus = Bus("/run/systemd/private", "other-")
for number in range(int(sys.argv[1])):
    bus.start_transient(f"other-{number}.slice", [])
"""


def test_a_thousand_units_that_are_not_its_own(node: Node, alice: Place) -> None:
    number = 1000
    jobs = alice.submit_many(crowd(30, 4, cpus=0.02))
    try:
        node.run(["python3", "-c", OTHERS, str(number)])
        node.wait_for(
            f"[ $(systemctl list-units --no-legend --state active 'other-*' | grep -c .) = {number} ]"
        )
        kill_daemon(node)
        jobs += alice.submit_many(crowd(30, 1, cpus=0.02))
        node.run(["systemctl", "daemon-reload"])
        assert alice.wait(*jobs) == 100
        # systemd looks at ends late while it is reloaded with so many.
        check(alice, jobs, within=30)
        assert "unit of job" not in node.journal(DAEMON)
    finally:
        node.run(["systemctl", "stop", "other.slice"])


def test_daemon_and_jobs_are_killed_at_once(node: Node, alice: Place) -> None:
    cpus = int(node.sh("nproc"))
    spec = {"shell": "touch up$SYSJOBS_JOB_ID; exec sleep 1000", "cpus": cpus / 20}
    jobs = alice.submit_many([spec] * 20)
    waits = alice.submit("--cpus", str(cpus), "true")
    alice.until("[ $(ls | grep -c ^up) = 20 ]")
    pids = [unit(node, job, "MainPID") for job in jobs]
    node.run(["kill", "-KILL", *pids[:10], daemon(node, "MainPID"), *pids[10:]])
    assert alice.wait(*jobs) == 100
    assert became(alice, jobs) == {("FAILED_DRIVER", "killed"): 20}
    assert alice.wait(waits) == 0, "what they had is free"


def test_cancels_while_it_is_killed(node: Node, alice: Place) -> None:
    """Each is effective, or its command doesn't exit with 0."""
    jobs = alice.submit_many([{"shell": "exec sleep 1000", "cpus": 0.01} for _ in range(15)])
    said: dict[int, subprocess.CompletedProcess[bytes]] = {}
    with meanwhile(node, f"systemctl kill --signal KILL {DAEMON}; read -t 2 <> <(:) || :"):
        for job in jobs:
            said[job] = alice.run("cancel", str(job), "--grace", "0", check=False)
    done = [job for job, each in said.items() if each.returncode == 0]
    assert done
    assert alice.wait(*done) == 103
    assert became(alice, done) == {("CANCELLED", "cancelled"): len(done)}
    for job in set(jobs) - set(done):
        assert said[job].stderr, said[job]
