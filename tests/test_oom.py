"""What the journal has of a process that was killed for want of memory, and what is made of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.engine.evidence import SLACK, Entry, Victim, entries
from sysjobs.engine.oom import Killer, OomKill, find_kill, sentence

SLICES = "/sysjobs.slice/sysjobs-u1000.slice/sysjobs-u1000-0.slice"
CGROUP = f"{SLICES}/sysjobs-42.service"
OTHER = f"{SLICES}/sysjobs-43.service"
PID = 438


def said(source: str, *lines: str, at: int = 50) -> list[Entry]:
    return [Entry(at, source, line) for line in lines]


def kill(
    cgroup: str = CGROUP, memcg: str | None = CGROUP, task: str = "python3", at: int = 50
) -> list[Entry]:
    """As Linux 6.1 and 6.12 log it."""
    if memcg is None:
        constraint, whose = "CONSTRAINT_NONE", "global_oom"
    else:
        constraint, whose = "CONSTRAINT_MEMCG", f"oom_memcg={memcg}"
    head = f"oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0,{whose}"
    where = "Out of memory" if memcg is None else "Memory cgroup out of memory"
    return said(
        "kernel",
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"{head},task_memcg={cgroup},task={task},pid={PID},uid=1000",
        f"{where}: Killed process {PID} ({task}) total-vm:321624kB, anon-rss:102076kB, file-rss:5480kB, "
        "shmem-rss:4kB, UID:1000 pgtables:264kB oom_score_adj:0",
        at=at,
    )


def oomd(cgroup: str, why: str) -> list[Entry]:
    unit = cgroup.rpartition("/")[2]
    return [
        *said("systemd", f"{unit}: systemd-oomd killed 3 process(es) in this unit."),
        *said("systemd-oomd", f"Killed {cgroup} due to {why}"),
    ]


def earlyoom(pid: int, more: str = "badness 953") -> list[Entry]:
    return said(
        "earlyoom",
        "low memory! at or below SIGTERM limits: mem 60.00%, swap 100.00%",
        f'sending SIGTERM to process {pid} uid 1000 "py (3": {more}, VmRSS 420 MiB',
        f"process {pid} exited after 0.1 seconds",
    )


SIZE = (102076 + 5480 + 4) * 1024
PRESSURE = "memory pressure for /sysjobs.slice being 63.12% > 50.00% for > 20s with reclaim activity"
BY_JOB, BY_SLICE, BY_MACHINE = (
    OomKill(Killer.KERNEL, "python3", SIZE, memcg) for memcg in (CGROUP, SLICES, None)
)
SWAP = (
    "memory used (288890880) / total (1019244544) and swap used (17674240) / total (268431360) being more "
    "than 90.00%"
)
USED_UP = "memory used 275.5M / total 972.0M and swap used 16.9M / total 256.0M being more than 90.00%"
BY_OOMD = OomKill(Killer.OOMD, why=f"due to {PRESSURE}")
BY_EARLYOOM = OomKill(Killer.EARLYOOM, "py (3", 420 << 20)
KILLS: list[tuple[str, list[Entry], OomKill | None]] = [
    ("the job's limit", kill(), BY_JOB),
    ("a slice's limit", kill(memcg=SLICES), BY_SLICE),
    ("the machine", kill(memcg=None), BY_MACHINE),
    ("a cgroup of the job's own", kill(f"{CGROUP}/sub"), BY_JOB),
    ("another job", kill(OTHER, OTHER), None),
    ("a job whose number begins the same", kill(f"{CGROUP}0", f"{CGROUP}0"), None),
    ("after another's", kill(OTHER, OTHER) + kill(), BY_JOB),
    ("an odd name", kill(task="x,pid=1,uid=0"), OomKill(Killer.KERNEL, "x,pid=1,uid=0", SIZE, CGROUP)),
    ("the first lines only", kill()[:2], OomKill(Killer.KERNEL, "python3", None, CGROUP)),
    ("systemd-oomd", oomd(CGROUP, PRESSURE), BY_OOMD),
    ("systemd-oomd, for swap", oomd(CGROUP, SWAP), OomKill(Killer.OOMD, why=f"due to {USED_UP}")),
    ("systemd-oomd, before it says so", oomd(CGROUP, SWAP)[:1], OomKill(Killer.OOMD)),
    ("systemd-oomd, only its word", oomd(CGROUP, SWAP)[1:], None),
    ("systemd-oomd, another job", oomd(OTHER, PRESSURE), None),
    ("earlyoom 1.7", earlyoom(PID), BY_EARLYOOM),
    ("earlyoom 1.8", earlyoom(PID, "oom_score 953"), BY_EARLYOOM),
    ("earlyoom, another process", earlyoom(PID + 1), None),
    ("before it began", kill(at=9), None),
    ("long after it ended", kill(at=91 + SLACK), None),
    ("a moment after it ended", kill(at=90 + SLACK), BY_JOB),
    ("nothing", [], None),
    ("something else", said("kernel", "usb 1-1: new device"), None),
    ("somebody who tells tales", [Entry(50, "x", entry.text) for entry in kill()], None),
]


def victim(pid: int, *, all_of_it: bool) -> Victim:
    return Victim(CGROUP, pid, since=10, until=90, all_of_it=all_of_it)


@pytest.mark.parametrize("all_of_it", [True, False])
@pytest.mark.parametrize(("log", "found"), [row[1:] for row in KILLS], ids=[row[0] for row in KILLS])
def test_find_kill(log: list[Entry], found: OomKill | None, all_of_it: bool) -> None:
    """In a unit that systemd says ran out of memory, and of a main process that was ended by a signal."""
    assert find_kill(log, victim(PID, all_of_it=all_of_it)) == found


def test_of_a_child_s_death_the_main_process_does_not_die() -> None:
    assert find_kill(kill(), victim(PID + 1, all_of_it=True)) == BY_JOB
    assert find_kill(kill(), victim(PID + 1, all_of_it=False)) is None


@given(st.lists(st.builds(Entry, st.just(50), st.sampled_from(Killer), st.text())))
def test_whatever_a_log_has(log: list[Entry]) -> None:
    assert find_kill(log, victim(PID, all_of_it=True)) is None


def line(**fields: object) -> bytes:
    given = {"__REALTIME_TIMESTAMP": "7", "MESSAGE": "x", "SYSLOG_IDENTIFIER": "earlyoom"}
    return json.dumps(given | fields).encode() + b"\n"


LINES = [
    (line(), [Entry(7, "earlyoom", "x")]),
    (line(_TRANSPORT="kernel", SYSLOG_IDENTIFIER="other"), [Entry(7, "kernel", "x")]),
    (line(SYSLOG_IDENTIFIER="kernel"), [Entry(7, "", "x")]),
    (line(MESSAGE=[120, 255]), [Entry(7, "earlyoom", "x\ufffd")]),
    (line(MESSAGE=None), []),
    (line(MESSAGE=[-1]), []),
    (line(__REALTIME_TIMESTAMP=None), []),
    (line(SYSLOG_IDENTIFIER=["a", "b"]), [Entry(7, "", "x")]),
    (b"x\n[]\n7\n{}\n\xff\n" + line() + line()[:-9], [Entry(7, "earlyoom", "x")]),
    (line(_SOURCE_REALTIME_TIMESTAMP="5", INVOCATION_ID="ab"), [Entry(5, "earlyoom", "x", "ab")]),
    (line(_SOURCE_REALTIME_TIMESTAMP="x"), []),
    (line(INVOCATION_ID=["a", "b"]), [Entry(7, "earlyoom", "x")]),
    (b"", []),
]


@pytest.mark.parametrize(("output", "found"), LINES)
def test_entries(output: bytes, found: list[Entry]) -> None:
    assert entries(output) == found


@given(st.binary() | st.text().map(lambda text: line(MESSAGE=text)))
def test_whatever_journalctl_prints(output: bytes) -> None:
    entries(output)


LIMIT, PEAK = 100 << 20, 70 << 20
KILLED = "the kernel killed 'python3', which had 105.0M in memory."
SLICE = "sysjobs-u1000-0.slice, which it ran in, reached its memory limit:"
USED = "At its peak the job used 70M."
ASK = "Ask for what it needs with --memory."
EARLYOOM = "The machine was short of memory: earlyoom killed 'py (3', which had 420M in memory."
SENTENCES = [
    (BY_JOB, LIMIT, PEAK, False, "oom",
     f"It ran out of memory at its limit of 100M: {KILLED} Try --memory 200M."),
    (BY_JOB, LIMIT, None, True, "oom",
     f"Its setup ran out of memory at its limit of 100M: {KILLED} Try --memory 200M."),
    (BY_SLICE, LIMIT, None, False, "oom-slice", f"{SLICE} {KILLED}"),
    (BY_SLICE, LIMIT, PEAK, False, "oom-slice", f"{SLICE} {KILLED} {USED}"),
    (BY_MACHINE, LIMIT, None, False, "oom-machine", f"The machine ran out of memory: {KILLED}"),
    (BY_MACHINE, 0, PEAK, False, "oom-machine", f"The machine ran out of memory: {KILLED} {USED} {ASK}"),
    (OomKill(Killer.KERNEL, "py", None, CGROUP), 0, None, False, "oom",
     "It ran out of memory: the kernel killed 'py'."),
    (BY_OOMD, LIMIT, PEAK, False, "oom-oomd", f"systemd-oomd killed it due to {PRESSURE}. {USED}"),
    (OomKill(Killer.OOMD), 0, None, False, "oom-oomd",
     f"systemd-oomd killed it as the machine was short of memory. {ASK}"),
    (BY_EARLYOOM, 0, None, True, "oom-earlyoom", f"{EARLYOOM} {ASK}"),
    (None, LIMIT, PEAK, False, "oom",
     "It ran out of memory and was killed, by the kernel or by systemd-oomd. It asked for 100M."),
    (None, 0, None, True, "oom",
     "Its setup ran out of memory and was killed, by the kernel or by systemd-oomd."),
]  # fmt: skip


@pytest.mark.parametrize(("found", "limit", "peak", "setup", "code", "text"), SENTENCES)
def test_sentence(
    found: OomKill | None, limit: int, peak: int | None, setup: bool, code: str, text: str
) -> None:
    assert sentence(found, CGROUP, limit, peak, setup=setup) == (code, text)
