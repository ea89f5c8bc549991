"""Calls that change jobs, or send them signals. Each tells what became of every job that was meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sysjobs.adjustment import KEYS, Adjustment, parse_adjustment
from sysjobs.conditions import Hold
from sysjobs.errors import Denied, Refused
from sysjobs.events import (
    Adjusted,
    CancelRequested,
    Held,
    LimitChanged,
    Released,
    RequeueRequested,
    SignalWanted,
    TasksCancelled,
    TasksHeld,
    TasksReleased,
)
from sysjobs.indices import Places
from sysjobs.jobs import Cancellation, Job, Sent, Status
from sysjobs.peer import Peer
from sysjobs.ports import Clock
from sysjobs.protocol import Call, Params
from sysjobs.queue import Queue
from sysjobs.resources import parse_duration
from sysjobs.scheduling.explain import refuse_infeasible
from sysjobs.selection import bounded, job_of, jobs_of, refuse_scattered, select
from sysjobs.server import Exchange
from sysjobs.signalnames import signal_number
from sysjobs.store import Store
from sysjobs.tasks import without_turn
from sysjobs.views import short

MAX_CHANGED = 100_000
MAX_ATTEMPTS = 1000

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
            "io.sysjobs.Requeue": self.requeue,
            "io.sysjobs.Signal": self.signal,
            "io.sysjobs.Set": self.set,
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

        def wish(job: Job) -> CancelRequested:
            return CancelRequested(*self._wish(peer, job, reason, seconds))

        def act(job: Job) -> Changed:
            had_begun = job.status.launched
            job = self.queue.change(job, wish(job))
            for task in self.queue.tasks_of(job):
                self.queue.change(task, wish(task))
            job = self.queue.current(job)
            if not job.status.terminal:
                return job, "cancelling"
            return job, "given_up" if had_begun else "cancelled"

        def act_on_tasks(job: Job, places: Places) -> Changed:
            return self.queue.change(job, TasksCancelled(places, wish(job).cancellation)), "cancelled"

        if ids:
            self._change_named(exchange, ids, act, act_on_tasks)
            return
        live = [
            job
            for job in self.queue.jobs.values()
            if (everybodys or job.uid == peer.uid) and not job.status.terminal and job.task is None
        ]
        exchange.finish({"results": self._change(peer, live, act), "missing": []})

    def hold(self, exchange: Exchange, call: Call) -> None:
        ids = _only_ids(call)
        hold = Hold(exchange.peer.uid, _name(exchange.peer))

        def act(job: Job) -> Changed:
            if not job.waits or (job.array is not None and not job.array.unstarted):
                return job, "started"
            return self.queue.change(job, Held(hold)), "held"

        def act_on_tasks(job: Job, places: Places) -> Changed:
            return self.queue.change(job, TasksHeld(places, hold)), "held"

        self._change_named(exchange, ids, act, act_on_tasks)

    def release(self, exchange: Exchange, call: Call) -> None:
        ids = _only_ids(call)
        peer = exchange.peer

        def act(job: Job) -> Changed:
            if job.hold is None and self.queue.waiting.is_stranded(job):
                return self.queue.change(job, Released(from_dependencies=True)), "released"
            if job.hold is not None and job.hold.uid == 0 and not peer.is_root:
                return job, "held_by_root"
            if job.array is not None and job.array.held:
                job, outcome = act_on_tasks(job, job.array.indices.all)
                return self.queue.change(job, Released()), outcome
            if job.hold is None:
                return job, "started" if job.status.launched else "not_held"
            return self.queue.change(job, Released()), "released"

        def act_on_tasks(job: Job, places: Places) -> Changed:
            if job.hold is not None:
                return job, "array_held"
            held = held_of(job, places)
            changed = self.queue.change(job, TasksReleased(places, by_root=peer.is_root))
            if held_of(changed, places) and held_of(changed, places) == held:
                return changed, "held_by_root"
            return changed, "released" if held else "not_held"

        self._change_named(exchange, ids, act, act_on_tasks)

    def set(self, exchange: Exchange, call: Call) -> None:
        params = Params(call.parameters, KEYS)
        ids, wanted, peer = _needed(bounded(params.texts("ids"))), parse_adjustment(params), exchange.peer

        def act(job: Job) -> Changed:
            if wanted.array_limit is not None and job.array is None:
                return job, "no_array"
            runs = job.status.launched and job.array is None
            if job.ending or job.over or (runs and wanted.is_for_waiting):
                return job, "has_begun"
            job = self.queue.change(job, self._adjusted(peer, job, wanted))
            if wanted.array_limit is not None:
                job = self.queue.change(job, LimitChanged(wanted.array_limit or None))
            return job, "set"

        self._change_named(exchange, ids, act, lambda job, places: (job, "part"))

    def _adjusted(self, peer: Peer, job: Job, wanted: Adjustment) -> Adjusted:
        """Raises Refused for what can't be had here."""
        amount, limit = wanted.amount(job.amount), wanted.limit(job)
        priority = job.priority if wanted.priority is None else wanted.priority
        limits = self.queue.waiting.rules.limits
        if wanted.priority is not None:
            limits.refuse_priority(priority, peer.uid)
        if amount != job.amount:
            refuse_infeasible(amount, self.queue.holdings.capacity)
            limits.refuse_amount(amount)
        deadline = None
        if limit is not None and job.started_at is not None:
            began = self.clock.monotonic() - max(self.clock.now() - job.started_at, 0)
            if job.deadline is not None and job.time_limit is not None:
                began = job.deadline - int(job.time_limit * 1_000_000)
            deadline = began + int(limit * 1_000_000)
        return Adjusted(priority, amount, limit, deadline)

    def requeue(self, exchange: Exchange, call: Call) -> None:
        params = Params(call.parameters, frozenset(("ids", "reason", "grace")))
        ids, peer, grace = _needed(bounded(params.texts("ids"))), exchange.peer, params.amount("grace")
        seconds = None if grace is None else parse_duration(grace, "--grace")
        reason = params.reason("reason")

        def act(job: Job) -> Changed:
            if job.array is not None:
                reached = [act(task)[1] for task in self.queue.tasks_of(job)]
                return job, "requeued" if "requeued" in reached else next(iter(reached), "unstarted")
            if job.waits:
                return job, "unstarted"
            if job.attempt >= MAX_ATTEMPTS:
                return job, "too_often"
            if job.cancellation is not None or (job.timed_out and job.requeue is None):
                return job, "ending"
            return self.queue.change(
                job, RequeueRequested(*self._wish(peer, job, reason, seconds))
            ), "requeued"

        self._change_named(exchange, ids, act, lambda job, places: (job, "unstarted"))

    def _wish(self, peer: Peer, job: Job, reason: str, grace: float | None) -> tuple[Cancellation, int]:
        """That a job ends, and when SIGKILL follows."""
        wish = Cancellation(
            uid=peer.uid, user=_name(peer), reason=reason, at=self.clock.now(),
            grace=job.grace if grace is None else grace,
        )  # fmt: skip
        return wish, self.clock.monotonic() + round(wish.grace * 1_000_000)

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
            if job.array is not None:
                reached = [act(task)[1] for task in self.queue.tasks_of(job)]
                return job, "signalled" if "signalled" in reached else next(iter(reached), "waits")
            if job.waits or job.over:
                return job, "waits"
            if job.status is Status.SETTING_UP and not sent.everybody:
                return job, "sets_up"
            return self.queue.change(job, SignalWanted(sent)), "signalled"

        self._change_named(exchange, ids, act, lambda job, places: (job, "waits"))

    def _change_named(
        self,
        exchange: Exchange,
        ids: list[str],
        act: Callable[[Job], Changed],
        act_on_tasks: Callable[[Job, Places], Changed],
    ) -> None:
        """Change jobs by `act`; tasks that had no turn by `act_on_tasks`, which has their array's job."""
        peer = exchange.peer
        selection = select(peer, ids, self.queue, self.store)
        if len(selection.ids) > MAX_CHANGED:
            raise Refused(
                f"{len(selection.ids):,} jobs are too many for one call; {MAX_CHANGED:,} are taken.",
                "Give smaller ranges.",
                code="too-many",
            )
        jobs, damaged = jobs_of(selection.ids, self.queue, self.store) if selection.ids else ([], [])
        results = []
        # Before those that run: what they leave free must not start these.
        for array_id, places in selection.tasks.items():
            results += self._change_tasks(peer, job_of(array_id, self.queue), places, act_on_tasks)
        results += self._change(peer, jobs, act)
        reply = {"results": results, "missing": selection.missing}
        exchange.finish(reply | ({"damaged": damaged} if damaged else {}))

    def _change(
        self, peer: Peer, jobs: Iterable[Job], act: Callable[[Job], Changed]
    ) -> list[dict[str, object]]:
        """In one go: what some of them leave free must not start the others."""
        results = []
        for each in jobs:
            # As it is after what was done to others: an array's end is its tasks'.
            job = self.queue.current(each)
            outcome = "ended" if job.status.terminal else "denied"
            if not job.status.terminal and peer.may_change(job.uid):
                job, outcome = act(job)
            results.append(_result(job, outcome, job.label))
        return results

    def _change_tasks(
        self, peer: Peer, job: Job, places: Places, act: Callable[[Job, Places], Changed]
    ) -> list[dict[str, object]]:
        assert job.array is not None
        unstarted = Places() if job.status.terminal else places & job.array.unstarted
        over = places - unstarted
        results = []
        if unstarted:
            outcome = "denied"
            if peer.may_change(job.uid):
                refuse_scattered(job.array.pieces + len(unstarted.runs))
                job, outcome = act(job, unstarted)
            results.append(_tasks_result(job, outcome, unstarted))
        if over:
            results.append(_tasks_result(job, "ended", over))
        return results


def _result(job: Job, outcome: str, label: str) -> dict[str, object]:
    return {"id": job.id, "label": label, "name": job.name, "status": job.status.value, "outcome": outcome}


def _tasks_result(job: Job, outcome: str, places: Places) -> dict[str, object]:
    assert job.array is not None
    which = short(job.array.indices.some(places))
    label = f"{job.id}_{which}" if len(places) == 1 else f"{job.id}_[{which}]"
    return _result(without_turn(job, places.first), outcome, label)


def held_of(job: Job, places: Places) -> Places:
    """Those of these tasks of an array that somebody holds."""
    return places & (job.array.unstarted - job.array.waiting) if job.array else Places()


def _only_ids(call: Call) -> list[str]:
    return _needed(bounded(Params(call.parameters, frozenset(("ids",))).texts("ids")))


def _needed(ids: list[str] | None) -> list[str]:
    if not ids:
        raise Refused("No jobs were named.", "Give ids.", code="no-ids")
    return ids


def _name(peer: Peer) -> str:
    return peer.user or str(peer.uid)
