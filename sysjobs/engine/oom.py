"""Pure: the kernel's lines about a process that it killed for want of memory -> whose memory that was."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sysjobs.resources import format_memory

_KILL = re.compile(r"oom-kill:constraint=(\w+),.*?task_memcg=(.*?),task=(.*),pid=(\d+),uid=\d+")
_MEMCG = re.compile(r",oom_memcg=(.*?),task_memcg=")
_SIZES = r"Killed process {pid} \(.*\) .*?anon-rss:(\d+)kB, file-rss:(\d+)kB, shmem-rss:(\d+)kB"


@dataclass(frozen=True, slots=True)
class OomKill:
    """A process of a job that the kernel killed, and what it had in memory (bytes), if that was said.

    `memcg` is the cgroup whose limit was reached; None where the machine itself had no memory left.
    """

    process: str
    size: int | None
    memcg: str | None


def find_kill(log: str, cgroup: str) -> OomKill | None:
    """The first kill in or below `cgroup` (a path of the kernel's, from the root) in lines of its log."""
    for line in log.splitlines():
        found = _KILL.search(line)
        if found is None or not (found[2] == cgroup or found[2].startswith(f"{cgroup}/")):
            continue
        sizes = re.search(_SIZES.format(pid=found[4]), log)
        memcg = _MEMCG.search(line)
        return OomKill(
            process=found[3],
            size=sum(map(int, sizes.groups())) * 1024 if sizes else None,
            memcg=memcg[1] if memcg and found[1] == "CONSTRAINT_MEMCG" else None,
        )
    return None


def sentence(kill: OomKill | None, cgroup: str, limit: int, *, setup: bool) -> tuple[str, str]:
    """(code, text) of the reason. `limit` is what the job asked for, 0 if it didn't."""
    what = "Its setup ran" if setup else "It ran"
    if kill is None:
        asked = f" It asked for {format_memory(limit)}." if limit else ""
        return "oom", f"{what} out of memory and was killed, by the kernel or by systemd-oomd.{asked}"
    size = "" if kill.size is None else f", which had {format_memory(kill.size)} in memory"
    who = f"the kernel killed {kill.process!r}{size}"
    if kill.memcg is None:
        more = "" if limit else " Ask for what it needs with --memory."
        return "oom-machine", f"The machine ran out of memory: {who}.{more}"
    if kill.memcg == cgroup or kill.memcg.startswith(f"{cgroup}/"):
        next_time = f" Try --memory {format_memory(2 * limit)}." if limit else ""
        reached = f" at its limit of {format_memory(limit)}" if limit else ""
        return "oom", f"{what} out of memory{reached}: {who}.{next_time}"
    return "oom-slice", f"{kill.memcg.rpartition('/')[2]}, which it ran in, reached its memory limit: {who}."
