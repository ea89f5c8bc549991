"""The queue: where requests and events meet, become changes of jobs, are committed, and only then acted upon.

Nothing is said to a client and nothing is done to a unit before the commit that it follows from. Acting is
idempotent, so that doing it again after a crash is safe. Memory holds the jobs that are not over, or whose
processes or units are still there; all others are on disk alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sysjobs.batch import Batch, Reply
from sysjobs.engine import Engine, Observation, StartFailed, StartPostponed, StartResult, Swept
from sysjobs.events import (
    CancelRequested,
    Ended,
    Event,
    Held,
    Launched,
    Noticed,
    NotStarted,
    Released,
    SignalSent,
    SignalWanted,
    TimeLimitReached,
)
from sysjobs.jobs import Job, Outcome, Reason, Status
from sysjobs.payload import NewJob
from sysjobs.ports import Clock, RowDamaged, Storage, StorageFailed, storage_refusal
from sysjobs.reconcile import events_of, lost_to_reboot
from sysjobs.scheduling.holdings import Holdings, Remains
from sysjobs.scheduling.pool import Capacity
from sysjobs.scheduling.waiting import Waiting
from sysjobs.starts import start
from sysjobs.timers import IDLE, RECHECK, Graces, LastTimers, Timers
from sysjobs.transition import transition
from sysjobs.watchers import Watchers

log = logging.getLogger(__name__)


class Queue:
    """`wake` is called when `flush` has something to do."""

    def __init__(
        self,
        storage: Storage,
        engine: Engine,
        capacity: Capacity,
        clock: Clock,
        wake: Callable[[], None],
        waiting: Waiting,
    ) -> None:
        self.holdings = Holdings(capacity)
        self._storage = storage
        self._engine = engine
        self._clock = clock
        self._wake = wake
        self._timers = Timers()
        self._idle_users = LastTimers()
        self._graces = Graces()
        self.waiting = waiting
        # Jobs that the database has lost, and whose units are there.
        self.strangers: set[int] = set()
        self.online = False
        self.why_offline: Reason | None = None
        self.watchers = Watchers()
        self._reset()

    def _reset(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.waiting.clear()
        self.holdings = Holdings(self.holdings.capacity)
        self._remains: dict[int, Remains] = {}
        self._batch = Batch(self._wake)

    # Requests

    def submit(self, new: NewJob) -> int:
        """Accept a job; its id. It is on disk once the replies given to `after_commit` are called."""
        # Whatever becomes of it, the daemon has a look around.
        self._wake()
        self.waiting.admit(new, self.holdings)
        try:
            job = self._storage.add(new)
        except self._storage.failure as error:
            self._batch.broken = error
            raise storage_refusal(str(error)) from None
        self._remember(job)
        return job.id

    def change(self, job: Job, wish: CancelRequested | Held | Released | SignalWanted) -> Job:
        """The job after somebody's wish."""
        return self._apply(job, wish)

    def after_commit(self, reply: Reply) -> None:
        """Call `reply` once everything so far is on disk, with the error if that failed."""
        self._batch.reply(reply)

    def disconnected(self, why: Reason) -> None:
        """The engine or the database is gone: answer and record, start and end nothing, until `reconcile`."""
        self.online = False
        self.why_offline = why

    # Events

    def load(self) -> None:
        """Read what is unfinished; jobs of an earlier boot have ended with it."""
        self._storage.rollback()
        self._batch.refuse("it is being read again")
        self._reset()
        for job in self._storage.unfinished():
            if isinstance(job, RowDamaged):
                log.error("%s %s", job.message, job.hint)
                continue
            self._remember(job)
            lost = lost_to_reboot(job, self._engine.boot)
            if lost is not None:
                self._forget(self._apply(job, lost))
        # Whether it can be written shows at the next commit.
        self.reserve_ids(0)

    def reserve_ids(self, last: int) -> None:
        """Give new jobs higher ids than this one."""
        try:
            self._storage.reserve(last)
        except self._storage.failure as error:
            self._batch.broken = error
        self._wake()

    def reconcile(self) -> None:
        """Take up where nobody was looking: after a start, a reconnection, a failed commit."""
        self.online = True
        # What was to be done follows again from what is.
        self._batch.effects.clear()
        for job_id, remains in self._remains.items():
            remains.releasing = False
            if remains.kill_at is not None:
                self._timers.at(remains.kill_at, job_id)
                self._batch.do(self._engine.await_empty, self.jobs[job_id])
        self.check()
        self.sweep()
        for job in self.jobs.values():
            self._set_timers(job)
            if job.ending:
                self._batch.when_written(job, self._terminate, job.id)
            elif job.sent is not None and job.sent.due:
                self._batch.when_written(job, self._send, job.id)
        self.tick()

    def check(self, tell: Callable[[Job], None] = lambda job: None) -> None:
        """Compare every job that was launched with what the engine has; `tell` of those that were behind."""
        launched = [job for job in self.jobs.values() if not job.waits]
        found = self._engine.observe_all(launched)
        self.strangers &= {seen.job_id for seen in found}
        for seen in found:
            self.observed(seen)
        for job in launched:
            if (now := self._batch.changed.get(job.id, job)).status is not job.status:
                tell(now)

    def sweep(self, tell: Callable[[Swept], None] = lambda swept: None) -> None:
        """Remove what is left of jobs that are gone, once that is written; `tell` of it."""
        # What a job left is needed until its outcome is on disk, and some may have ended since.
        self._batch.do(lambda: tell(self._engine.sweep(self.jobs.keys() | self._batch.changed.keys())))
        for uid in self._engine.users():
            self._idle_users.at(self._clock.monotonic() + IDLE, uid)

    def observed(self, seen: Observation) -> None:
        """Take in what the engine saw of a job."""
        job = self.jobs.get(seen.job_id) or self._adopt(seen)
        if job is None:
            return
        before = job
        for event in events_of(job, seen, self._clock.now()):
            job = self._apply(job, event)
        if job.status.terminal:
            self._settle(before, job, seen)

    def _adopt(self, seen: Observation) -> Job | None:
        """An ended job whose unit is still there; None for a unit that the database knows nothing of."""
        if seen.job_id in self.strangers:
            return None
        try:
            job = self._storage.get(seen.job_id)
        except RowDamaged as error:
            log.error("%s", error.message)
            job = None
        if job is not None and job.status.terminal:
            self._remember(job)
            return job
        # The database was lost, damaged or put back: no new job may come by this one's unit.
        log.warning("unit of job %d is not accounted for by the database; it is left alone", seen.job_id)
        self.strangers.add(seen.job_id)
        if seen.job_id < 10**15:  # No queue has come to more: somebody else has named it so.
            self.reserve_ids(seen.job_id)
        return None

    def tick(self) -> None:
        """Act on the times that have come."""
        now = self._clock.monotonic()
        for job_id in self._timers.due(now):
            if (job := self.jobs.get(job_id)) is None:
                continue
            if job.status.terminal:
                self._tend(job, now)
            elif job.kill_at is not None and job.kill_at <= now:
                self._batch.when_written(job, self._kill, job_id)
            elif job.deadline is not None and job.deadline <= now:
                self._apply(job, TimeLimitReached(now + int(job.grace * 1_000_000)))
            elif job.notice_at is not None and job.notice_at <= now:
                self._apply(job, Noticed(self._clock.now()))
        if weights := self.holdings.weights.due(now):
            self._batch.do(self._engine.weigh, weights)
        for uid in self._idle_users.due(now):
            if not self.holdings.holds(uid):
                self._batch.do(self._engine.tidy, uid)
        self._wake()

    def next_time(self) -> int | None:
        """When `tick` has something to do, in microseconds of CLOCK_MONOTONIC."""
        weighs = self.holdings.weights.next(self._clock.monotonic())
        times = (self._timers.next(), self._idle_users.next(), self.waiting.next_time(), weighs)
        return min((when for when in times if when is not None), default=None)

    # Changes, commit, actions

    def _apply(self, job: Job, event: Event) -> Job:
        changed = transition(job, event)
        if changed != job:
            self.jobs[job.id] = changed
            self._batch.changed[job.id] = changed
            self._wake()
            self._plan(job, changed)
        return changed

    def _plan(self, job: Job, changed: Job) -> None:
        """What is to be done about a change, mostly once it is on disk."""
        if changed.status is not job.status:
            self.waiting.changed(changed)
        if changed.waits:
            if job.status.launched:
                # It was to be started, and wasn't: back to where it stood.
                self._give_back(job)
            self.waiting.put(changed)
        elif changed.status.launched and not job.status.launched:
            self._batch.do(self._start, changed)
        elif changed.kill_at is not None and job.kill_at is None:
            self._batch.do(self._terminate, job.id)
        elif changed.sent is not None and changed.sent.due:
            self._batch.do(self._send, job.id)
        self._graces.note(job, changed, self._clock.monotonic())
        if changed.status.terminal and not job.status.launched:
            self._forget(changed)
        if (changed.deadline, changed.kill_at) != (job.deadline, job.kill_at):
            self._set_timers(changed)
            self.holdings.note_end(changed)

    def _settle(self, before: Job, job: Job, seen: Observation) -> None:
        """Give back and let go of what an ended job still has."""
        remains = self._remains.setdefault(job.id, Remains())
        if seen.empty:
            self._give_back(job)
        if not seen.held:
            if seen.empty:
                self._forget(job)
                self._batch.do(self._engine.clean, job)
            else:
                self._timers.at(self._clock.monotonic() + RECHECK, job.id)
            return
        if remains.releasing or (not seen.empty and remains.kill_at is not None):
            return
        if not seen.empty and before.kill_at is not None and job.id not in self._graces:
            # It was told to end and so were the processes that it left: they have their grace too.
            remains.kill_at = before.kill_at
            self._timers.at(before.kill_at, job.id)
            self._batch.do(self._engine.await_empty, job)
            return
        remains.releasing = True
        self._batch.do(self._release, job)

    def _tend(self, job: Job, now: int) -> None:
        """See to an ended job whose processes or unit are still there."""
        remains = self._remains.get(job.id, Remains())
        if not remains.releasing and remains.kill_at is not None and remains.kill_at <= now:
            remains.releasing = True
            self._batch.do(self._engine.kill, job)
            self._batch.do(self._release, job)
        else:
            self.observed(self._engine.observe(job))

    def _terminate(self, job_id: int) -> None:
        """SIGTERM, and the grace from then on."""
        job = self.jobs.get(job_id)
        if job is None or job.kill_at is None:
            return
        self._engine.terminate(job)
        if (late := self._graces.begin(job, self._clock.monotonic())) is not None:
            self._apply(job, late)

    def _kill(self, job_id: int) -> None:
        """SIGKILL, and again until its end is seen."""
        job, now = self.jobs.get(job_id), self._clock.monotonic()
        if job is not None and job.kill_at is not None and job.kill_at <= now:
            self._timers.at(now + RECHECK, job_id)
            self._engine.kill(job)
            self.observed(self._engine.observe(job))

    def _send(self, job_id: int) -> None:
        """What somebody wanted sent: again where its record is lost."""
        if (job := self.jobs.get(job_id)) and job.sent and job.sent.due and job.status.launched:
            self._engine.signal(job, job.sent.signal, everybody=job.sent.everybody)
            self._apply(job, SignalSent())

    def _release(self, job: Job) -> None:
        seen = self._engine.release(job)
        self._engine.clean(job)
        if seen is not None:
            self.observed(seen)

    def _start(self, job: Job) -> None:
        current = self.jobs.get(job.id)
        if current is not job:
            if current is not None and current.ending:
                # Cancelled since: it ends without having begun.
                self.observed(self._engine.observe(current))
            return
        try:
            result = start(self._engine, self._storage, job)
        except StartPostponed as error:
            self.waiting.postpone(error.reason)
            self._apply(job, NotStarted())
        except StartFailed as error:
            outcome = Outcome(Status.FAILED_DRIVER, error.reason)
            self._forget(self._apply(job, Ended(self._clock.now(), outcome)))
        else:
            if result is StartResult.EXISTS:
                self.observed(self._engine.observe(job))

    def flush(self) -> None:
        """Start what fits, commit, then answer and act. Raises ConnectionLost, StorageFailed."""
        if self.online:
            for job, event in self.waiting.verdicts(self._look_up):
                self._apply(job, event)
            self._launch()
        batch, self._batch = self._batch, Batch(self._wake)
        try:
            batch.write(self._storage)
        except StorageFailed:
            if self.online:
                batch.act_on_what_was_due()
            raise
        for job in batch.changed.values():
            self.watchers.tell(job)
        if self.online:
            batch.act()

    def _look_up(self, job_id: int) -> Job | None:
        try:
            return self._batch.changed.get(job_id) or self.jobs.get(job_id) or self._storage.get(job_id)
        except RowDamaged:
            return None
        except self._storage.failure as error:
            raise StorageFailed(str(error)) from error

    def _launch(self) -> None:
        # Read before the choice, which counts on it that none of them ends later than by its own clock.
        now, monotonic = self._clock.now(), self._clock.monotonic()
        for job, shares in self.waiting.choose(self.holdings):
            deadline = None if job.time_limit is None else monotonic + int(job.time_limit * 1_000_000)
            shard = self.holdings.place(job.uid)
            launched = Launched(now, self._engine.boot.id, shard, deadline, shares)
            self.holdings.take(self._apply(job, launched))

    def _remember(self, job: Job) -> None:
        self.jobs[job.id] = job
        if job.waits:
            self.waiting.put(job)
        if job.boot_id == self._engine.boot.id:
            self.holdings.take(job)
            self._set_timers(job)

    def _set_timers(self, job: Job) -> None:
        for when in filter(None, (job.notice_at, job.deadline, job.kill_at)):
            self._timers.at(when, job.id)

    def _give_back(self, job: Job) -> None:
        self.holdings.give_back(job)
        # For whoever waits for that.
        self._wake()
        if not self.holdings.holds(job.uid):
            self._idle_users.at(self._clock.monotonic() + IDLE, job.uid)

    def _forget(self, job: Job) -> None:
        self._give_back(job)
        self.jobs.pop(job.id, None)
        self.waiting.discard(job)
        self._remains.pop(job.id, None)
        self._graces.discard(job)
