"""How jobs end, each way for real: status, exit code or signal, a code for programs, a sentence for people.

One crowd of jobs has every kind in it several times. It is submitted by many processes at once while a job
that takes all CPUs holds the queue up; before that is let go, some of their surroundings are destroyed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import ANY

import pytest

from tests.node import Node
from tests.queue_on_node import QueueOnNode

PROCESSES = 8
JOBS_EACH = 25

# Each job notes its start in a file of its own: twice started, it would have two lines.
BEGIN = "echo $SYSJOBS_JOB_ID >>~/begun/$SYSJOBS_JOB_ID; "
WAIT = "echo up; sleep infinity & wait"


@dataclass(frozen=True)
class Kind:
    """A way to end. `submit` are words for a shell; `before` and `meanwhile` what root does to the job `$id`
    between submit and start, and when it says that it's up."""

    name: str
    submit: str
    status: str
    says: str = ""
    code: str | None = None
    exit_code: object = None
    signal: int | None = None
    user: str = "alice"
    submit_after: str = "true"
    before: str = "true"
    meanwhile: str = ""
    begins: bool = True


def runs(name: str, text: str, status: str, says: str = "", code: str | None = None, **more: Any) -> Kind:
    """A job with this text for bash."""
    options = more.pop("options", "")
    return Kind(name, f"{options} -c {shlex.quote(BEGIN + text)}", status, says, code, **more)


def sets_up(name: str, text: str, status: str, says: str, code: str, **more: Any) -> Kind:
    """A job with this setup, whose own command must never run."""
    options = more.pop("options", "")
    words = f"{options} --setup {shlex.quote(BEGIN + text)} -- touch never-to-be-run"
    return Kind(name, words, status, says, code, **more)


def starts_not(name: str, submit: str, says: str, code: str, **more: Any) -> Kind:
    """A job whose program never ran: the exit code, if there is one, is a shell's or systemd's."""
    more = {"exit_code": ANY, "begins": False, **more}
    return Kind(name, submit, "FAILED_DRIVER", f"^Could not be started: .*{says}", code, **more)


def own_code(number: int) -> Kind:
    """A program's own exit code, whatever systemd or a shell mean by that number."""
    says = rf"^Ended with exit code {number}\.$"
    return runs(f"exit {number}", f"exit {number}", "FAILED", says, "exit-code", exit_code=number)


def own_signal(name: str, number: int, says: str, **more: Any) -> Kind:
    return runs(f"SIG{name}", f"kill -{name} $$", "FAILED", says, "signal", signal=number, **more)


STOP = 'systemctl stop --no-block "$unit"'
STOPPED = {"says": "^Stopped through systemd, .* not through sysjobs", "code": "stopped"}
UNKNOWN = "sender unknown"
LIMIT = {
    "says": r"^Ran into its time limit of 6s\.$",
    "code": "time-limit",
    "options": "--time 6s --grace 1s",
}
KILLED = {"says": "[Kk]illed by SIGKILL, not by sysjobs; sender unknown", "code": "killed"}

