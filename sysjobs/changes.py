"""Calls that change jobs, or send them signals. Each tells what became of every job that was meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sysjobs.conditions import Hold
from sysjobs.errors import Denied, Refused
from sysjobs.events import CancelRequested, Held, Released, SignalWanted
from sysjobs.jobs import Cancellation, Job, Sent, Status
from sysjobs.peer import Peer
from sysjobs.ports import Clock
from sysjobs.protocol import Call, Params
from sysjobs.queue import Queue
from sysjobs.resources import parse_duration
from sysjobs.selection import bounded, jobs_of, select
from sysjobs.server import Exchange
from sysjobs.signalnames import signal_number
from sysjobs.store import Store

MAX_CHANGED = 100_000

Changed = tuple[Job, str]
"""A job after a wish, and what became of that."""


@dataclass(slots=True)
class Changes:
    queue: Queue
    store: Store
    clock: Clock

    def table(self) -> dict[str, Callable[[Exchange, Call], None]]:
        return {
            "io.sysjobs.Cancel": self.cancel,
            "io.sysjobs.Hold": self.hold,
            "io.sysjobs.Release": self.release,
            "io.sysjobs.Signal": self.signal,
        }

    def cancel(self, exchange: Exchange, call: Call) -> None:
        params = Params(call.parameters, frozenset(("ids", "all", "all_users", "reason", "grace")))
        peer = exchange.peer
        ids = bounded(params.texts("ids"))
        if params.flag("all") == bool(ids):
            raise Refused("Nothing to cancel was named.", "Give either ids or --all.", code="no-ids")
        everybodys = params.flag("all_users")
        if everybodys and not (peer.is_root and params.flag("all")):
            raise Denied(
                "Only root can cancel everybody's jobs, with --all.", "Leave out --all-users.", code="denied"
            )
        grace = params.amount("grace")
        seconds = None if grace is None else parse_duration(grace, "--grace")
        reason = params.reason("reason")

        def act(job: Job) -> Changed:
            cancellation = Cancellation(
                uid=peer.uid, user=_name(peer), reason=reason, at=self.clock.now(),
                grace=job.grace if seconds is None else seconds,
            )  # fmt: skip
            kill_at = self.clock.monotonic() + round(cancellation.grace * 1_000_000)
            job = self.queue.change(job, CancelRequested(cancellation, kill_at))
            return job, "cancelled" if job.status.terminal else "cancelling"

        if ids:
            self._change_named(exchange, ids, act)
            return
        live = [
            job
            for job in self.queue.jobs.values()
            if (everybodys or job.uid == peer.uid) and not job.status.terminal
        ]
        exchange.finish({"results": self._change(peer, live, act), "missing": []})

    def hold(self, exchange: Exchange, call: Call) -> None:
        ids = _only_ids(call)
        hold = Hold(exchange.peer.uid, _name(exchange.peer))

        def act(job: Job) -> Changed:
            if not job.waits:
                return job, "started"
            held = self.queue.change(job, Held(hold))
            return held, "held"

        self._change_named(exchange, ids, act)

    def release(self, exchange: Exchange, call: Call) -> None:
        ids = _only_ids(call)
        peer = exchange.peer

        def act(job: Job) -> Changed:
            if job.hold is None and self.queue.waiting.is_stranded(job):
                return self.queue.change(job, Released(from_dependencies=True)), "released"
            if job.hold is None:
                return job, "started" if job.status.launched else "not_held"
            if job.hold.uid == 0 and not peer.is_root:
                return job, "held_by_root"
            return self.queue.change(job, Released()), "released"

        self._change_named(exchange, ids, act)

    def signal(self, exchange: Exchange, call: Call) -> None:
        params = Params(call.parameters, frozenset(("ids", "signal", "everybody")))
        ids, name = _needed(bounded(params.texts("ids"))), params.required_text("signal")
        number = signal_number(name.strip().upper())
        if number is None:
            raise Refused(
                f"{name!r:.80} is no signal.", "Give one such as USR1, INT or 10; `kill -l` lists them.",
                code="bad-signal",
            )  # fmt: skip
        sent = Sent(number, _name(exchange.peer), self.clock.now(), params.flag("everybody"))

        def act(job: Job) -> Changed:
            if job.waits:
                return job, "waits"
            if job.status is Status.SETTING_UP and not sent.everybody:
                return job, "sets_up"
            return self.queue.change(job, SignalWanted(sent)), "signalled"

        self._change_named(exchange, ids, act)

    def _change_named(self, exchange: Exchange, ids: list[str], act: Callable[[Job], Changed]) -> None:
        peer = exchange.peer
        chosen, missing = select(peer, ids, self.queue.jobs, self.store)
        if len(chosen) > MAX_CHANGED:
            raise Refused(
                f"{len(chosen):,} jobs are too many for one call; {MAX_CHANGED:,} are taken.",
                "Give smaller ranges.",
                code="too-many",
            )
        jobs, damaged = jobs_of(chosen, self.queue.jobs, self.store)
        reply = {"results": self._change(peer, jobs, act), "missing": missing}
        exchange.finish(reply | ({"damaged": damaged} if damaged else {}))

    def _change(
        self, peer: Peer, jobs: Iterable[Job], act: Callable[[Job], Changed]
    ) -> list[dict[str, object]]:
        """In one go: what some of them leave free must not start the others."""
        results = []
        for job in jobs:
            outcome = "ended" if job.status.terminal else "denied"
            if not job.status.terminal and peer.may_change(job.uid):
                job, outcome = act(job)
            results.append({"id": job.id, "name": job.name, "status": job.status.value, "outcome": outcome})
        return results


def _only_ids(call: Call) -> list[str]:
    return _needed(bounded(Params(call.parameters, frozenset(("ids",))).texts("ids")))


def _needed(ids: list[str] | None) -> list[str]:
    if not ids:
        raise Refused("No jobs were named.", "Give ids.", code="no-ids")
    return ids


def _name(peer: Peer) -> str:
    return peer.user or str(peer.uid)
