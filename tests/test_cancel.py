"""Cancelling: all processes of a job end, within its grace, and nothing else does."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.admin_on_node import Place, cgroup, daemon_seconds, kill_daemon, place, unit, wait_empty
from tests.node import Node
from tests.queue_on_node import QueueOnNode

# Half a second for a machine that has other things to do, four times over.

# Ignores SIGTERM, has a child in a session of its own, and two daemons that nobody is the parent of.
STUBBORN = """
trap '' TERM
setsid sleep 1000 &
( ( setsid sleep 1000 & ) & )
( sh -c 'sleep 1000 & setsid nohup sleep 1000 & exit' & )
touch up
while :; do sleep 1000; done
"""

CATCH = "trap 'echo TERM >>signals; exit 0' TERM; touch up; while :; do sleep 0.05; done"

# Counts the SIGTERMs that reach it; its checkpoint takes a while.
CHECKPOINT = """
import signal, sys, time
terms = []
signal.signal(signal.SIGTERM, lambda *_: terms.append(time.monotonic()))
open("up", "w").close()
while not terms:
    time.sleep(0.01)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    time.sleep(0.01)
print(len(terms), file=open("checkpoint", "w"))
"""


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


@dataclass(frozen=True)
class Neighbour:
    """A job that notes each SIGTERM, and must not get one."""

    place: Place
    job: int
    invocation: str

    @classmethod
    def start(cls, place: Place) -> Neighbour:
        job = place.start("--cpus", "0", "-c", CATCH)
        return cls(place, job, unit(place.node, job, "InvocationID"))

    def check_untouched(self) -> None:
        assert self.place.show(self.job)["status"] == "RUNNING"
        assert unit(self.place.node, self.job, "InvocationID") == self.invocation
        assert self.place.file("signals") == ""


@pytest.fixture
def neighbour(node: Node) -> Iterator[Neighbour]:
    with place(node, "bob") as bob:
        yield Neighbour.start(bob)


def test_all_processes_of_a_stubborn_job_end_in_time(node: Node, alice: Place, neighbour: Neighbour) -> None:
    job = alice.start("--cpus", "0", "--grace", "1s", "-c", STUBBORN)
    where = cgroup(node, job)
    node.wait_for(f"[ $(wc -l <{where}/cgroup.procs) -eq 6 ]")
    before = time.monotonic()
    told = alice.run("cancel", str(job)).stdout.decode()
    assert told == f"Job {job} (trap) is being cancelled; its processes were told to end.\n"
    wait_empty(node, where, timeout=30)
    took = time.monotonic() - before
    assert took >= 1.0
    assert alice.wait(job) == 103
    assert alice.show(job)["signal"] == 9
    assert node.run(["pgrep", "-u", "alice", "sleep"], check=False).stdout == b""
    neighbour.check_untouched()


def test_a_job_that_a_job_submitted_is_nobodys_hostage(node: Node, alice: Place) -> None:
    text = shlex.quote(CATCH.replace("up", "born"))
    child = f"sysjobs submit --parsable --cpus 0 -c {text} >child"
    job = alice.start("--cpus", "0", "--grace", "1s", "-c", f"{child}\n{STUBBORN}")
    alice.until("[ -e born ]")
    born = int(alice.file("child"))
    assert alice.show(born)["user"] == "alice"
    invocation = unit(node, born, "InvocationID")
    where = cgroup(node, job)
    # Another daemon than the one that started them tells them apart all the same.
    kill_daemon(node)
    alice.run("cancel", str(job))
    wait_empty(node, where, timeout=30)
    assert alice.wait(job) == 103
    assert alice.show(born)["status"] == "RUNNING"
    assert unit(node, born, "InvocationID") == invocation
    assert alice.file("signals") == ""


def test_before_it_starts(node: Node, alice: Place) -> None:
    cpus = node.sh("nproc").strip()
    blocker = alice.start("--cpus", cpus, "-n", "blocker", "-c", CATCH)
    waiting = alice.submit("-n", "waiting", "-C", alice.path, "touch", "begun")
    told = alice.run("cancel", str(waiting)).stdout.decode()
    assert told == f"Job {waiting} (waiting) is cancelled; it had not started.\n"
    assert alice.wait(waiting) == 103
    job = alice.show(waiting)
    assert (job["status"], job["started_at"]) == ("CANCELLED", None)
    assert job["reason"] == "Cancelled before it started by its owner."
    # What comes after it in the queue starts; it doesn't.
    after = alice.submit("true")
    alice.run("cancel", str(blocker))
    assert alice.wait(after) == 0
    assert alice.shell("ls begun 2>&1 || :").startswith("ls: cannot access")


# How a job may be when it is cancelled: arguments of its submit, and what root does to its unit then.
STATES = {
    "setup": (["--setup", CATCH, "--", "touch", "begun"], "true"),
    "running": (["-c", CATCH], "true"),
    "frozen": (["-c", CATCH], "systemctl freeze {unit}"),
    "stopped itself": (["-c", CATCH.replace("while", "kill -STOP $$; while")], "true"),
    "stopped": (["-c", CATCH], "systemctl kill --signal STOP {unit}"),
}


def test_before_systemd_comes_to_its_start(node: Node, alice: Place) -> None:
    """The unit is there, and waits for another one, as it does for a moment where PID 1 is busy."""
    gate, late = "/run/systemd/system/gate.service", "/run/systemd/system/sysjobs-.service.d/late.conf"
    node.put(gate, b"[Service]\nType=oneshot\nExecStart=sleep 1000\n")
    node.put(late, b"[Unit]\nAfter=gate.service\n")
    try:
        node.sh("systemctl daemon-reload; systemctl start --no-block gate")
        job = alice.submit("-C", alice.path, "--cpus", "0", "--grace", "60s", "touch", "begun")
        node.wait_for(f"systemctl list-jobs --no-legend | grep sysjobs-{job}.service")
        alice.run("cancel", str(job))
        node.wait_for(f"! systemctl list-jobs --no-legend | grep sysjobs-{job}.service")
        assert alice.wait(job) == 103
        node.sh("systemctl stop gate")
        assert alice.shell("ls") == ""
    finally:
        node.sh(f"systemctl stop gate; rm -f {gate} {late}; systemctl daemon-reload")


@pytest.mark.parametrize("state", STATES)
def test_in_every_state(node: Node, alice: Place, state: str) -> None:
    arguments, act = STATES[state]
    job = alice.start("--grace", "60s", *arguments)
    where = cgroup(node, job)
    expected = "SETTING_UP" if state == "setup" else "RUNNING"
    node.wait_for(f"[ $(sysjobs show --json {job} | grep -c {expected}) = 1 ]")
    node.sh(act.format(unit=f"sysjobs-{job}"))
    if "stopped" in state:
        node.wait_for(f"grep -q '^State:.*stopped' /proc/$(head -1 {where}/cgroup.procs)/status")
    alice.run("cancel", str(job))
    assert alice.wait(job, timeout=30) == 103
    wait_empty(node, where, timeout=30)
    # It saw the SIGTERM: it wasn't merely killed.
    assert alice.file("signals") == "TERM\n"
    assert alice.shell("ls").split() == ["signals", "up"]


def test_the_time_limit_ends_what_does_not_run(node: Node, alice: Place) -> None:
    jobs: list[int] = []
    for state in ("frozen", "stopped itself", "stopped"):
        (_, text), act = STATES[state]
        text = text.replace("touch up", "touch up.$SYSJOBS_JOB_ID")
        options = ["--cpus", "0", "--time", "2s", "--grace", "60s", "-c", text]
        jobs.append(alice.start(*options, count=len(jobs) + 1))
        node.sh(act.format(unit=f"sysjobs-{jobs[-1]}"))
    assert alice.wait(*jobs, timeout=30) == 100
    assert {alice.show(job)["reason_code"] for job in jobs} == {"time-limit"}
    assert alice.file("signals") == "TERM\n" * len(jobs)


def test_one_sigterm_reaches_children_and_they_have_the_grace(node: Node, alice: Place) -> None:
    node.put(f"{alice.path}/train.py", CHECKPOINT.encode(), owner="alice")
    job = alice.start("--grace", "60s", "-c", "python3 train.py 1; echo not reached")
    where = cgroup(node, job)
    alice.run("cancel", str(job))
    # Its main process, a shell, is gone at once.
    assert alice.wait(job) == 103
    before = daemon_seconds(node)
    alice.until("[ -s checkpoint ]")
    assert alice.file("checkpoint") == "1\n"
    # The end of the last process is noticed when it comes, neither at the end of the grace nor by polling.
    wait_empty(node, where, timeout=30)
    node.wait_for(f"! systemctl -q is-active sysjobs-{job}")
    assert daemon_seconds(node) - before < 0.4


def test_what_it_had_is_free_with_its_last_process(suite: str) -> None:
    """At once, though nothing else happens on the node."""
    with Node(suite) as node:
        alice, cpus = Place(node), node.sh("nproc").strip()
        node.put(f"{alice.path}/train.py", CHECKPOINT.encode(), owner="alice")
        job = alice.start("--cpus", cpus, "--grace", "60s", "-c", "python3 train.py 1; echo not reached")
        waits = alice.submit("--cpus", cpus, "true")
        alice.run("cancel", str(job))
        assert alice.wait(job, waits, timeout=30) == 103
        node.wait_for(f"! systemctl -q is-active sysjobs-{job}")


def test_one_sigterm_even_if_systemd_is_restarted_meanwhile(node: Node, alice: Place) -> None:
    node.put(f"{alice.path}/train.py", CHECKPOINT.encode(), owner="alice")
    jobs = [
        alice.start("--cpus", "0", "--grace", "60s", "python3", "train.py", "3"),
        alice.start(
            "--cpus",
            "0",
            "--grace",
            "60s",
            "-c",
            "sleep 1000 & trap : TERM; touch up2; wait; echo; sleep 3",
            count=2,
        ),
    ]
    alice.run("cancel", *map(str, jobs))
    began = time.time()
    node.run(["systemctl", "daemon-reexec"])
    node.wait_for(f"journalctl -q -u sysjobsd --since @{began} | grep -q 'connected to systemd again'")
    assert alice.wait(*jobs) == 103
    assert alice.file("checkpoint") == "1\n"


def test_the_grace_is_the_jobs_or_the_cancels(node: Node, alice: Place) -> None:
    stubborn = "trap '' TERM; touch up$SYSJOBS_JOB_ID; while :; do sleep 0.05; done"
    none = alice.start("--cpus", "0", "--grace", "0", "-c", stubborn)
    long = alice.start("--cpus", "0", "--grace", "180s", "-c", stubborn, count=2)
    twice = alice.start("--cpus", "0", "--grace", "180s", "-c", stubborn, count=3)
    # Longer than systemd's own default: it must not be cut there.
    assert unit(node, long, "TimeoutStopUSec") == "3min"
    for job, grace in ((none, []), (long, ["--grace", "0"])):
        alice.run("cancel", str(job), *grace)
        # Well before the grace that it would have otherwise.
        assert alice.wait(job, timeout=25) == 103
        assert alice.show(job)["signal"] == 9
    # A second cancel may shorten the grace of the first.
    alice.run("cancel", str(twice))
    assert alice.show(twice)["status"] == "RUNNING"
    alice.run("cancel", str(twice), "--grace", "0")
    assert alice.wait(twice) == 103


SAVES = "trap 'sleep 1; touch saved.{0}; exit' TERM; touch up.{0}; while :; do sleep 0.05; done"


def test_systemd_s_own_patience_cuts_no_grace(node: Node, alice: Place) -> None:
    """However a job comes to its end: it has 90 s by default, and here next to nothing."""
    path = "/run/systemd/system.conf.d/test.conf"
    node.put(path, b"[Manager]\nDefaultTimeoutStopSec=100ms\n")
    try:
        node.run(["systemctl", "daemon-reexec"])
        assert node.sh("systemctl show -P DefaultTimeoutStopUSec") == "100ms\n"
        options = ["--cpus", "0", "--grace", "60s", "-c"]
        cancelled, stopped = (alice.start(*options, SAVES.format(number), count=number) for number in (1, 2))
        left = f"bash -c {shlex.quote(SAVES.format(3))} & until [ -e up.3 ]; do :; done"
        ended = alice.start(*options, left, count=3)
        alice.run("cancel", str(cancelled))
        node.run(["systemctl", "stop", f"sysjobs-{stopped}"])
        alice.until("[ $(ls | grep -c ^saved) = 3 ]")
        assert alice.wait(cancelled, stopped) == 103
        assert alice.wait(ended) == 0
    finally:
        node.sh(f"rm {path}; systemctl daemon-reexec")


def test_those_that_are_named_and_no_others(node: Node, alice: Place) -> None:
    sleeps = ("-c", "touch up$SYSJOBS_JOB_ID; exec sleep 1000")
    sleepers = [
        alice.start("--cpus", "0", "-n", name, *sleeps, count=count)
        for count, name in enumerate("abbcde", start=1)
    ]
    second, third, fourth, fifth, last = sleepers[1:]

    def cancel(selector: str, *jobs: int) -> str:
        """What it says, when these jobs have ended by it and no others did."""
        told = alice.run("cancel", selector, "--reason", "no longer wanted").stdout.decode()
        assert alice.wait(*jobs) == 103
        running = {job for job, view in alice.jobs("-s").items() if view["status"] == "RUNNING"}
        expected.difference_update(jobs)
        assert running == expected
        return told

    expected = set(sleepers)
    told = cancel("@", last)
    assert told == f"Job {last} (e) is being cancelled; its processes were told to end.\n"
    shown = alice.show(last)
    assert shown["reason"] == "Cancelled by its owner: no longer wanted."
    assert (shown["cancelled_by"], shown["cancel_reason"]) == ("alice", "no longer wanted")
    assert "no longer wanted" in alice.run("queue", str(last)).stdout.decode()
    assert cancel("b", second, third).count("\n") == 2
    cancel(f"{fourth}-{fifth}", fourth, fifth)
    cancel("@~5", sleepers[0])


def test_all_means_ones_own_and_with_all_users_everybodys(
    node: Node, alice: Place, neighbour: Neighbour
) -> None:
    mine = [alice.submit("--cpus", "0", "sleep", "1000") for _ in range(3)]
    told = alice.run("cancel", "--all").stdout.decode()
    assert told.count("is being cancelled") == 3
    assert alice.wait(*mine) == 103
    neighbour.check_untouched()
    assert alice.run("cancel", "--all").stdout == b"There is nothing to cancel.\n"
    root = QueueOnNode(node, "root")
    assert root.run("cancel", "--all").stdout == b"There is nothing to cancel.\n"
    neighbour.check_untouched()
    denied = alice.run("cancel", "--all", "--all-users", check=False)
    assert (denied.returncode, denied.stdout) == (1, b"")
    assert b"Only root can cancel everybody's jobs" in denied.stderr
    root.run("cancel", "--all", "--all-users", "--reason", "maintenance")
    assert root.wait(neighbour.job) == 103
    assert root.show(neighbour.job)["reason"] == "Cancelled by root: maintenance."


def test_a_job_that_is_being_cancelled_says_so(alice: Place) -> None:
    job = alice.start("--grace", "5m", "-c", "trap '' TERM; touch up; while :; do sleep 0.1; done")
    alice.run("cancel", "--reason", "wrong data", str(job))
    shown = alice.show(job)
    assert (shown["status"], shown["reason_code"]) == ("RUNNING", "cancelling")
    assert shown["reason"].startswith("Being cancelled by its owner: wrong data; SIGKILL follows in ")
    assert "Being cancelled by its owner" in alice.run("queue").stdout.decode()
    alice.run("cancel", "--grace", "0", str(job))
    assert alice.wait(job) == 103
    assert alice.show(job)["reason"] == "Cancelled by its owner: wrong data."


def test_anothers_job_is_left_alone(alice: Place, neighbour: Neighbour) -> None:
    mine = alice.submit("--cpus", "0", "sleep", "1000")
    done = alice.run("cancel", str(neighbour.job), str(mine), "999999", check=False)
    assert done.returncode == 1
    assert f"Job {neighbour.job} (trap) belongs to somebody else; it was left alone." in done.stdout.decode()
    assert f"Job {mine} (sleep) is being cancelled" in done.stdout.decode()
    assert done.stderr == b"sysjobs: There is no job 999999.\n"
    done = alice.run("cancel", str(mine), "no-such-name", check=False)
    assert done.stderr == b"sysjobs: None of your jobs that haven't ended is called no-such-name.\n"
    # A range means the caller's own, whatever others have in it.
    assert alice.wait(mine) == 103
    done = alice.run("cancel", f"{min(mine, neighbour.job)}-{max(mine, neighbour.job)}")
    assert done.stdout.decode() == f"Job {mine} (sleep) had ended before: CANCELLED.\n"
    neighbour.check_untouched()


def test_what_has_ended_stays_as_it_was(alice: Place) -> None:
    job = alice.submit("true")
    alice.wait(job)
    before = alice.show(job)
    done = alice.run("cancel", str(job))
    assert done.stdout.decode() == f"Job {job} (true) had ended before: SUCCEEDED.\n"
    assert alice.show(job) == before
    running = alice.start("-c", CATCH)
    for _ in range(2):
        alice.run("cancel", str(running), check=True)
    assert alice.wait(running) == 103
    assert alice.file("signals") == "TERM\n"
    done = alice.run("cancel", str(running))
    assert done.stdout.decode() == f"Job {running} (trap) had ended before: CANCELLED.\n"


@pytest.mark.parametrize("arguments", [[], ["--all", "1"], ["9-3"], ["0-1000000"], ["x" * 300], ["@x"]])
def test_bad_selections(alice: Place, arguments: list[str]) -> None:
    done = alice.run("cancel", *arguments, check=False)
    assert done.returncode in (1, 2)
    assert done.stdout == b""
    assert len(done.stderr.splitlines()) == 2