KINDS = [
    runs("exit 0", "exit 0", "SUCCEEDED", exit_code=0),
    own_code(3),
    *map(own_code, (1, 126, 127, 137, 143, *range(200, 218), 255)),
    Kind("a shell's own 127", "-- bash -c nowhere-to-be-found", "FAILED", "127", "exit-code", 127,
         begins=False),
    own_signal("SEGV", 11, r"^Ended by SIGSEGV\.$"),
    own_signal("ABRT", 6, r"^Ended by SIGABRT, core dumped\.$", submit_after="ulimit -c unlimited"),
    own_signal("PIPE", 13, "^Ended by SIGPIPE"),
    own_signal("USR1", 10, f"^Ended by SIGUSR1; {UNKNOWN}"),
    own_signal("RTMIN+1", 35, rf"^Ended by SIGRTMIN\+1; {UNKNOWN}"),
    # From outside. The kernel names no sender; PID 1's word of it is left out by these units' LogLevelMax=.
    runs("SIGTERM", WAIT, "FAILED", UNKNOWN, "signal", signal=15, meanwhile='kill "$pid"'),
    runs("SIGKILL", WAIT, "FAILED_DRIVER", signal=9, meanwhile='kill -KILL "$pid"', **KILLED),
    runs("systemctl kill", WAIT, "FAILED", UNKNOWN, "signal", signal=15, meanwhile='systemctl kill "$unit"'),
    runs("systemctl kill -s KILL", WAIT, "FAILED_DRIVER", signal=9,
         meanwhile='systemctl kill -s KILL "$unit"', **KILLED),
    runs("stop", WAIT, "CANCELLED", signal=15, meanwhile=STOP, **STOPPED),
    runs("stop, a trap exits 0", f"trap 'exit 0' TERM; {WAIT}", "CANCELLED", exit_code=0,
         meanwhile=STOP, **STOPPED),
    runs("stop, a trap exits 5", f"trap 'exit 5' TERM; {WAIT}", "CANCELLED", exit_code=5,
         meanwhile=STOP, **STOPPED),
    runs("stop, ignored", f"trap '' TERM; {WAIT}", "CANCELLED", signal=9, options="--grace 1s",
         meanwhile=STOP, **STOPPED),
    sets_up("stop in setup", WAIT, "CANCELLED", meanwhile=STOP, **STOPPED),
    sets_up("stop in setup, a trap exits 0", f"trap 'exit 0' TERM; {WAIT}", "CANCELLED",
            meanwhile=STOP, **STOPPED),
    sets_up("stop in setup, a trap exits 5", f"trap 'exit 5' TERM; {WAIT}", "CANCELLED",
            meanwhile=STOP, **STOPPED),
    sets_up("stop in setup, ignored", f"trap '' TERM; {WAIT}", "CANCELLED", options="--grace 1s",
            meanwhile=STOP, **STOPPED),
    sets_up("setup exits 1", "exit 1", "FAILED_SETUP", "^Setup ended with exit code 1", "setup"),
    sets_up("setup exits 203", "exit 203", "FAILED_SETUP", "^Setup ended with exit code 203", "setup"),
    sets_up("setup is killed", WAIT, "FAILED_DRIVER", meanwhile='systemctl kill -s KILL "$unit"', **KILLED),
    sets_up("setup, SIGSEGV", "kill -SEGV $$", "FAILED_SETUP", "^Setup was ended by SIGSEGV", "setup"),
    runs("setup and run", "exit 4", "FAILED", "exit code 4", "exit-code", exit_code=4,
         options="--setup 'exit 0'"),
    # The program never ran.
    starts_not("no directory", "-C ~/gone -- true", "directory", "no-directory", before="rm -rf ~alice/gone"),
    starts_not("no directory for setup", "-C ~/gone --setup true -- true", "directory", "no-directory",
               before="rm -rf ~alice/gone"),
    starts_not("no command", "-- nowhere-to-be-found", "command was not found", "no-command", exit_code=127),
    starts_not("no command at a path", "-- /nowhere/to/be/found", "command was not found", "no-command",
               exit_code=127),
    starts_not("no command, odd variables", "--env A.B=1 -- /nowhere/to/be/found", "command was not found",
               "no-command", exit_code=127),
    starts_not("not executable", "-- /etc/passwd", "no executable file", "not-executable", exit_code=126),
    starts_not("not executable, odd variables", "--env A.B=1 -- /etc/passwd", "no executable file",
               "not-executable", exit_code=126),
    starts_not("no interpreter", "-- ~/no-interpreter", "interpreter", "no-interpreter", exit_code=127),
    starts_not("no user", "-- true", "user doesn't exist", "no-user", user="carol",
               before="! id carol >/dev/null 2>&1 || userdel -rf carol 2>/dev/null"),
    starts_not("no log", "-- true", "log can't be opened", "no-log",
               before='install -d -o alice /var/log/sysjobs/alice/"$id".log'),
    starts_not("logs not writable", "-- true", "log can't be opened", "no-log", user="dave",
               before="install -d -o dave -m 500 /var/log/sysjobs/dave"),
    starts_not("logs not the user's", "-- true", "/var/log/sysjobs/erin: is not a directory that belongs",
               "no-files", user="erin", before="install -d -o bob /var/log/sysjobs/erin"),
    starts_not("its name is taken", "-- true", "exists already and is not this job's", "name-taken",
               before='systemd-run --quiet --unit "sysjobs-$id" sleep infinity', exit_code=None),
    # Ended by sysjobs.
    runs("time limit", WAIT, "FAILED", signal=15, **LIMIT),
    runs("time limit, ignored", f"trap '' TERM; {WAIT}", "FAILED", signal=9, **LIMIT),
    runs("time limit, a trap exits 0", f"trap 'exit 0' TERM; {WAIT}", "FAILED", exit_code=0, **LIMIT),
    sets_up("time limit in setup", WAIT, "FAILED_SETUP", **LIMIT),
    runs("cancel", WAIT, "CANCELLED", "^Cancelled by root: enough", "cancelled", signal=15,
         meanwhile='sysjobs cancel --reason enough "$id" >/dev/null'),
    runs("cancel before the start", "true", "CANCELLED", "^Cancelled before it started by root", "cancelled",
         before='sysjobs cancel "$id" >/dev/null', begins=False),
    # What is left behind ends with the job.
    runs("exit 0, a child stays", "setsid nohup sleep 300 & exit 0", "SUCCEEDED", exit_code=0),
    runs("exit 0, a child ignores SIGTERM", "trap '' TERM; sleep 300 & exit 0", "SUCCEEDED", exit_code=0,
         options="--grace 1s"),
    runs("exit 3, a child stays", "sleep 60 & exit 3", "FAILED", "exit code 3", "exit-code", exit_code=3),
]  # fmt: skip
COMMON = [number for number, kind in enumerate(KINDS) if kind.user == "alice"]


