"""Pure: what the journal has of a job that was killed for want of memory -> who killed it, and why.

Three do so. The kernel kills a process, where a cgroup or the machine has nothing left. Before it comes to
that, systemd-oomd kills all of a cgroup, and earlyoom a process: SIGTERM, and later SIGKILL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sysjobs.engine import evidence
from sysjobs.engine.evidence import MANAGER, Entry, Victim, timely
from sysjobs.resources import format_memory

_KERNEL = re.compile(r"oom-kill:constraint=(\w+),.*?task_memcg=(.*?),task=(.*),pid=(\d{1,12}),uid=\d+")
_MEMCG = re.compile(r",oom_memcg=(.*?),task_memcg=")
_SIZES = r"Killed process PID \(.*\) .*?anon-rss:(\d{1,12})kB, file-rss:(\d{1,12})kB, shmem-rss:(\d{1,12})kB"
_OOMD = re.compile(r"(sysjobs-\d+\.service): systemd-oomd killed \d+ process")
_OOMD_WHY = re.compile(r"Killed (/.*?) (due to .*)")
_EARLYOOM = re.compile(r'sending SIG\w+ to process (\d{1,12}) uid \d+ "(.*?)": .*?\bVmRSS (\d{1,12}) MiB')


class Killer(StrEnum):
    """Who killed, as the journal names it."""

    KERNEL = evidence.KERNEL
    OOMD = evidence.OOMD
    EARLYOOM = evidence.EARLYOOM


@dataclass(frozen=True, slots=True)
class OomKill:
    """A process of a job that was killed, and what it had in memory (bytes), as far as that was said.

    The kernel's: `memcg` is the cgroup whose limit was reached, None where the machine itself had no memory
    left. systemd-oomd kills them all, and mostly has said `why` by then.
    """

    by: Killer
    process: str = ""
    size: int | None = None
    memcg: str | None = None
    why: str = ""


def find_kill(found: Iterable[Entry], victim: Victim) -> OomKill | None:
    """The first kill that met the job."""
    log = timely(found, victim)
    for entry in log:
        if entry.source == Killer.KERNEL:
            kill = _by_kernel(entry.text, victim, log)
        elif entry.source == MANAGER:
            kill = _by_oomd(entry.text, victim, log)
        elif entry.source == Killer.EARLYOOM:
            kill = _by_earlyoom(entry.text, victim)
        else:
            continue
        if kill is not None:
            return kill
    return None


def _by_kernel(line: str, victim: Victim, log: Sequence[Entry]) -> OomKill | None:
    found = _KERNEL.search(line)
    if found is None or not _within(found[2], victim.cgroup):
        return None
    if not victim.all_of_it and int(found[4]) != victim.pid:
        return None
    pattern = re.compile(_SIZES.replace("PID", found[4]))
    sizes = next((match for entry in log if (match := pattern.search(entry.text))), None)
    memcg = _MEMCG.search(line)
    return OomKill(
        Killer.KERNEL,
        process=found[3],
        size=sum(map(int, sizes.groups())) * 1024 if sizes else None,
        memcg=memcg[1] if memcg and found[1] == "CONSTRAINT_MEMCG" else None,
    )


def _by_oomd(line: str, victim: Victim, log: Sequence[Entry]) -> OomKill | None:
    """Said by PID 1, before it calls the unit ended; systemd-oomd itself speaks after its deed."""
    found = _OOMD.match(line)
    if found is None or found[1] != victim.unit:
        return None
    said = (_OOMD_WHY.match(entry.text) for entry in log if entry.source == Killer.OOMD)
    why = next((match[2] for match in said if match and _within(match[1], victim.cgroup)), "")
    why = re.sub(r"\((\d{1,18})\)", lambda size: format_memory(int(size[1])), why.rstrip("."))
    return OomKill(Killer.OOMD, why=why)


def _by_earlyoom(line: str, victim: Victim) -> OomKill | None:
    found = _EARLYOOM.match(line)
    if found is None or int(found[1]) != victim.pid:
        return None
    return OomKill(Killer.EARLYOOM, process=found[2], size=int(found[3]) << 20)


def _within(path: str, cgroup: str) -> bool:
    return path == cgroup or path.startswith(f"{cgroup}/")


def at_own_limit(kill: OomKill | None, cgroup: str) -> bool:
    """Whether it is the job's own limit that was reached."""
    return kill is not None and kill.memcg is not None and _within(kill.memcg, cgroup)


def sentence(
    kill: OomKill | None, cgroup: str, limit: int, peak: int | None, *, setup: bool
) -> tuple[str, str]:
    """(code, text) of the reason. `limit` is what the job asked for, 0 if it didn't; `peak` what it used."""
    what = "Its setup ran" if setup else "It ran"
    if kill is None:
        asked = f" It asked for {format_memory(limit)}." if limit else ""
        return "oom", f"{what} out of memory and was killed, by the kernel or by systemd-oomd.{asked}"
    size = "" if kill.size is None else f", which had {format_memory(kill.size)} in memory"
    if at_own_limit(kill, cgroup):
        next_time = f" Try --memory {format_memory(2 * limit)}." if limit else ""
        reached = f" at its limit of {format_memory(limit)}" if limit else ""
        return "oom", f"{what} out of memory{reached}: the kernel killed {kill.process!r}{size}.{next_time}"
    used = "" if peak is None else f" At its peak the job used {format_memory(peak)}."
    if kill.memcg is not None:
        slice_ = kill.memcg.rpartition("/")[2]
        who = f"the kernel killed {kill.process!r}{size}"
        return "oom-slice", f"{slice_}, which it ran in, reached its memory limit: {who}.{used}"
    ask = "" if limit else " Ask for what it needs with --memory."
    match kill.by:
        case Killer.KERNEL:
            text = f"The machine ran out of memory: the kernel killed {kill.process!r}{size}."
            return "oom-machine", f"{text}{used}{ask}"
        case Killer.OOMD:
            why = kill.why or "as the machine was short of memory"
            return "oom-oomd", f"systemd-oomd killed it {why}.{used}{ask}"
        case Killer.EARLYOOM:
            text = f"The machine was short of memory: earlyoom killed {kill.process!r}{size}."
            return "oom-earlyoom", f"{text}{used}{ask}"
