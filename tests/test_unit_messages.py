"""`unit-messages = "all"`: the journal has all that systemd says of jobs, and so who was ended through it.

What ends them otherwise, sysjobs by way of systemd included, is told as ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest.mock import ANY

import pytest

from tests.admin_on_node import DAEMON, SETTINGS, Place, place, put_settings, unit
from tests.node import Node

PROCESSES = f"/sys/fs/cgroup/system.slice/{DAEMON}/cgroup.procs"
BOTH = "sysjobsd.socket sysjobsd.service"
UP = "touch up.$SYSJOBS_JOB_ID; "
STAYS = f"{UP}exec sleep 1000"


@dataclass(frozen=True)
class Kind:
    """A way to end: what root does to the job `$id`, its `$unit` and its process `$pid`; the status, code and
    signal that it comes to; what its reason has."""

    spec: Mapping[str, object]
    act: str
    ended: tuple[str, object, object]
    says: str


def runs(text: str, act: str, ended: tuple[str, object, object], says: str = "", **more: object) -> Kind:
    return Kind({"shell": text, "cpus": 0, **more}, act, ended, says)


def sets_up(act: str, ended: tuple[str, object, object], says: str) -> Kind:
    return runs("true", act, ended, says, setup=STAYS)


THROUGH = "sent through systemd, as `systemctl kill` does, not through sysjobs."
UNKNOWN = "sender unknown"
BY_ROOT = r"which root had sent \S+ before\."
TRAPS = UP + "trap 'exit {}' TERM; until false; do sleep 0.05; done"
# It lives on, and ends itself later by what it was sent before. What it began in answer would be killed, too.
LATER = (
    f"{UP}trap '>saved.$SYSJOBS_JOB_ID' TERM; trap 'trap - TERM; kill -TERM $$' USR1; "
    "until false; do sleep 0.05; done"
)
SAVED = "until [ -e $place/saved.$id ]; do sleep 0.05; done"


def killed(number: int | None) -> tuple[str, object, object]:
    return "FAILED_DRIVER", "killed", number


def failed(number: int) -> tuple[str, object, object]:
    return "FAILED", "signal", number


KINDS = {
    "systemctl kill": runs(STAYS, "systemctl kill $unit", killed(15), f"Ended by SIGTERM, {THROUGH}"),
    "INT": runs(STAYS, "systemctl kill -s INT --kill-whom=main $unit", killed(2), f"by SIGINT, {THROUGH}"),
    "KILL": runs(STAYS, "systemctl kill -s KILL --kill-whom=all $unit", killed(9), f"by SIGKILL, {THROUGH}"),
    "SEGV": runs(STAYS, "systemctl kill -s SEGV $unit", killed(11), f"Ended by SIGSEGV, {THROUGH}"),
    "RTMIN": runs(STAYS, "systemctl kill -s RTMIN+3 $unit", killed(37), rf"by SIGRTMIN\+3, {THROUGH}"),
    "in setup": sets_up("systemctl kill $unit", killed(None), f"Setup was ended by SIGTERM, {THROUGH}"),
    "and later itself": runs(LATER, f"systemctl kill $unit; {SAVED}; kill -USR1 $pid", killed(15), THROUGH),
    "it exits 0": runs(TRAPS.format(0), "systemctl kill $unit", ("SUCCEEDED", None, None)),
    "it exits 3": runs(TRAPS.format(3), "systemctl kill $unit", ("FAILED", "exit-code", None)),
    # Not by systemctl kill.
    "kill": runs(STAYS, "kill -TERM $pid", failed(15), f"Ended by SIGTERM; {UNKNOWN}"),
    "kill -KILL": runs(STAYS, "kill -KILL $pid", killed(9), UNKNOWN),
    "itself": runs(f"{UP}kill -TERM $$; sleep 9", "true", failed(15), f"Ended by SIGTERM; {UNKNOWN}"),
    "a fault": runs(f"{UP}kill -SEGV $$; sleep 9", "true", failed(11), r"Ended by SIGSEGV\."),
    "stop": runs(STAYS, "systemctl stop --no-block $unit", ("CANCELLED", "stopped", 15)),
    # By sysjobs, which has systemd send its signals too.
    "cancel": runs(STAYS, "sysjobs cancel $id", ("CANCELLED", "cancelled", 15)),
    "cancel at once": runs(STAYS, "sysjobs cancel --grace 0 $id", ("CANCELLED", "cancelled", ANY)),
    "time limit": runs(STAYS, "true", ("FAILED", "time-limit", 15), time="3s"),
    "notice": runs(STAYS, "true", failed(12), "--signal had sent", time="1m", signal="USR2@57"),
    "signal": runs(STAYS, "sysjobs signal TERM $id", failed(15), f"Ended by SIGTERM, {BY_ROOT}"),
    "signal in setup": sets_up(
        "sysjobs signal --everybody INT $id", ("FAILED_SETUP", "signal", None), BY_ROOT
    ),
    "signal, and later itself": runs(
        LATER, f"sysjobs signal TERM $id; {SAVED}; sysjobs signal USR1 $id", failed(15), UNKNOWN
    ),
}


@contextmanager
def messages(node: Node, which: str) -> Iterator[None]:
    put_settings(node, f'[jobs]\nunit-messages = "{which}"\n')
    try:
        yield
    finally:
        node.sh(f"rm {SETTINGS}; systemctl reload {DAEMON}")


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


def check(alice: Place, jobs: list[int], kinds: Iterable[Kind]) -> None:
    listed = alice.jobs(*map(str, jobs))
    for job, kind in zip(jobs, kinds, strict=True):
        ended = listed[job]
        assert (ended["status"], ended["reason_code"], ended["signal"]) == kind.ended, ended
        assert re.search(kind.says, ended["reason"] or ""), ended


def test_who_is_ended_through_systemd(node: Node, alice: Place) -> None:
    with messages(node, "all"):
        jobs = alice.submit_many([kind.spec for kind in KINDS.values()])
        alice.until(f"[ $(ls | grep -c ^up) = {len(jobs)} ]")
        assert unit(node, jobs[0], "LogLevelMax") == "6"
        acts = "".join(
            f"id={job}; unit=sysjobs-$id.service; pid=$(systemctl show -P MainPID $unit)\n{kind.act}\n"
            for job, kind in zip(jobs, KINDS.values(), strict=True)
        )
        node.sh(f"place={alice.path}\n{acts}")
        alice.wait(*jobs)
    check(alice, jobs, KINDS.values())


def test_units_go_by_what_was_set_when_they_were_made(node: Node, alice: Place) -> None:
    known = KINDS["INT"]
    unknown = replace(known, ended=failed(2), says=UNKNOWN)
    options = ["--cpus", "0", "-c", STAYS]
    before = alice.start(*options)
    with messages(node, "all"):
        during = alice.start(*options, count=2)
    after = alice.start(*options, count=3)
    node.sh(f"systemctl kill -s INT sysjobs-{before} sysjobs-{during} sysjobs-{after}")
    alice.wait(before, during, after)
    check(alice, [before, during, after], [unknown, known, unknown])


def test_looks_into_the_journal_are_killed(node: Node, alice: Place) -> None:
    """By somebody, and by a stop of the daemon: looked again is by this one and by the next."""
    options = ["--cpus", "0", "-c", STAYS]
    with messages(node, "all"):
        jobs = [alice.start(*options), alice.start(*options, count=2)]
    journald = node.sh("systemctl show -P MainPID systemd-journald").strip()
    node.run(["kill", "-STOP", journald])
    try:
        node.sh(f"systemctl kill -s INT sysjobs-{jobs[0]}")
        first = look(node)
        node.run(["kill", first])
        look(node, after=first)
        # One that is ended while it is away is looked for, too.
        node.sh(f"systemctl stop {BOTH}; systemctl kill -s INT sysjobs-{jobs[1]}")
    finally:
        node.run(["kill", "-CONT", journald])
    node.sh(f"systemctl start {BOTH}")
    alice.wait(*jobs)
    check(alice, jobs, [KINDS["INT"]] * 2)


def look(node: Node, after: str = "0") -> str:
    """The daemon's process that looks into the journal, once there is another one than that."""
    is_look = f"grep -qsx timeout /proc/$p/comm && [ $p != {after} ]"
    looks = f"for p in $(cat {PROCESSES}); do if {is_look}; then echo $p; fi; done"
    node.wait_for(f'[ -n "$({looks})" ]')
    return node.sh(looks).strip()