@dataclass(frozen=True)
class Crowd:
    submitted: list[tuple[int, int]]
    """Which kind (its number), which id."""
    jobs: dict[int, dict[str, Any]]
    begun: Counter[int]


@pytest.fixture(scope="module")
def crowd(node: Node) -> Iterator[Crowd]:
    """All these jobs, ended."""
    root = QueueOnNode(node, "root")
    node.sh(
        "for user in carol dave erin; do useradd --create-home $user; done\n"
        "install -d -m 700 -o alice -g alice ~alice/begun ~alice/gone /var/log/sysjobs/alice\n"
        "printf '#!/nowhere/to/be/found\\n' | install -o alice -m 755 /dev/stdin ~alice/no-interpreter\n"
    )
    first = root.submit(
        "--cpus", node.sh("nproc").strip(), "-c", "until [ -e /run/let-go ]; do sleep 0.05; done"
    )
    try:
        submitted = submit_all(node)
        node.sh(script(submitted, [kind.before for kind in KINDS]))
    finally:
        node.sh("touch /run/let-go")
    ids = [first, *(job for _, job in submitted)]
    try:
        acts = [f"until_up\n{kind.meanwhile}" if kind.meanwhile else "true" for kind in KINDS]
        node.sh(UNTIL_UP + script(submitted, acts))
        root.wait(*ids, timeout=120)
    finally:
        root.run("cancel", "--grace", "0", f"{min(ids)}-{max(ids)}", check=False)
    listed = json.loads(root.run("queue", "--json", "--limit", "0", f"{min(ids)}-{max(ids)}").stdout)
    begun = node.sh("cat ~alice/begun/*").split()
    yield Crowd(submitted, {job["id"]: job for job in listed}, Counter(map(int, begun)))
    node.sh(
        "rm -rf ~alice/{core*,begun,gone,no-interpreter} /run/let-go /var/log/sysjobs/{carol,dave,erin}\n"
        "rmdir /var/log/sysjobs/alice/*.log/\n"
        "for user in dave erin; do userdel -rf $user 2>/dev/null; done"
    )


