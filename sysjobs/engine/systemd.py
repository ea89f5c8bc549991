"""The engine that runs each job as a transient unit of systemd."""

from __future__ import annotations

import errno
import logging
import os
import select
import signal
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sysjobs.config import Settings
from sysjobs.devices import Access
from sysjobs.engine import (
    ConnectionLost,
    Observation,
    StartFailed,
    StartPostponed,
    StartResult,
    Swept,
    control,
)
from sysjobs.engine.accounting import Accounting
from sysjobs.engine.boot import leave_note, read_boot
from sysjobs.engine.bus import Bus, CallFailed, Knock
from sysjobs.engine.cgroups import EmptyWatch, children, controllers, is_populated
from sysjobs.engine.details import completed
from sysjobs.engine.enforcement import Enforcement, missing, no_device
from sysjobs.engine.files import PASSING, JobFiles
from sysjobs.engine.journal import Journal
from sysjobs.engine.kept import KeptUnits
from sysjobs.engine.outcome import Found, Seen, asks_journal, end_time, has_ended, outcome, refusal, victim
from sysjobs.engine.script import Traces
from sysjobs.engine.signals import UNIT, Tracked, take_in, tell_stop
from sysjobs.engine.units import (
    LOG_LEVELS,
    Confines,
    Unit,
    cgroup_path,
    job_id_of,
    properties,
    updated,
    user_of,
    user_slice,
)
from sysjobs.jobs import Job, Reason
from sysjobs.payload import Payload

log = logging.getLogger(__name__)

_CGROUPS = "/sys/fs/cgroup"
_PATTERN = "sysjobs-[0-9]*.service"

_RUNNING = ("active", "running")
_GOING_DOWN = Reason("going-down", "The machine is being shut down, and starts nothing any more.")


