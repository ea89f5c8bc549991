"""What this node can't do, and what is wrong with it, as far as the daemon sees it."""

from __future__ import annotations

from collections.abc import Iterator

from sysjobs.engine import Engine
from sysjobs.errors import SysjobsError
from sysjobs.queue import Queue
from sysjobs.room import FileSystems
from sysjobs.store import Store

Finding = dict[str, str]


def finding(subject: str, level: str, text: str, advice: str = "") -> Finding:
    """`level` is ok, warning or problem."""
    found = {"subject": subject, "level": level, "text": text}
    return found | ({"advice": advice} if advice else {})


def findings(
    queue: Queue,
    store: Store,
    engine: Engine,
    room: FileSystems,
    bad_settings: SysjobsError | None,
    *,
    root: bool,
) -> Iterator[Finding]:
    """`root` has the database checked too, which takes its time."""
    running, waiting = queue.counts()
    yield finding("daemon", "ok", f"sysjobsd answers: {running} running, {waiting} waiting.")
    if queue.online:
        yield finding("systemd", "ok", "sysjobsd is connected to systemd.")
    else:
        yield finding(
            "systemd",
            "problem",
            "sysjobsd starts and ends nothing now: systemd can't be reached, or its database not be written.",
            "`journalctl -u sysjobsd` says why; it is tried again every second.",
        )
    if bad_settings is None:
        yield finding("settings", "ok", "The settings can be read.")
    else:
        yield finding("settings", "problem", bad_settings.message, bad_settings.hint)
    if engine.holds_memory:
        yield finding("memory", "ok", "Jobs are held to --memory.")
    else:
        yield finding(
            "memory",
            "warning",
            "Jobs can't be held to --memory: the cgroups here have no memory controller.",
            "Boot with cgroup v2 alone: systemd.unified_cgroup_hierarchy=1 on the kernel's command line.",
        )
    yield from room.findings()
    yield from _units(queue)
    yield (
        _database(store)
        if root
        else finding("database", "ok", "Not looked at: root alone can have it checked.")
    )


def _units(queue: Queue) -> Iterator[Finding]:
    if not queue.strangers:
        yield finding("units", "ok", "Each job's unit belongs to a job that the database knows.")
    for job_id in sorted(queue.strangers)[:20]:
        yield finding(
            "units",
            "warning",
            f"sysjobs-{job_id}.service is of a job that the database doesn't know, or can't read.",
            f"It is left alone; root can end it by `systemctl stop sysjobs-{job_id}`.",
        )


def _database(store: Store) -> Finding:
    try:
        said = store.check()
    except store.failure as error:
        said = str(error)
    if said is None:
        return finding("database", "ok", "The database is whole.")
    advice = "Run `systemctl stop sysjobsd.socket sysjobsd`, `sysjobsd --repair`, and start both again."
    return finding("database", "problem", f"The database is damaged: {said}.", advice)
