"""What the kernel says of a process that it killed for want of memory, and what is made of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.engine.oom import OomKill, find_kill, sentence

SLICES = "/sysjobs.slice/sysjobs-u1000.slice/sysjobs-u1000-0.slice"
CGROUP = f"{SLICES}/sysjobs-42.service"
OTHER = f"{SLICES}/sysjobs-43.service"


def kill(cgroup: str = CGROUP, memcg: str | None = CGROUP, task: str = "python3") -> str:
    """As Linux 6.1 and 6.12 log it."""
    if memcg is None:
        constraint, whose = "CONSTRAINT_NONE", "global_oom"
    else:
        constraint, whose = "CONSTRAINT_MEMCG", f"oom_memcg={memcg}"
    head = f"oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0,{whose}"
    where = "Out of memory" if memcg is None else "Memory cgroup out of memory"
    return (
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
        f"{head},task_memcg={cgroup},task={task},pid=438,uid=1000\n"
        f"{where}: Killed process 438 ({task}) total-vm:321624kB, anon-rss:102076kB, file-rss:5480kB, "
        "shmem-rss:4kB, UID:1000 pgtables:264kB oom_score_adj:0\n"
    )


SIZE = (102076 + 5480 + 4) * 1024
KILLS = [
    ("the job's limit", kill(), OomKill("python3", SIZE, CGROUP)),
    ("a slice's limit", kill(memcg=SLICES), OomKill("python3", SIZE, SLICES)),
    ("the machine", kill(memcg=None), OomKill("python3", SIZE, None)),
    ("a cgroup of the job's own", kill(f"{CGROUP}/sub"), OomKill("python3", SIZE, CGROUP)),
    ("another job", kill(OTHER, OTHER), None),
    ("a job whose number begins the same", kill(f"{CGROUP}0", f"{CGROUP}0"), None),
    ("after another's", kill(OTHER, OTHER) + kill(task="a"), OomKill("a", SIZE, CGROUP)),
    ("an odd name", kill(task="x,pid=1,uid=0"), OomKill("x,pid=1,uid=0", SIZE, CGROUP)),
    ("the first line only", "\n".join(kill().splitlines()[:2]), OomKill("python3", None, CGROUP)),
    ("nothing", "", None),
    ("something else", "usb 1-1: new device\n", None),
]


@pytest.mark.parametrize(("log", "found"), [row[1:] for row in KILLS], ids=[row[0] for row in KILLS])
def test_find_kill(log: str, found: OomKill | None) -> None:
    assert find_kill(log, CGROUP) == found


@given(st.text())
def test_whatever_a_log_has(log: str) -> None:
    assert find_kill(log, CGROUP) is None


LIMIT = 100 << 20
OF_JOB, OF_SLICE, OF_MACHINE = (
    OomKill("py", SIZE, CGROUP),
    OomKill("py", SIZE, SLICES),
    OomKill("py", SIZE, None),
)
KILLED = "the kernel killed 'py', which had 105.0M in memory."
SENTENCES = [
    (OF_JOB, LIMIT, False, "oom",
     f"It ran out of memory at its limit of 100M: {KILLED} Try --memory 200M."),
    (OF_JOB, LIMIT, True, "oom",
     f"Its setup ran out of memory at its limit of 100M: {KILLED} Try --memory 200M."),
    (OF_SLICE, LIMIT, False, "oom-slice",
     f"sysjobs-u1000-0.slice, which it ran in, reached its memory limit: {KILLED}"),
    (OF_MACHINE, LIMIT, False, "oom-machine", f"The machine ran out of memory: {KILLED}"),
    (OF_MACHINE, 0, False, "oom-machine",
     f"The machine ran out of memory: {KILLED} Ask for what it needs with --memory."),
    (OomKill("py", None, CGROUP), 0, False, "oom", "It ran out of memory: the kernel killed 'py'."),
    (None, LIMIT, False, "oom",
     "It ran out of memory and was killed, by the kernel or by systemd-oomd. It asked for 100M."),
    (None, 0, True, "oom", "Its setup ran out of memory and was killed, by the kernel or by systemd-oomd."),
]  # fmt: skip


@pytest.mark.parametrize(("found", "limit", "setup", "code", "text"), SENTENCES)
def test_sentence(found: OomKill | None, limit: int, setup: bool, code: str, text: str) -> None:
    assert sentence(found, CGROUP, limit, setup=setup) == (code, text)