class Systemd:
    """See `Engine`. `address`: the manager's private socket; `shutdown`: the file to note that in."""

    def __init__(self, address: str, files: JobFiles, shutdown: Path, settings: Settings) -> None:
        self.boot = read_boot(shutdown)
        self._shutdown = shutdown
        self.kept = KeptUnits(settings.keep_failed, lambda unit: control.reset_failed(self.bus, unit))
        self._address = address
        self._files = files
        self._tracked: dict[int, Tracked] = {}
        self._bus: Bus | None = None
        self._cgroup_root = _CGROUPS
        # Readable when the bus is, or when a cgroup may have become empty.
        self._epoll = select.epoll()
        self._emptying = EmptyWatch(self._epoll)
        self._journal = Journal(self._epoll)
        # What it has of jobs that somebody ended, until they are let go.
        self._found: dict[int, Found] = {}
        self._enforcement = Enforcement()
        self.access = Access()
        self.set_up(settings)

    def set_up(self, settings: Settings) -> None:
        """Settings are for units that are kept, and for those that are made from now on."""
        self.kept.most = settings.keep_failed
        self._log_level = LOG_LEVELS[settings.unit_messages]

    @property
    def controllers(self) -> Sequence[str]:
        return self._enforcement.controllers

    def knock(self) -> Knock:
        return Knock(self._address)

    def connect(self) -> None:
        self.close()
        bus = Bus(self._address, "sysjobs-")
        try:
            self.boot = replace(self.boot, began=bus.get_manager("UserspaceTimestamp", "t"))
            self._cgroup_root = _CGROUPS + bus.get_manager("ControlGroup", "s").decode().rstrip("/")
        except (CallFailed, ConnectionLost) as error:
            bus.close()
            raise ConnectionLost(str(error)) from None
        self._enforcement = Enforcement(controllers(self._cgroup_root), os.cpu_count() or 1)
        self._bus = bus
        self._accounting = Accounting(bus, self.controllers)
        self._epoll.register(bus.fileno(), select.EPOLLIN)

    def close(self) -> None:
        if self._bus is not None:
            self._epoll.unregister(self._bus.fileno())
            self._bus.close()
            self._bus = None

    @property
    def bus(self) -> Bus:
        if self._bus is None:
            raise ConnectionLost("not connected to systemd")
        return self._bus

    def fileno(self) -> int:
        return self._epoll.fileno()

    @property
    def has_events(self) -> bool:
        return self._bus is not None and (bool(self._bus.pending) or self._emptying.has_some)

    # Doing

    def start(self, job: Job, payload: Payload) -> StartResult:
        try:
            allowed = self.access.allowed(job.shares)
            given = replace(payload, env=(*payload.env, *self.access.variables(job.shares)))
        except KeyError as gone:
            raise StartPostponed(no_device(gone.args[0])) from None
        if (node := missing(allowed)) is not None:
            raise StartPostponed(no_device(node))
        try:
            files = self._files.prepare(job, given)
        except (StartFailed, StartPostponed):
            self.clean(job)
            raise
        self.kept.discard(job.unit)
        self._tracked[job.id] = Tracked(job)
        setup = files.setup if job.has_setup else None
        try:
            weight = self._enforcement.weight(job.amount.cpus)
            confines = Confines(weight, allowed, "io" in self.controllers, self._log_level)
            wanted = properties(job, files.run, setup, self._files.log(job), confines)
            self.bus.start_transient(job.unit, wanted)
        except CallFailed as error:
            if error.number == -errno.EEXIST and self._read(job) is not None:
                # An earlier call took effect; its signals may have passed unseen.
                return StartResult.EXISTS
            del self._tracked[job.id]
            self.clean(job)
            if self._is_going_down():
                raise StartPostponed(_GOING_DOWN) from None
            if -error.number in PASSING or error.number == -errno.ENOENT:
                # A unit that it can't write to a full /run it calls not found.
                text = f"systemd makes no units now: {error.text} See that /run has room. It is tried again."
                raise StartPostponed(Reason("no-unit", text)) from None
            raise StartFailed(refusal(job, error.number, error.text)) from None
        return StartResult.STARTED

    def terminate(self, job: Job) -> None:
        tracked = self._tracked.get(job.id)
        if tracked is not None and tracked.told:
            # A second SIGTERM means "at once" to many programs.
            return
        if job.has_setup:
            self._files.mark_ending(job)
        told = control.terminate(self.bus, job.unit)
        if tracked is not None:
            tracked.told = told

    def kill(self, job: Job) -> None:
        control.kill(self.bus, job.unit, signal.SIGKILL)

    def signal(self, job: Job, number: int, *, everybody: bool = False) -> None:
        control.kill(self.bus, job.unit, number, "all" if everybody else "main")
        if (tracked := self._tracked.get(job.id)) is not None:
            tracked.job = job

    def weigh(self, cpus: Mapping[tuple[int, int | None], int]) -> None:
        self._enforcement.weigh(self.bus, cpus)

    def not_held(self, job: Job) -> list[str]:
        return self._enforcement.not_held(job, self._cgroup(job))

    def freeze(self, job: Job) -> None:
        control.freeze(self.bus, job.unit)

    def thaw(self, job: Job) -> None:
        control.thaw(self.bus, job.unit)

    def release(self, job: Job) -> Observation | None:
        tracked = self._tracked.get(job.id)
        if tracked is None:
            unit = self._read(job)
            if unit is None:
                # What has its name, if anything, is somebody else's.
                return Observation(job.id, held=False, empty=self._is_empty(job))
            tracked = self._tracked[job.id] = Tracked(job, unit)
        tracked.released, tracked.again = True, job.over
        if tracked.unit.active_state == "failed":
            return self._observation(tracked)
        if tracked.unit.exited and self._is_empty(job):
            # All that can happen now is that it is unloaded.
            self.bus.mute(job.unit)
        control.stop(self.bus, job.unit)
        return None

    def users(self) -> list[int]:
        slices = children(f"{self._cgroup_root}/sysjobs.slice")
        return [uid for name in slices if (uid := user_of(name)) is not None]

    def tidy(self, uid: int) -> None:
        name = user_slice(uid)
        if not is_populated(f"{self._cgroup_root}/sysjobs.slice/{name}"):
            # The slices of its shards go with it.
            control.stop(self.bus, name, "fail")

    def await_empty(self, job: Job) -> None:
        self._emptying.add(job.id, self._cgroup(job))

    def clean(self, job: Job) -> None:
        self._found.pop(job.id, None)
        # What can't be removed now is left to the next sweep.
        with suppress(OSError):
            self._files.clean(job)

    def sweep(self, jobs: Container[int]) -> Swept:
        loaded = self._loaded()
        return self._files.sweep(lambda job_id: job_id in jobs or job_id in loaded)

    # Seeing

    def note_shutdown(self) -> None:
        if self._is_going_down():
            leave_note(self._shutdown, self.boot)

    def events(self) -> Iterator[Observation]:
        # Read in any case: the descriptor stays readable until then.
        found = {job_id: each for job_id, each in self._journal.found().items() if job_id in self._tracked}
        self._found |= found
        if self._bus is None:
            yield from self._emptied()
            return
        changed, unloaded = take_in(self._tracked, self.bus.signals())
        yield from self._unloaded({job_id: self._tracked[job_id] for job_id in unloaded})
        for job_id in dict.fromkeys([*changed, *found]):
            if (tracked := self._tracked.get(job_id)) is not None:
                yield self._observation(tracked)
        yield from self._emptied()

    def _emptied(self) -> Iterator[Observation]:
        return (Observation(job_id, empty=True) for job_id in self._emptying.emptied())

    def _unloaded(self, units: Mapping[int, Tracked]) -> Iterator[Observation]:
        """The last word on units that were unloaded, or seemed to be: a reload of systemd says so of all."""
        loaded = {} if all(tracked.released for tracked in units.values()) else self._loaded()
        for job_id, tracked in units.items():
            job, unit = tracked.job, tracked.unit
            state = None if tracked.released else loaded.get(job_id)
            if state == (unit.active_state, unit.sub_state) == _RUNNING and unit.invocation_id is not None:
                continue
            if state is not None or (tracked.released and not self._is_empty(job)):
                # It is there, or is being stopped still.
                yield self.observe(job)
                continue
            del self._tracked[job_id]
            tracked.unit = replace(unit, has_job=False)
            if tracked.released:
                yield Observation(job_id, held=False, empty=True)
            elif has_ended(tracked.unit) and unit.invocation_id is not None:
                yield replace(self._observation(tracked, patient=False), held=False)
            else:
                yield self._absent(job, began=unit.invocation_id is not None)

    def _loaded(self) -> dict[int, tuple[str, str]]:
        """State and sub-state of every job's unit that is there."""
        units = self.bus.list_units(_PATTERN)
        return {
            job_id: (active, sub) for name, active, sub in units if (job_id := job_id_of(name)) is not None
        }

    def observe(self, job: Job) -> Observation:
        if job.unit in self.kept:
            return Observation(job.id, held=False, empty=self._is_empty(job))
        unit = self._read(job)
        if unit is None:
            return self._absent(job)
        tracked = self._tracked.setdefault(job.id, Tracked(job))
        tracked.stopped = tell_stop(self.bus.pending, tracked)
        tracked.unit = unit
        if tracked.released and unit.active_state == "active" and not unit.has_job:
            control.stop_again(self.bus, job.unit)
        return self._observation(tracked)

    def observe_all(self, jobs: Iterable[Job]) -> list[Observation]:
        wanted = {job.id: job for job in jobs}
        self.kept.drop()
        loaded = self._loaded()
        seen = []
        for job in wanted.values():
            told = job.running_at is not None and job.invocation_id is not None
            if loaded.get(job.id) == _RUNNING and told and (job.id in self._tracked or self._is_known(job)):
                # What merely runs has nothing new to say; there may be thousands of these.
                self._tracked.setdefault(
                    job.id, Tracked(job, Unit(*_RUNNING, invocation_id=job.invocation_id))
                )
                continue
            seen.append(self.observe(job) if job.id in loaded else self._absent(job))
        others = loaded.keys() - wanted.keys() - {job_id_of(unit) for unit in self.kept}
        seen += [Observation(job_id) for job_id in sorted(others)]
        return seen

    def _is_known(self, job: Job) -> bool:
        return bytes(self.bus.get(job.unit, UNIT, "InvocationID", "ay")).hex() == job.invocation_id

    def _read(self, job: Job) -> Unit | None:
        """The job's unit; None if it isn't loaded, or doesn't run this attempt's script as this user."""
        everything = self.bus.get_all(job.unit)
        if everything.get("LoadState") != b"loaded" or everything.get("User") != str(job.uid).encode():
            return None
        script = self._files.files(job).run.encode()
        if not any(script in entry[1] for entry in everything.get("ExecStart") or ()):
            return None
        return updated(Unit(), everything)

    def _observation(self, tracked: Tracked, *, patient: bool = True) -> Observation:
        job, unit = tracked.job, tracked.unit
        if tracked.released and unit.active_state == "failed":
            # Where what was left in it had to be killed, that is a failure of the unit, not of the job.
            del self._tracked[job.id]
            if tracked.again:
                control.reset_failed(self.bus, job.unit)
            else:
                self.kept.add(job.unit)
            return Observation(job.id, held=False, empty=self._is_empty(job))
        if unit.invocation_id is None:
            return Observation(job.id, begun=False)
        running = Observation(job.id, invocation_id=unit.invocation_id, running_at=unit.main_started_at)
        if not has_ended(unit):
            if unit.main_started_at is not None and not tracked.read_back:
                tracked.read_back = True
                for difference in self.not_held(job):
                    log.warning("job %d: %s", job.id, difference)
            return running
        unit = tracked.unit = completed(self.bus, job.unit, unit, has_setup=job.has_setup)
        inactive = unit.active_state == "inactive" and not tracked.released
        seen = Seen(
            unit,
            Traces("run") if unit.main_ended and unit.main_status == 0 else self._files.traces(job),
            stopped=tracked.stopped,
            rebooting=(tracked.stopped or inactive) and self._is_going_down(),
            told=tracked.told or job.ending,
            found=self._found.get(job.id, Found()),
            cgroup=self._cgroup(job).removeprefix(_CGROUPS),
            limit=job.amount.memory,
            usage=self._accounting.usage(tracked),
        )
        ask = patient and not tracked.released and job.id not in self._found and asks_journal(seen)
        if ask and (
            job.id in self._journal or self._journal.search(job.id, victim(job, seen, time.time_ns() // 1000))
        ):
            return running
        ended_at, ended_monotonic = end_time(unit)
        return replace(
            running,
            empty=self._is_empty(job),
            ended_at=ended_at,
            ended_monotonic=ended_monotonic,
            outcome=outcome(seen),
        )

    def _absent(self, job: Job, *, began: bool = False) -> Observation:
        """No unit: either nothing ever began, or its end was missed."""
        self._tracked.pop(job.id, None)
        # Traces can be lost; what was once seen to have begun must not begin again.
        begun = began or job.invocation_id is not None or self._files.traces(job).phase is not None
        ending = outcome(Seen(None, rebooting=self._is_going_down())) if begun else None
        return Observation(job.id, begun=begun, held=False, empty=self._is_empty(job), outcome=ending)

    def _is_going_down(self) -> bool:
        return bool(self.bus.get_manager("SystemState", "s") == b"stopping")

    def _cgroup(self, job: Job) -> str:
        return f"{self._cgroup_root}/{cgroup_path(job)}"

    def _is_empty(self, job: Job) -> bool:
        """Whether no process is left in the job's cgroup."""
        return job.shard is None or not is_populated(self._cgroup(job))
