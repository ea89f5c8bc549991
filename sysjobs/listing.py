"""Calls that list jobs: a few, or a million in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sysjobs.errors import Refused
from sysjobs.indices import Places
from sysjobs.jobs import UNFINISHED, Job, Status
from sysjobs.peer import Peer
from sysjobs.protocol import Call, Params
from sysjobs.queue import Queue
from sysjobs.selection import bounded, job_of, meant_by, not_found
from sysjobs.selectors import MAX_ID
from sysjobs.server import Exchange
from sysjobs.store import Filter, Kind, Store
from sysjobs.tasks import by_status, without_turn

CHUNK = 200
"""Jobs in one reply of List with `more`."""

MAX_SINGLE_REPLY = 1000
"""Jobs in the one reply of List without `more`."""

Reply = dict[str, object]


@dataclass(slots=True)
class Listing:
    queue: Queue
    store: Store
    view: Callable[[Peer, Job], Reply]

    def list_jobs(self, exchange: Exchange, call: Call) -> None:
        keys = frozenset(("ids", "all_users", "statuses", "unfinished", "limit", "tasks"))
        params = Params(call.parameters, keys)
        peer = exchange.peer
        ids = bounded(params.texts("ids"))
        limit = params.integer("limit") or 0
        if limit < 0:
            raise Refused(
                f"The limit {limit} is negative.",
                "Give a positive number, or 0 for no limit.",
                code="bad-limit",
            )
        expand = params.flag("tasks")
        meant = None if ids is None else meant_by(peer, ids, self.queue, self.store, expand=expand)
        wanted = Filter(
            uid=None if params.flag("all_users") else peer.uid,
            ids=None if meant is None else meant.ids,
            kind=Kind.ALL if expand or meant is not None else Kind.JOBS,
            statuses=_statuses(params.texts("statuses"), unfinished=params.flag("unfinished")),
            limit=min(limit, MAX_ID) if call.more else min(limit or MAX_SINGLE_REPLY, MAX_SINGLE_REPLY),
        )
        found, left_out = self.store.find_ids(wanted)
        others = [] if meant is None else [*self._without_turn(meant.tasks, wanted)]
        if ids is not None and not found and not others:
            raise not_found(ids)
        count = sum(len(places) for _, places in others)
        room = count if not wanted.limit else min(wanted.limit - len(found), count)
        more = islice((without_turn(array, place) for array, places in others for place in places), room)
        last: Reply = {"left_out": left_out + count - room}
        hidden = self._hidden(wanted, found)
        if not call.more:
            exchange.finish(self._read(peer, found, hidden, more) | last)
            return
        exchange.hold(len(found) * found.itemsize)
        exchange.stream(self._chunks(peer, found, more, self._read(peer, (), hidden) | last))

    def _without_turn(self, tasks: Mapping[int, Places], wanted: Filter) -> Iterator[tuple[Job, Places]]:
        """Those of these tasks that are wanted, by array."""
        for array_id, places in tasks.items():
            array = job_of(array_id, self.queue)
            if wanted.uid not in (None, array.uid):
                continue
            found = Places()
            for status, those in by_status(array).items():
                if wanted.statuses is None or status in wanted.statuses:
                    found |= places & those
            if found:
                yield array, found

    def _chunks(self, peer: Peer, ids: Sequence[int], more: Iterator[Job], last: Reply) -> Iterator[Reply]:
        """Read as they are sent: there may be a million, and a client that takes its time."""
        for start in range(0, len(ids), CHUNK):
            yield self._read(peer, ids[start : start + CHUNK])
        while jobs := [*islice(more, CHUNK)]:
            yield self._read(peer, (), (), jobs)
        yield last

    def _read(
        self, peer: Peer, ids: Iterable[int], hidden: Sequence[int] = (), more: Iterable[Job] = ()
    ) -> Reply:
        jobs, damaged = self.store.get_all(ids)
        damaged += hidden
        views = [self.view(peer, job) for job in (*jobs, *more)]
        return {"jobs": views} | ({"damaged": damaged} if damaged else {})

    def _hidden(self, wanted: Filter, found: Sequence[int]) -> list[int]:
        """Jobs whose units are there, and which only a status that can't be read keeps from being found."""
        if wanted.statuses is None or wanted.ids is not None:
            return []
        units = [range(job_id, job_id + 1) for job_id in self.queue.strangers]
        _, damaged = self.store.get_all(self.store.find_ids(Filter(uid=wanted.uid, ids=units))[0])
        return [job_id for job_id in damaged if job_id not in found]


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
