"""A handler for each method of io.sysjobs: reads the call, asks the queue or the store, replies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from sysjobs.capacity import inventory
from sysjobs.changes import Changes
from sysjobs.conditions import Dependency, When
from sysjobs.config import Paths, Settings, read_settings
from sysjobs.doctor import Checkup, Look, findings
from sysjobs.engine import Engine
from sysjobs.engine.files import JobFiles
from sysjobs.errors import Refused, SysjobsError
from sysjobs.jobs import Job, Key, Reason
from sysjobs.listing import Listing
from sysjobs.nodes import Nodes
from sysjobs.payload import NewJob, Payload, payload_of_task
from sysjobs.peer import Peer
from sysjobs.ports import Clock, RowDamaged, storage_unreadable
from sysjobs.protocol import Call, Params
from sysjobs.queue import Queue
from sysjobs.reports import Reports
from sysjobs.room import FileSystems
from sysjobs.selection import Selection, all_of, bounded, job_of, not_found, select
from sysjobs.server import Exchange, News
from sysjobs.store import Store
from sysjobs.submission import CONTEXT_KEYS, SPEC_KEYS, Submitter, namesakes, new_job
from sysjobs.sweep import Param, values_of
from sysjobs.tasks import is_without_turn
from sysjobs.views import details_view, ending_reason, job_view, not_enforced

MAX_DEPENDENCIES = 1000
MAX_WATCHED = 10_000
WATCHED = 500
"""Bytes that it takes to watch a job."""


@dataclass(slots=True)
class Handlers:
    queue: Queue
    store: Store
    engine: Engine
    files: JobFiles
    settings: Settings
    clock: Clock
    paths: Paths
    room: FileSystems
    look: Look
    _sweep: tuple[int, tuple[Param, ...]] = (0, ())

    def table(self) -> dict[str, Callable[[Exchange, Call], None]]:
        methods = {
            "io.sysjobs.Submit": self.submit,
            "io.sysjobs.List": Listing(self.queue, self.store, self._view).list_jobs,
            "io.sysjobs.Show": self.show,
            "io.sysjobs.Watch": self.watch,
            "io.sysjobs.Check": self.check,
            **Changes(self.queue, self.store, self.clock).table(),
            **Reports(self.store).table(),
            **Nodes(self.queue, self.clock, self.paths).table(),
        }
        return {name: self._reading(method) for name, method in methods.items()}

    def _reading(self, method: Callable[[Exchange, Call], None]) -> Callable[[Exchange, Call], None]:
        """The method, in which a database that can't be read is no fault of ours."""

        def guarded(exchange: Exchange, call: Call) -> None:
            try:
                method(exchange, call)
            except Store.failure as error:
                raise storage_unreadable(error) from None

        return guarded

    def submit(self, exchange: Exchange, call: Call) -> None:
        params = Params(call.parameters, frozenset(("job", "context", "key")))
        peer = exchange.peer
        if peer.user is None:
            raise Refused(
                f"The user id {peer.uid} has no account on this node.",
                "Ask the administrator to make one, so that the job has a home and groups.",
                code="no-user",
            )
        spec = Params(params.mapping("job"), SPEC_KEYS, "job.")
        new = new_job(
            Submitter(peer.uid, peer.gid, peer.user),
            spec,
            Params(params.mapping("context"), CONTEXT_KEYS, "context."),
            params.text("key"),
            default_grace=self.settings.grace,
            now=self.clock.now(),
        )
        warnings = not_enforced(new, self.engine.controllers)
        # What the first one was to come after may be called otherwise by now.
        job_id = None if new.key is None else self.store.find_key(new.uid, new.key)
        if job_id is None:
            job_id = self.queue.submit(new.after(self._dependencies(peer, spec, new)))
        exchange.finish({"id": job_id} | ({"warnings": warnings} if warnings else {}))

    def _dependencies(self, peer: Peer, spec: Params, new: NewJob) -> list[Dependency]:
        """The jobs that the new one is to come after."""
        found: list[Dependency] = []
        for when in (When.AFTER, When.OK, When.ANY, When.NOT_OK):
            if not (texts := bounded(spec.texts(when))):
                continue
            selection = self._select(peer, texts)
            if selection.missing:
                raise not_found(selection.missing)
            _refuse_more(len(found) + len(selection))
            jobs, damaged = all_of(selection, self.queue, self.store)
            found += [Dependency(when, *_parts(job.key)) for job in jobs]
            found += [Dependency(when, job_id) for job_id in damaged]
        if spec.flag("singleton"):
            found += namesakes(new, self.queue.jobs.values())
        return found

    def show(self, exchange: Exchange, call: Call) -> None:
        params = Params(call.parameters, frozenset(("id",)))
        peer = exchange.peer
        selector = params.required_text("id")
        selection = self._select(peer, [selector])
        if len(selection) != 1:
            raise Refused(f"{selector!r} names {len(selection)} jobs.", "Give the id of one.", code="several")
        ((job,), _) = all_of(selection, self.queue, self.store)
        mine = peer.may_read(job.uid)
        warnings = not_enforced(job, self.engine.controllers, job.shares)
        if job.status.launched and self.queue.online and job.array is None:
            warnings += self.engine.not_held(job)
        payload = None
        try:
            payload = self._payload(job) if mine else None
        except RowDamaged as error:
            warnings = [*warnings, error.message]
        details = details_view(
            job,
            self._view(peer, job),
            payload,
            self.files.log(job, setup=True) if mine and job.has_setup and job.array is None else None,
            warnings,
            self.engine.access,
            self.queue.waiting.position(job),
            lambda number: self.files.log(replace(job, attempt=number)) if mine else None,
        )
        exchange.finish({"details": details})

    def watch(self, exchange: Exchange, call: Call) -> None:
        params = Params(call.parameters, frozenset(("ids",)))
        peer = exchange.peer
        ids = bounded(params.texts("ids"))
        if not ids:
            raise Refused("No jobs to watch were named.", "Give ids.", code="no-ids")
        selection = self._select(peer, ids)
        if selection.missing:
            raise not_found(selection.missing)
        if len(selection) > MAX_WATCHED or (len(selection) > 1 and not call.more):
            raise Refused(
                f"{len(selection)} jobs are too many for one call.",
                "Watch fewer, with `more`.",
                code="too-many",
            )
        jobs, damaged = all_of(selection, self.queue, self.store)
        exchange.hold(len(jobs) * WATCHED)
        # Of a job that changes faster than the client reads, it is told the last state only, and that as it
        # is on disk: the queue's memory may be ahead. What has ended stays there.
        untold = {job.key: None if job.status.terminal else job for job in jobs}
        waiting = set(untold)
        watched = [job.key for job in jobs if not job.status.terminal]
        del jobs

        def news() -> News:
            key = next(iter(untold), None)
            if key is None:
                if damaged and not waiting:
                    # Nobody knows how it ended, or that it has: not to be taken for a good end of all.
                    job_of(damaged[0], self.queue)
                return None, False
            job = untold.pop(key) or job_of(key, self.queue)
            if job.status.terminal or not call.more:
                waiting.discard(key)
            return {"job": self._view(peer, job)}, not (waiting or damaged)

        def changed(job: Job) -> None:
            untold[job.key] = job
            exchange.pump()

        for key in watched if call.more else ():
            exchange.when_over(self.queue.watchers.add(key, changed))
        exchange.follow(news)

    def check(self, exchange: Exchange, call: Call) -> None:
        Params(call.parameters, frozenset())
        wrong = None
        try:
            inventory(read_settings(self.paths.settings))
        except SysjobsError as error:
            wrong = error
        checkup = Checkup(self.queue, self.store, self.look, self.paths.scripts)

        def news() -> News:
            """For root it takes its time: one piece of it in each turn."""
            if checkup.goes_on():
                exchange.pump()
                return None, False
            found = findings(self.queue, self.engine, self.room, wrong, checkup)
            return {"findings": list(found)}, True

        if exchange.peer.is_root:
            checkup.begin()
        exchange.follow(news)

    def _view(self, peer: Peer, job: Job) -> dict[str, object]:
        mine = peer.may_read(job.uid)
        log = self.files.log(job) if mine else None
        return job_view(job, log=log, why=self._why(job), params=self._params(job) if mine else None)

    def _params(self, job: Job) -> dict[bytes, bytes] | None:
        """What a task of a sweep got."""
        if job.task is None:
            return None
        array_id, params = self._sweep
        if array_id != job.task.array_id:
            # They never change, and many tasks of one array are asked for in a row.
            array = None
            # What is wrong with the array's record is no task's fault.
            with suppress(RowDamaged):
                array = self.queue.find(job.task.array_id)
            params = array.array.params if array is not None and array.array is not None else ()
            self._sweep = job.task.array_id, params
        return values_of(params, job.task.index)

    def _payload(self, job: Job) -> Payload:
        if job.task is None or not is_without_turn(job):
            return self.store.payload(job.id)
        array = job_of(job.id, self.queue).array
        assert array is not None
        payload = self.store.payload(job.id)
        return payload_of_task(payload, job.id, array.indices, array.params, job.task.index)

    def _why(self, job: Job) -> Reason | None:
        """Why it waits, is being ended, or ended as it did."""
        if not self.queue.online and (job.waits or job.ending):
            return self.queue.why_offline
        if job.waits:
            return self.queue.waiting.why(job, self.queue.holdings)
        return job.reason or ending_reason(job, self.clock.monotonic())

    def _select(self, peer: Peer, ids: list[str]) -> Selection:
        return select(peer, ids, self.queue, self.store)


def _parts(key: Key) -> tuple[int, int | None]:
    return key if isinstance(key, tuple) else (key, None)


def _refuse_more(count: int) -> None:
    if count > MAX_DEPENDENCIES:
        raise Refused(
            f"A job can't wait for {count:,} others; {MAX_DEPENDENCIES:,} are taken.",
            "Give fewer; an array as a whole is one.",
            code="too-many",
        )
