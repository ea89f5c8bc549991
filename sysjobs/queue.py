"""The queue: where requests and events meet, become changes of jobs, are committed, and only then acted upon.

Nothing is said to a client and nothing is done to a unit before the commit that it follows from. Acting is
idempotent, so that doing it again after a crash is safe. Memory holds the jobs that are not over, or whose
processes or units are still there; all others are on disk alone.
"""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Callable

from sysjobs.batch import Batch, Reply
from sysjobs.endings import Endings
from sysjobs.engine import Engine, Observation, StartFailed, StartPostponed, StartResult, Swept
from sysjobs.events import (
    Again,
    Ended,
    Event,
    Launched,
    Noticed,
    NotStarted,
    SignalSent,
    TaskEnded,
    TaskLaunched,
    TasksCounted,
    TimeLimitReached,
    Wish,
)
from sysjobs.jobs import Job, Key, Outcome, Reason, Status, Task
from sysjobs.payload import NewJob
from sysjobs.ports import Clock, RowDamaged, Storage, StorageFailed, storage_refusal
from sysjobs.reconcile import events_of, lost_to_reboot
from sysjobs.scheduling.holdings import Holdings
from sysjobs.scheduling.pool import Capacity
from sysjobs.scheduling.waiting import Waiting
from sysjobs.starts import start
from sysjobs.strangers import Strangers
from sysjobs.tasks import LiveTasks, find
from sysjobs.timers import IDLE, LastTimers, Timers
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
        self.timers = Timers()
        self._idle_users = LastTimers()
        self._endings = Endings(self, engine, clock)
        self.waiting = waiting
        self.strangers = Strangers(storage, self.reserve_ids)
        self.online = False
        self.why_offline: Reason | None = None
        self.watchers = Watchers()
        self._reset()

    def _reset(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.waiting.clear()
        self.holdings = Holdings(self.holdings.capacity)
        self._tasks = LiveTasks()
        self._endings.clear()
        self.batch = Batch(self._wake)

    # Requests

    def submit(self, new: NewJob) -> int:
        """Accept a job; its id. It is on disk once the replies given to `after_commit` are called."""
        # Whatever becomes of it, the daemon has a look around.
        self._wake()
        self.waiting.admit(new, self.holdings)
        try:
            job = self._storage.add(new)
        except self._storage.failure as error:
            self.batch.broken = error
            raise storage_refusal(str(error)) from None
        self._remember(job)
        return job.id

    def change(self, job: Job, wish: Wish) -> Job:
        """The job after somebody's wish."""
        return self.apply(self.current(job), wish)

    def current(self, job: Job) -> Job:
        """A job as it is by now."""
        return self.jobs.get(job.id) or self.batch.changed.get(job.id) or job

    def tasks_of(self, array: Job) -> list[Job]:
        """Those that had their turn and haven't ended."""
        return [self.jobs[job_id] for job_id in self._tasks.of(array.id)]

    def after_commit(self, reply: Reply) -> None:
        """Call `reply` once everything so far is on disk, with the error if that failed."""
        self.batch.reply(reply)

    def disconnected(self, why: Reason) -> None:
        """The engine or the database is gone: answer and record, start and end nothing, until `reconcile`."""
        self.online = False
        self.why_offline = why

    # Events

    def load(self) -> None:
        """Read what is unfinished; jobs of an earlier boot have ended with it."""
        self._storage.rollback()
        self.batch.refuse("it is being read again")
        self._reset()
        for job in self._storage.unfinished():
            if isinstance(job, RowDamaged):
                log.error("%s %s", job.message, job.hint)
                continue
            self._remember(job)
        for job in list(self.jobs.values()):
            if job.array is not None:
                live = len(self._tasks.of(job.id))
                self.apply(job, TasksCounted(self._clock.now(), live))
            elif (lost := lost_to_reboot(job, self._engine.boot)) is not None:
                self.done(self.apply(job, lost))
        # Whether it can be written shows at the next commit.
        self.reserve_ids(0)

    def reserve_ids(self, last: int) -> None:
        """Give new jobs higher ids than this one."""
        try:
            self._storage.reserve(last)
        except self._storage.failure as error:
            self.batch.broken = error
        self._wake()

    def reconcile(self) -> None:
        """Take up where nobody was looking: after a start, a reconnection, a failed commit."""
        self.online = True
        # What was to be done follows again from what is.
        self.batch.effects.clear()
        self._endings.resume()
        self.check()
        self.sweep()
        for job in self.jobs.values():
            self._set_timers(job)
            if job.ending:
                self.batch.when_written(job, self._endings.terminate, job.id)
            elif job.sent is not None and job.sent.due:
                self.batch.when_written(job, self._send, job.id)
        self.tick()

    def check(self, tell: Callable[[Job], None] = lambda job: None) -> None:
        """Compare every job that was launched with what the engine has; `tell` of those that were behind."""
        launched = [job for job in self.jobs.values() if not job.waits and job.array is None]
        found = self._engine.observe_all(launched)
        self.strangers.keep({seen.job_id for seen in found})
        for seen in found:
            self.observed(seen)
        for job in launched:
            if (now := self.batch.changed.get(job.id, job)).status is not job.status:
                tell(now)

    def sweep(self, tell: Callable[[Swept], None] = lambda swept: None) -> None:
        """Remove what is left of jobs that are gone, once that is written; `tell` of it."""
        # What a job left is needed until its outcome is on disk, and some may have ended since.
        self.batch.do(lambda: tell(self._engine.sweep(self.jobs.keys() | self.batch.changed.keys())))
        for uid in self._engine.users():
            self._idle_users.at(self._clock.monotonic() + IDLE, uid)

    def observed(self, seen: Observation) -> None:
        """Take in what the engine saw of a job."""
        job = self.jobs.get(seen.job_id)
        if job is None and (job := self.strangers.adopt(seen.job_id)) is not None:
            self._remember(job)
        if job is None or job.array is not None:
            return
        before = job
        for event in events_of(job, seen, self._clock.now()):
            job = self.apply(job, event)
        if job.status.terminal or job.over:
            self._endings.settle(before, job, seen)

    def tick(self) -> None:
        """Act on the times that have come."""
        now = self._clock.monotonic()
        for job_id in self.timers.due(now):
            if (job := self.jobs.get(job_id)) is None:
                continue
            if job.status.terminal or job.over:
                self._endings.tend(job, now)
            elif job.kill_at is not None and job.kill_at <= now:
                self.batch.when_written(job, self._endings.kill, job_id)
            elif job.deadline is not None and job.deadline <= now:
                self.apply(job, TimeLimitReached(now + int(job.grace * 1_000_000)))
            elif job.notice_at is not None and job.notice_at <= now:
                self.apply(job, Noticed(self._clock.now()))
        if weights := self.holdings.weights.due(now):
            self.batch.do(self._engine.weigh, weights)
        for uid in self._idle_users.due(now):
            if not self.holdings.holds(uid):
                self.batch.do(self._engine.tidy, uid)
        self._wake()

    def next_time(self) -> int | None:
        """When `tick` has something to do, in microseconds of CLOCK_MONOTONIC."""
        weighs = self.holdings.weights.next(self._clock.monotonic())
        times = (self.timers.next(), self._idle_users.next(), self.waiting.next_time(), weighs)
        return min((when for when in times if when is not None), default=None)

    # Changes, commit, actions

    def apply(self, job: Job, event: Event) -> Job:
        changed = transition(job, event)
        if changed != job:
            self.jobs[job.id] = changed
            self.batch.changed[job.id] = changed
            self._wake()
            self._plan(job, changed)
        return changed

    def _plan(self, job: Job, changed: Job) -> None:
        """What is to be done about a change, mostly once it is on disk."""
        if changed.status is not job.status:
            self.waiting.changed(changed)
        if changed.array is not None:
            self._plan_array(job, changed)
            return
        if changed.task is not None and changed.status.terminal:
            self._task_ended(changed, changed.task)
        if changed.waits:
            if job.status.launched:
                # It was to be started, and wasn't: back to where it stood.
                self.give_back(job)
            self.waiting.put(changed)
        elif changed.status.launched and not job.status.launched:
            self.batch.do(self._start, changed)
        elif changed.kill_at is not None and job.kill_at is None:
            self.batch.do(self._endings.terminate, job.id)
        elif changed.sent is not None and changed.sent.due:
            self.batch.do(self._send, job.id)
        self._endings.note(job, changed)
        if changed.status.terminal and not job.status.launched:
            self._forget(changed)
        if (changed.deadline, changed.kill_at) != (job.deadline, job.kill_at):
            self._set_timers(changed)
            self.holdings.note_end(changed)

    def _plan_array(self, job: Job, changed: Job) -> None:
        """It has no unit: there is nothing to do but to wait, or to be over."""
        assert job.array is not None
        assert changed.array is not None
        if len(changed.array.cancelled) > len(job.array.cancelled) or changed.status.terminal:
            self.waiting.given_up(changed)
        if changed.status.terminal:
            self._forget(changed)
        elif changed.waits:
            self.waiting.put(changed)
        else:
            self.waiting.discard(changed)

    def _task_ended(self, job: Job, task: Task) -> None:
        self._tasks.discard(job)
        if (array := self.jobs.get(task.array_id)) is not None:
            assert job.ended_at is not None
            self.apply(array, TaskEnded(job.ended_at, job.status))

    def _send(self, job_id: int) -> None:
        """What somebody wanted sent: again where its record is lost."""
        if (job := self.jobs.get(job_id)) and job.sent and job.sent.due and job.status.launched:
            self._engine.signal(job, job.sent.signal, everybody=job.sent.everybody)
            self.apply(job, SignalSent())

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
            self.apply(job, NotStarted())
        except StartFailed as error:
            outcome = Outcome(Status.FAILED_DRIVER, error.reason)
            self.done(self.apply(job, Ended(self._clock.now(), outcome)))
        else:
            if result is StartResult.EXISTS:
                self.observed(self._engine.observe(job))

    def flush(self) -> None:
        """Start what fits, commit, then answer and act. Raises ConnectionLost, StorageFailed."""
        if self.online:
            for job, event in self.waiting.verdicts(self._look_up):
                self.apply(job, event)
            self._launch()
        batch, self.batch = self.batch, Batch(self._wake)
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

    def find(self, key: Key) -> Job | None:
        """A job as it is by now; None if there is none. Raises RowDamaged, or what the database raises."""
        return find(key, ChainMap(self.batch.changed, self.jobs), self._tasks, self._storage)

    def _look_up(self, key: Key) -> Job | None:
        try:
            return self.find(key)
        except RowDamaged:
            return None
        except self._storage.failure as error:
            raise StorageFailed(str(error)) from error

    def _launch(self) -> None:
        # Read before the choice, which counts on it that none of them ends later than by its own clock.
        now, monotonic = self._clock.now(), self._clock.monotonic()
        for chosen, shares in self.waiting.choose(self.holdings):
            job = chosen if chosen.array is None else self._take_task(chosen.id, now)
            if job is None:
                return
            deadline = None if job.time_limit is None else monotonic + int(job.time_limit * 1_000_000)
            shard = self.holdings.place(job.uid)
            launched = Launched(now, self._engine.boot.id, shard, deadline, shares)
            self.holdings.take(self.apply(job, launched))

    def _take_task(self, array_id: int, now: int) -> Job | None:
        """The array's next task, from now on a job of its own; None if the database can't take it."""
        job = self.jobs[array_id]
        assert job.array is not None
        index = job.array.indices.at(job.array.waiting.first)
        try:
            task = self._storage.add_task(job, index)
        except self._storage.failure as error:
            self.batch.broken = error
            return None
        self.apply(job, TaskLaunched(now, self._engine.boot.id))
        self.jobs[task.id] = task
        self._tasks.add(task)
        return task

    def _remember(self, job: Job) -> None:
        self.jobs[job.id] = job
        if not job.status.terminal:
            self._tasks.add(job)
        if job.array is not None:
            if job.waits:
                self.waiting.put(job)
            return
        if job.waits:
            self.waiting.put(job)
        if job.boot_id == self._engine.boot.id:
            self.holdings.take(job)
            self._set_timers(job)

    def _set_timers(self, job: Job) -> None:
        for when in filter(None, (job.notice_at, job.deadline, job.kill_at)):
            self.timers.at(when, job.id)

    def give_back(self, job: Job) -> None:
        self.holdings.give_back(job)
        # For whoever waits for that.
        self._wake()
        if not self.holdings.holds(job.uid):
            self._idle_users.at(self._clock.monotonic() + IDLE, job.uid)

    def done(self, job: Job) -> None:
        """Nothing is left of an attempt that has ended: another one follows, or none."""
        if job.over:
            self._endings.forget(job)
            job = self.apply(job, Again(self._clock.now()))
        if job.status.terminal:
            self._forget(job)

    def _forget(self, job: Job) -> None:
        self.give_back(job)
        self.jobs.pop(job.id, None)
        self.waiting.discard(job)
        self._tasks.discard(job)
        self._endings.forget(job)
