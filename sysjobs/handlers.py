"""A handler for each method of io.sysjobs: reads the call, asks the queue or the store, replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sysjobs.capacity import inventory
from sysjobs.changes import Changes
from sysjobs.conditions import Dependency, When
from sysjobs.config import Paths, Settings, read_settings
from sysjobs.doctor import Checkup, Look, findings
from sysjobs.engine import Engine
from sysjobs.engine.files import JobFiles
from sysjobs.errors import Refused, SysjobsError
from sysjobs.jobs import UNFINISHED, Job, Reason, Status
from sysjobs.nodes import Nodes
from sysjobs.payload import NewJob
from sysjobs.peer import Peer
from sysjobs.ports import Clock, RowDamaged, storage_unreadable
from sysjobs.protocol import Call, Params
from sysjobs.queue import Queue
from sysjobs.reports import Reports
from sysjobs.room import FileSystems
from sysjobs.selection import bounded, job_of, jobs_of, not_found, ranges_of, select
from sysjobs.selectors import MAX_ID
from sysjobs.server import Exchange, News
from sysjobs.store import Filter, Store
from sysjobs.submission import CONTEXT_KEYS, SPEC_KEYS, Submitter, namesakes, new_job
from sysjobs.views import details_view, ending_reason, job_view, not_enforced

CHUNK = 200
"""Jobs in one reply of List with `more`."""

MAX_SINGLE_REPLY = 1000
"""Jobs in the one reply of List without `more`."""

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

    def table(self) -> dict[str, Callable[[Exchange, Call], None]]:
        methods = {
            "io.sysjobs.Submit": self.submit,
            "io.sysjobs.List": self.list_jobs,
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
        found = []
        for when in (When.AFTER, When.OK, When.ANY, When.NOT_OK):
            if not (texts := bounded(spec.texts(when))):
                continue
            ids, missing = self._select(peer, texts)
            if missing:
                raise not_found(missing)
            found += [Dependency(when, job_id) for job_id in ids]
        if len(found) > MAX_DEPENDENCIES:
            raise Refused(
                f"A job can't wait for {len(found):,} others; {MAX_DEPENDENCIES:,} are taken.",
                "Give fewer.",
                code="too-many",
            )
        if spec.flag("singleton"):
            found += namesakes(new, self.queue.jobs.values())
        return found

    def list_jobs(self, exchange: Exchange, call: Call) -> None:
        params = Params(call.parameters, frozenset(("ids", "all_users", "statuses", "unfinished", "limit")))
        peer = exchange.peer
        ids = bounded(params.texts("ids"))
        limit = params.integer("limit") or 0
        if limit < 0:
            raise Refused(
                f"The limit {limit} is negative.",
                "Give a positive number, or 0 for no limit.",
                code="bad-limit",
            )
        wanted = Filter(
            uid=None if params.flag("all_users") else peer.uid,
            ids=None if ids is None else ranges_of(peer, ids, self.queue.jobs, self.store),
            statuses=_statuses(params.texts("statuses"), unfinished=params.flag("unfinished")),
            limit=min(limit, MAX_ID) if call.more else min(limit or MAX_SINGLE_REPLY, MAX_SINGLE_REPLY),
        )
        found, left_out = self.store.find_ids(wanted)
        if ids is not None and not found:
            raise not_found(ids)
        if not call.more:
            exchange.finish(self._read(peer, found, self._hidden(wanted, found)) | {"left_out": left_out})
            return
        exchange.hold(len(found) * found.itemsize)
        last = self._read(peer, (), self._hidden(wanted, found)) | {"left_out": left_out}
        exchange.stream(self._chunks(peer, found, last))

    def _chunks(self, peer: Peer, ids: Sequence[int], last: dict[str, object]) -> Iterator[dict[str, object]]:
        """Read as they are sent: there may be a million, and a client that takes its time."""
        for start in range(0, len(ids), CHUNK):
            yield self._read(peer, ids[start : start + CHUNK])
        yield last

    def _read(self, peer: Peer, ids: Iterable[int], hidden: Sequence[int] = ()) -> dict[str, object]:
        jobs, damaged = self.store.get_all(ids)
        damaged += hidden
        return {"jobs": [self._view(peer, job) for job in jobs]} | ({"damaged": damaged} if damaged else {})

    def _hidden(self, wanted: Filter, found: Sequence[int]) -> list[int]:
        """Jobs whose units are there, and which only a status that can't be read keeps from being found."""
        if wanted.statuses is None or wanted.ids is not None:
            return []
        units = [range(job_id, job_id + 1) for job_id in self.queue.strangers]
        _, damaged = self.store.get_all(self.store.find_ids(Filter(uid=wanted.uid, ids=units))[0])
        return [job_id for job_id in damaged if job_id not in found]

    def show(self, exchange: Exchange, call: Call) -> None:
        params = Params(call.parameters, frozenset(("id",)))
        peer = exchange.peer
        selector = params.required_text("id")
        ids, _ = self._select(peer, [selector])
        if len(ids) != 1:
            raise Refused(f"{selector!r} names {len(ids)} jobs.", "Give the id of one.", code="several")
        job = self._job(ids[0])
        mine = peer.may_read(job.uid)
        warnings = not_enforced(job, self.engine.controllers, job.shares)
        if job.status.launched and self.queue.online:
            warnings += self.engine.not_held(job)
        payload = None
        try:
            payload = self.store.payload(job.id) if mine else None
        except RowDamaged as error:
            warnings = [*warnings, error.message]
        details = details_view(
            job,
            self._view(peer, job),
            payload,
            self.files.log(job, setup=True) if mine and job.has_setup else None,
            warnings,
            self.engine.access,
            self.queue.waiting.position(job),
        )
        exchange.finish({"details": details})

    def watch(self, exchange: Exchange, call: Call) -> None:
        params = Params(call.parameters, frozenset(("ids",)))
        peer = exchange.peer
        ids = bounded(params.texts("ids"))
        if not ids:
            raise Refused("No jobs to watch were named.", "Give ids.", code="no-ids")
        watched, missing = self._select(peer, ids)
        if missing:
            raise not_found(missing)
        if len(watched) > MAX_WATCHED or (len(watched) > 1 and not call.more):
            raise Refused(
                f"{len(watched)} jobs are too many for one call.",
                "Watch fewer, with `more`.",
                code="too-many",
            )
        jobs, damaged = jobs_of(watched, self.queue.jobs, self.store)
        watched = [job.id for job in jobs]
        exchange.hold(len(watched) * WATCHED)
        # Of a job that changes faster than the client reads, it is told the last state only, and that as it
        # is on disk: the queue's memory may be ahead. What isn't in memory has ended.
        untold = {job_id: self.queue.jobs.get(job_id) for job_id in watched}
        waiting = set(watched)

        def news() -> News:
            job_id = next(iter(untold), None)
            if job_id is None:
                if damaged and not waiting:
                    # Nobody knows how it ended, or that it has: not to be taken for a good end of all.
                    self._job(damaged[0])
                return None, False
            job = untold.pop(job_id) or self._job(job_id)
            if job.status.terminal or not call.more:
                waiting.discard(job_id)
            return {"job": self._view(peer, job)}, not (waiting or damaged)

        def changed(job: Job) -> None:
            untold[job.id] = job
            exchange.pump()

        for job_id in watched:
            if call.more and job_id in self.queue.jobs:
                exchange.when_over(self.queue.watchers.add(job_id, changed))
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
        log = self.files.log(job) if peer.may_read(job.uid) else None
        return job_view(job, log=log, why=self._why(job))

    def _why(self, job: Job) -> Reason | None:
        """Why it waits, is being ended, or ended as it did."""
        if not self.queue.online and (job.waits or job.ending):
            return self.queue.why_offline
        if job.waits:
            return self.queue.waiting.why(job, self.queue.holdings)
        return job.reason or ending_reason(job, self.clock.monotonic())

    def _select(self, peer: Peer, ids: list[str]) -> tuple[list[int], list[str]]:
        """The jobs that are meant, and those of `ids` that mean none. Of a range, the caller's own."""
        return select(peer, ids, self.queue.jobs, self.store)

    def _job(self, job_id: int) -> Job:
        return job_of(job_id, self.queue.jobs, self.store)


def _statuses(names: list[str] | None, *, unfinished: bool) -> list[Status] | None:
    if names is None:
        return list(UNFINISHED) if unfinished else None
    try:
        statuses = [Status(name.upper()) for name in names]
    except ValueError:
        raise Refused(
            f"There is no status {', '.join(set(map(str.upper, names)) - set(Status.__members__))}.",
            f"The statuses are {', '.join(Status.__members__)}.",
            code="bad-status",
        ) from None
    return [status for status in statuses if not (unfinished and status.terminal)]