UNTIL_UP = r"""
until_up() {
    until grep -qs up /var/log/sysjobs/alice/"$id"{,.setup}.log; do sleep 0.05; done
    unit=sysjobs-$id.service
    pid=$(systemctl show -P MainPID "$unit")
}
"""


def submit_all(node: Node) -> list[tuple[int, int]]:
    """Kind and id of the jobs that so many processes submit at once, and some users one each."""
    rounds = [[COMMON[index % len(COMMON)] for index in range(JOBS_EACH * process, JOBS_EACH * (process + 1))]
              for process in range(PROCESSES)]  # fmt: skip
    batches = [("alice", numbers) for numbers in rounds]
    batches += [(kind.user, [number]) for number, kind in enumerate(KINDS) if kind.user != "alice"]
    clients = [
        node.spawn(["bash", "-euc", "".join(map(submit_line, numbers))], user=user)
        for user, numbers in batches
    ]
    ended = [(*client.communicate(timeout=120), client.returncode) for client in clients]
    assert [(stderr, code) for _, stderr, code in ended if code or stderr] == []
    lines = b"".join(stdout for stdout, _, _ in ended).splitlines()
    return [(int(number), int(job)) for number, job in map(bytes.split, lines)]


def submit_line(number: int) -> str:
    kind = KINDS[number]
    return f"( {kind.submit_after}; echo {number} $(sysjobs submit --parsable --cpus 0.005 {kind.submit}) )\n"


def script(submitted: list[tuple[int, int]], acts: list[str]) -> str:
    """Does to each job what is to be done to its kind."""
    functions = "".join(f"act_{number}() {{\n{act}\n}}\n" for number, act in enumerate(acts))
    return functions + "".join(f"id={job} act_{number}\n" for number, job in submitted)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_outcome(crowd: Crowd, kind: Kind) -> None:
    ids = [job for number, job in crowd.submitted if KINDS[number] is kind]
    assert ids
    for job_id in ids:
        job = crowd.jobs[job_id]
        expected = (kind.status, kind.code, kind.exit_code, kind.signal)
        assert (job["status"], job["reason_code"], job["exit_code"], job["signal"]) == expected, job
        assert re.search(kind.says, job["reason"] or ""), job


def test_none_is_lost_and_none_doubled(crowd: Crowd, node: Node) -> None:
    ids = [job for _, job in crowd.submitted]
    assert len(ids) >= PROCESSES * JOBS_EACH
    assert sorted(ids) == sorted(set(ids)) == sorted(crowd.jobs)[1:]
    assert crowd.begun == Counter(job for number, job in crowd.submitted if KINDS[number].begins)


def test_whoever_took_a_name_keeps_it(crowd: Crowd, node: Node) -> None:
    taken = [f"sysjobs-{job}" for number, job in crowd.submitted if "taken" in KINDS[number].name]
    node.sh("systemctl restart sysjobsd && sysjobs queue >/dev/null")
    node.run(["systemctl", "is-active", *taken])
    node.run(["systemctl", "stop", *taken])


def test_reasons_are_sentences(crowd: Crowd) -> None:
    for job in crowd.jobs.values():
        if job["status"] != "SUCCEEDED":
            assert re.fullmatch(r"[A-Z][ -~]+\.", job["reason"]), job


def test_nothing_of_them_is_left(crowd: Crowd, node: Node) -> None:
    assert node.run(["test", "-e", "/home/alice/never-to-be-run"], check=False).returncode == 1
    names = " ".join(f"-o -name sysjobs-{job}.service" for job in crowd.jobs)
    node.wait_for(f'[ -z "$(find /sys/fs/cgroup/sysjobs.slice -false {names})" ]')


