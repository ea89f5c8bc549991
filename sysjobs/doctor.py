"""What this node can't do, and what is wrong with it, as far as the daemon sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from sysjobs.engine import Engine, Swept
from sysjobs.errors import SysjobsError
from sysjobs.jobs import Job
from sysjobs.ports import RowDamaged
from sysjobs.queue import Queue
from sysjobs.room import FileSystems
from sysjobs.selectors import damaged_records, ranges
from sysjobs.store import Filter, Store

Finding = dict[str, str]

Look = Callable[[Callable[[Job], None]], None]
"""Has all units looked at, and tells of jobs that were found to be otherwise than was thought."""

RECORDS = 100_000
"""The newest so many are read: a client waits a minute for its answer."""

AT_ONCE = 100
"""Records that are read before others are served again."""

_REPAIR = "Run `systemctl stop sysjobsd.socket sysjobsd`, `sysjobsd --repair`, and start both again."


def finding(subject: str, level: str, text: str, advice: str = "") -> Finding:
    """`level` is ok, mended, warning or problem."""
    found = {"subject": subject, "level": level, "text": text}
    return found | ({"advice": advice} if advice else {})


def findings(
    queue: Queue, engine: Engine, room: FileSystems, bad_settings: SysjobsError | None, checkup: Checkup
) -> Iterator[Finding]:
    running, waiting = len(queue.holdings), len(queue.waiting)
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
    if (drain := queue.waiting.drain) is not None:
        yield finding("node", "warning", drain.why().text)
    if bad_settings is None:
        yield finding("settings", "ok", "The settings can be read.")
    else:
        yield finding("settings", "problem", bad_settings.message, bad_settings.hint)
    if "memory" in engine.controllers:
        yield finding("memory", "ok", "Jobs are held to --memory.")
    else:
        yield finding(
            "memory",
            "warning",
            "Jobs can't be held to --memory: the cgroups here have no memory controller.",
            "Boot with cgroup v2 alone: systemd.unified_cgroup_hierarchy=1 on the kernel's command line.",
        )
    for text in queue.holdings.capacity.notes:
        yield finding("node", "warning", text)
    if queue.holdings.capacity.cores and "cpuset" not in engine.controllers:
        text = "Jobs can't be kept to CPUs (pin-cpus): the cgroups here have no cpuset controller."
        yield finding("cpus", "warning", text, "Set pin-cpus = false.")
    yield from _devices(queue)
    yield from room.findings()
    yield from _units(queue)
    yield from checkup.findings()


def _devices(queue: Queue) -> Iterator[Finding]:
    capacity = queue.holdings.capacity
    if capacity.devices:
        yield finding("gpus", "ok", f"{len(capacity.devices)} can be used.")
    for device, why in capacity.out_of_use:
        level, advice = (
            "warning",
            "sysjobsd looks again every minute; `systemctl reload sysjobsd` has it look now.",
        )
        yield finding("gpus", level, f"{device.model} {device.name} is out of use: {why}.", advice)

    for name in capacity.not_reserved:
        text = f"reserve-gpus names {name!r:.80}, and no GPU here is called so."
        yield finding("gpus", "warning", text, "Give a name as `sysjobs node` has it, or a UUID.")


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


class Checkup:
    """What root may ask for: to have everything looked at, and mended what a start of the daemon would mend.

    `goes_on` does it piece by piece, with others served in between; `findings` says what came of it.
    """

    def __init__(self, queue: Queue, store: Store, look: Look, scripts: Path) -> None:
        self._queue = queue
        self._store = store
        self._look = look
        self._scripts = scripts
        self._missed: list[Job] = []
        self._swept: list[Swept] = []
        self._damaged: list[int] = []
        self._unread = 0
        self._reading = self._read()
        self._begun = False

    def begin(self) -> None:
        """Look at all units, and have what is left of jobs removed with the next commit."""
        self._begun = True
        self._look(self._missed.append)
        if self._queue.online:
            self._queue.sweep(self._swept.append)

    def goes_on(self) -> bool:
        """Do some more; whether there was more to do."""
        return self._begun and next(self._reading, False)

    def _read(self) -> Iterator[bool]:
        # What is wrong with more than single records, the check of the whole database will say.
        with suppress(self._store.failure):
            ids, self._unread = self._store.find_ids(Filter(limit=RECORDS))
            yield True
            for start in range(0, len(ids), AT_ONCE):
                jobs, damaged = self._store.get_all(ids[start : start + AT_ONCE])
                self._damaged += sorted(damaged + [job.id for job in jobs if not self._can_run(job)])
                yield True

    def _can_run(self, job: Job) -> bool:
        try:
            return job.status.terminal or bool(self._store.payload(job.id))
        except RowDamaged:
            return False

    def findings(self) -> Iterator[Finding]:
        if not self._begun:
            yield finding("database", "ok", "Not looked at: root alone can have it checked.")
            return
        yield from self._mended()
        yield from self._database()

    def _mended(self) -> Iterator[Finding]:
        for job in self._missed[:20]:
            text = f"Job {job.id} is {job.status}, which no signal had told; now it is recorded."
            yield finding("jobs", "mended", text)
        removed = [job_id for swept in self._swept for job_id in swept.removed]
        if removed:
            text = f"What was left of jobs {ranges(removed)} in {self._scripts} was removed."
            yield finding("leftovers", "mended", text)
        left = [job_id for swept in self._swept for job_id in swept.left]
        if left:
            yield finding(
                "leftovers",
                "warning",
                f"What is left of jobs {ranges(left)} in {self._scripts} can't be removed by sysjobsd.",
                "It belongs to no job that is there; root can remove it.",
            )
        if not self._swept:
            yield finding(
                "leftovers",
                "warning",
                "Not looked at: sysjobsd couldn't.",
                "`journalctl -u sysjobsd` says why.",
            )
        elif not removed + left:
            yield finding("leftovers", "ok", "Nothing is left of jobs that are gone.")

    def _database(self) -> Iterator[Finding]:
        try:
            said = self._store.check()
        except self._store.failure as error:
            said = str(error)
        if said is not None:
            yield finding("database", "problem", f"The database is damaged: {said}.", _REPAIR)
        if self._damaged:
            text = f"{damaged_records(self._damaged)}. Units and logs are left alone."
            yield finding("database", "problem", text, f"{_REPAIR} That sets them aside.")
        if said is None and not self._damaged:
            older = f" Of its records the oldest {self._unread} were not read." if self._unread else ""
            yield finding("database", "ok", f"The database is whole.{older}")