def test_a_child_that_stays_delays_nothing(crowd: Crowd) -> None:
    for number, job_id in crowd.submitted:
        if "child" in KINDS[number].name:
            started, ended = (
                datetime.fromisoformat(crowd.jobs[job_id][key]) for key in ("started_at", "ended_at")
            )
            assert ended - started < timedelta(seconds=20), crowd.jobs[job_id]


# What earlyoom prints; tests/test_vm.py has the real one.
SAY = """echo 'sending SIGTERM to process {pid} uid 1000 "sleep": badness 950, VmRSS 300 MiB'"""
SAYERS = [
    ("root", "systemd-run --quiet --collect --unit=early -p SyslogIdentifier=earlyoom", "oom-earlyoom"),
    ("alice", "systemd-cat --identifier=earlyoom", "signal"),
]


@pytest.mark.parametrize(("user", "command", "code"), SAYERS)
def test_whom_to_believe(node: Node, user: str, command: str, code: str) -> None:
    queue = QueueOnNode(node)
    job = queue.submit("--", "sleep", "1000")
    pid = main_pid(node, job)
    # It stays, as earlyoom does: of who was gone when it took in the line, journald doesn't know the slice.
    act = f"{SAY.format(pid=pid)}; kill {pid}; exec sleep 1000"
    with node.spawn([*shlex.split(command), "sh", "-c", act], user=user) as says:
        try:
            queue.wait(job)
        finally:
            says.kill()
    node.run(["systemctl", "stop", "early"], check=False)
    assert (queue.show(job)["reason_code"], queue.show(job)["signal"]) == (code, 15)


def test_a_journal_that_does_not_answer_costs_the_detail_alone(node: Node) -> None:
    queue = QueueOnNode(node)
    job = queue.submit("--", "sleep", "1000")
    pid = main_pid(node, job)
    journald = node.run(["systemctl", "show", "-P", "MainPID", "systemd-journald"]).stdout.decode().strip()
    node.run(["kill", "-STOP", journald])
    try:
        node.run(["kill", "-KILL", pid])
        queue.wait(job)
        ended = queue.show(job)
        assert queue.wait(queue.submit("--", "true")) == 0
    finally:
        node.run(["kill", "-CONT", journald])
    assert (ended["status"], ended["reason_code"]) == ("FAILED_DRIVER", "killed")


def main_pid(node: Node, job: int) -> str:
    node.wait_for(f'[ "$(systemctl show -P SubState sysjobs-{job})" = running ]')
    return node.run(["systemctl", "show", "-P", "MainPID", f"sysjobs-{job}"]).stdout.decode().strip()


@pytest.mark.parametrize("reload", ["daemon-reload", "daemon-reexec"])
def test_systemd_starts_anew(node: Node, reload: str) -> None:
    """Systemd 252 forgets how a setup ended, if it is reloaded while that runs."""
    queue = QueueOnNode(node)
    hold = f"echo up; until [ -e /tmp/{reload} ]; do sleep 0.05; done; "
    ends = {"exit 0": "SUCCEEDED", "exit 3": "FAILED", "kill -SEGV $$": "FAILED"}
    options = ["--cpus", "0.01"]
    jobs = [queue.submit(*options, "-c", hold + end) for end in ends]
    jobs.append(queue.submit(*options, "--setup", f"{hold} exit 7", "--", "true"))
    for job in jobs:
        node.wait_for(f"grep -qs up /var/log/sysjobs/alice/{job}{{,.setup}}.log")
    node.sh(f"systemctl {reload} && touch /tmp/{reload}")
    queue.wait(*jobs)
    shown = [queue.show(job) for job in jobs]
    assert [job["status"] for job in shown] == [*ends.values(), "FAILED_SETUP"]
    assert [job["exit_code"] for job in shown] == [0, 3, None, None]
    assert [job["signal"] for job in shown] == [None, None, 11, None]
    assert shown[3]["reason"] == "Setup ended with exit code 7."
