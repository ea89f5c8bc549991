"""The queue: where requests and events meet, become changes of jobs, are committed, and only then acted upon.

Nothing is said to a client and nothing is done to a unit before the commit that it follows from. Acting is
idempotent, so that doing it again after a crash is safe. Memory holds the jobs that are not over, or whose
processes or units are still there; all others are on disk alone.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from sysjobs import scheduler
from sysjobs.engine import Engine, Observation, StartFailed, StartResult
from sysjobs.errors import Refused, SysjobsError, Unavailable
from sysjobs.jobs import (
    Cancellation,
    CancelRequested,
    Ended,
    Event,
    Job,
    Launched,
    Outcome,
    Status,
    TimeLimitReached,
    transition,
)
from sysjobs.payload import NewJob, Payload
from sysjobs.reconcile import events_of, lost_to_reboot
from sysjobs.resources import Amount, format_cpus, format_memory
from sysjobs.timers import Timers

log = logging.getLogger(__name__)

STARTS_AT_ONCE = 16
"""Units asked for between two looks at the sockets: each takes PID 1 one or two milliseconds."""

SHARD_SIZE = 100
RECHECK = 1_000_000
"""Microseconds until a unit is looked at whose fate a call left open."""

Reply = Callable[[SysjobsError | None], None]
Watcher = Callable[[Job], None]


class Storage(Protocol):
    """What the queue asks of a database. Writes are kept back until `commit`."""

    @property
    def failure(self) -> type[Exception]:
        """What reads and writes raise when the database can't be used."""

    def add(self, new: NewJob) -> Job: ...
    def save(self, job: Job) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def get(self, job_id: int) -> Job | None: ...
    def payload(self, job_id: int) -> Payload: ...
    def find_key(self, uid: int, key: str) -> int | None: ...
    def unfinished(self) -> Iterator[Job]: ...


class Clock(Protocol):
    def now(self) -> int:
        """Microseconds since 1970."""

    def monotonic(self) -> int:
        """Microseconds of CLOCK_MONOTONIC."""


@dataclass(slots=True)
class _Remains:
    """What an ended job still has: whether its unit was let go, and when its last processes are killed."""

    releasing: bool = False
    kill_at: int | None = None


class Queue:
    """`wake` is called when `flush` has something to do."""

    def __init__(
        self, storage: Storage, engine: Engine, capacity: Amount, clock: Clock, wake: Callable[[], None]
    ) -> None:
        self.capacity = capacity
        self._storage = storage
        self._engine = engine
        self._clock = clock
        self._wake = wake
        self._timers = Timers()
        self.online = False
        self._watchers: dict[int, list[Watcher]] = {}
        self._replies: list[Reply] = []
        self._reset()

    def _reset(self) -> None:
        self.jobs: dict[int, Job] = {}
        self._pending: dict[int, None] = {}
        self._used: dict[int, Amount] = {}
        self._free = self.capacity
        self._remains: dict[int, _Remains] = {}
        self._shards: dict[int, list[int]] = {}
        self._dirty: dict[int, Job] = {}
        self._effects: list[Callable[[], None]] = []
        self._broken: Exception | None = None

    # Requests

    def submit(self, new: NewJob) -> int:
        """Accept a job; its id. It is on disk once the replies given to `after_commit` are called."""
        if new.key is not None and (known := self._storage.find_key(new.uid, new.key)) is not None:
            return known
        self._refuse_infeasible(new.amount)
        try:
            job = self._storage.add(new)
        except self._storage.failure as error:
            self._broken = error
            self._wake()
            raise _refusal(error) from None
        self._remember(job)
        self._touch(job)
        return job.id

    def _refuse_infeasible(self, amount: Amount) -> None:
        have = self.capacity
        for asked, total, option, text in (
            (amount.cpus, have.cpus, "--cpus", format_cpus), (amount.memory, have.memory, "--memory", format_memory)
        ):  # fmt: skip
            if asked > total:
                raise Refused(
                    f"{option} {text(asked)} is more than this node has.",
                    f"It has {scheduler.describe(have)}; ask for no more than that.",
                    code="infeasible",
                )

    def cancel(self, job: Job, cancellation: Cancellation) -> Job:
        """The job after somebody's wish that it ends."""
        kill_at = self._clock.monotonic() + int(cancellation.grace * 1_000_000)
        return self._apply(job, CancelRequested(cancellation, kill_at))

    def after_commit(self, reply: Reply) -> None:
        """Call `reply` once everything so far is on disk, with the error if that failed."""
        self._replies.append(reply)
        self._wake()

    def watch(self, job_id: int, watcher: Watcher) -> Callable[[], None]:
        """Have every committed change of a job told to `watcher`, until the returned function is called."""
        watchers = self._watchers.setdefault(job_id, [])
        watchers.append(watcher)

        def stop() -> None:
            watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(job_id, None)

        return stop

    def why_waiting(self, job: Job) -> str:
        head = self.jobs[next(iter(self._pending), job.id)]
        return scheduler.why_waiting(job, head, self._free, self.capacity)

    def set_capacity(self, capacity: Amount) -> None:
        self._free += capacity - self.capacity
        self.capacity = capacity
        self._wake()

    def disconnected(self) -> None:
        """The engine is gone: answer and record, start and end nothing, until `reconcile`."""
        self.online = False

    def counts(self) -> tuple[int, int]:
        """How many jobs run, and how many wait."""
        return len(self._used), len(self._pending)

    # Events

    def load(self) -> None:
        """Read what is unfinished; jobs of an earlier boot have ended with it."""
        self._reset()
        for job in self._storage.unfinished():
            self._remember(job)
            lost = lost_to_reboot(job, self._engine.boot_id, self._engine.booted_at)
            if lost is not None:
                self._forget(self._apply(job, lost))

    def reconcile(self) -> None:
        """Compare everything with what the engine has: after a start, a reconnection, a failed commit."""
        self.online = True
        # What was to be done follows again from what is.
        self._effects.clear()
        self._remains.clear()
        started = [job for job in self.jobs.values() if not job.status.terminal and job.status.launched]
        ended = [job for job in self.jobs.values() if job.status.terminal]
        for seen in self._engine.observe_all(started + ended):
            self.observed(seen)
        for job in started:
            current = self.jobs.get(job.id)
            if current is not None and current.ending and current.status.launched:
                self._effects.append(functools.partial(self._engine.terminate, current))
        self._wake()

    def observed(self, seen: Observation) -> None:
        """Take in what the engine saw of a job."""
        job = self.jobs.get(seen.job_id) or self._adopt(seen)
        if job is None:
            return
        before = job
        for event in events_of(job, seen, self._clock.now()):
            job = self._apply(job, event)
        if job.status is Status.PENDING and before.status.launched:
            self._give_back(before)
            self._pending = {job.id: None, **self._pending}
        if job.status.terminal:
            self._settle(before, job, seen)

    def _adopt(self, seen: Observation) -> Job | None:
        """An ended job whose unit is still there; None for a unit that the database knows nothing of."""
        job = self._storage.get(seen.job_id)
        if job is None or not job.status.terminal:
            log.warning("unit of job %d is not accounted for by the database; it is left alone", seen.job_id)
            return None
        self._remember(job)
        return job

    def tick(self) -> None:
        """Act on the times that have come."""
        now = self._clock.monotonic()
        for job_id in self._timers.due(now):
            job = self.jobs.get(job_id)
            if job is None:
                continue
            if job.status.terminal:
                self._tend(job, now)
            elif job.kill_at is not None and job.kill_at <= now:
                self._effects.append(functools.partial(self._kill, job_id))
            elif job.deadline is not None and job.deadline <= now:
                self._apply(job, TimeLimitReached(now + int(job.grace * 1_000_000)))
            elif job.status.launched and job.invocation_id is None:
                self.observed(self._engine.observe(job))
        self._wake()

    def next_time(self) -> int | None:
        """When `tick` has something to do, in microseconds of CLOCK_MONOTONIC."""
        return self._timers.next()

    # Changes, commit, actions

    def _apply(self, job: Job, event: Event) -> Job:
        changed = transition(job, event)
        if changed is not job:
            self.jobs[job.id] = changed
            self._touch(changed)
            self._plan(job, changed)
        return changed

    def _touch(self, job: Job) -> None:
        self._dirty[job.id] = job
        self._wake()

    def _plan(self, job: Job, changed: Job) -> None:
        """What is to be done about a change once it is on disk."""
        if changed.status.launched and not job.status.launched:
            self._effects.append(functools.partial(self._start, changed))
        elif changed.kill_at is not None and job.kill_at is None:
            self._effects.append(functools.partial(self._engine.terminate, changed))
        if changed.status.terminal and not job.status.launched:
            self._forget(changed)
        for when in (changed.deadline, changed.kill_at):
            if when is not None and when not in (job.deadline, job.kill_at):
                self._timers.at(when, changed.id)

    def _settle(self, before: Job, job: Job, seen: Observation) -> None:
        """Give back and let go of what an ended job still has."""
        remains = self._remains.setdefault(job.id, _Remains())
        if seen.empty:
            self._give_back(job)
        if not seen.held:
            if seen.empty:
                self._forget(job)
            else:
                self._timers.at(self._clock.monotonic() + RECHECK, job.id)
            return
        if remains.releasing:
            return
        if not seen.empty and remains.kill_at is not None:
            return
        if not seen.empty and before.kill_at is not None:
            # It was told to end and so were the processes that it left: they have their grace too.
            remains.kill_at = before.kill_at
            self._timers.at(before.kill_at, job.id)
            self._effects.append(functools.partial(self._engine.await_empty, job))
            return
        remains.releasing = True
        self._effects.append(functools.partial(self._release, job))

    def _tend(self, job: Job, now: int) -> None:
        """See to an ended job whose processes or unit are still there."""
        remains = self._remains.get(job.id)
        if (
            remains is not None
            and not remains.releasing
            and remains.kill_at is not None
            and remains.kill_at <= now
        ):
            remains.releasing = True
            self._effects.append(functools.partial(self._engine.kill, job))
            self._effects.append(functools.partial(self._release, job))
        else:
            self.observed(self._engine.observe(job))

    def _kill(self, job_id: int) -> None:
        """SIGKILL, and again until its end is seen."""
        job = self.jobs.get(job_id)
        if job is not None and job.status.launched:
            self._engine.kill(job)
            self.observed(self._engine.observe(job))
            self._timers.at(self._clock.monotonic() + RECHECK, job_id)

    def _release(self, job: Job) -> None:
        self._engine.release(job)
        self._engine.clean(job)

    def _start(self, job: Job) -> None:
        current = self.jobs.get(job.id)
        if current is not job:
            if current is not None and current.ending:
                # Cancelled since: it ends without having begun.
                self.observed(self._engine.observe(current))
            return
        try:
            result = self._engine.start(job, self._storage.payload(job.id))
        except StartFailed as error:
            self._give_back(job)
            ended = self._apply(job, Ended(self._clock.now(), Outcome(Status.FAILED_DRIVER, error.reason)))
            self._forget(ended)
            return
        if result is StartResult.UNKNOWN:
            self._timers.at(self._clock.monotonic() + RECHECK, job.id)

    def flush(self) -> None:
        """Start what fits, commit, then answer and act. Raises ConnectionLost, StorageFailed."""
        if self.online:
            self._launch()
        dirty, self._dirty = self._dirty, {}
        effects, self._effects = self._effects, []
        replies, self._replies = self._replies, []
        try:
            if self._broken is not None:
                raise self._broken
            for job in dirty.values():
                self._storage.save(job)
            self._storage.commit()
        except self._storage.failure as error:
            self._fail(error, replies)
            return
        for reply in replies:
            reply(None)
        for job in dirty.values():
            for watcher in list(self._watchers.get(job.id, ())):
                watcher(job)
        if self.online:
            for effect in effects:
                self._act(effect)

    def _act(self, effect: Callable[[], None]) -> None:
        try:
            effect()
        except ConnectionLost:
            raise
        except Exception:
            # Whatever is wrong with one job stays with it.
            log.exception("an action failed: %s", effect)

    def _fail(self, error: Exception, replies: list[Reply]) -> None:
        """Nothing since the last commit has happened: forget it, and look again at what is."""
        log.error("the database can't be written: %s", error)
        self._storage.rollback()
        for reply in replies:
            reply(_refusal(error))
        raise StorageFailed from error

    def _launch(self) -> None:
        chosen = scheduler.choose((self.jobs[job_id] for job_id in self._pending), self._free, STARTS_AT_ONCE)
        now, monotonic = self._clock.now(), self._clock.monotonic()
        for job in chosen:
            del self._pending[job.id]
            self._take(job)
            deadline = None if job.time_limit is None else monotonic + int(job.time_limit * 1_000_000)
            self._apply(job, Launched(now, self._engine.boot_id, self._shard(job.uid), deadline))
        if chosen:
            self._wake()

    # What jobs hold

    def _remember(self, job: Job) -> None:
        self.jobs[job.id] = job
        if job.status is Status.PENDING:
            self._pending[job.id] = None
        elif job.shard is not None and job.boot_id == self._engine.boot_id:
            self._take(job)
            self._shard_counts(job.uid, job.shard)[job.shard] += 1
        for when in (job.deadline, job.kill_at):
            if when is not None and job.boot_id == self._engine.boot_id:
                self._timers.at(when, job.id)

    def _take(self, job: Job) -> None:
        if job.id not in self._used:
            self._used[job.id] = job.amount
            self._free -= job.amount

    def _give_back(self, job: Job) -> None:
        amount = self._used.pop(job.id, None)
        if amount is not None:
            self._free += amount
            if job.shard is not None:
                self._shards[job.uid][job.shard] -= 1

    def _shard_counts(self, uid: int, shard: int) -> list[int]:
        counts = self._shards.setdefault(uid, [])
        counts.extend([0] * (shard + 1 - len(counts)))
        return counts

    def _shard(self, uid: int) -> int:
        """The user's first slice that isn't full; one more unit is counted in it."""
        counts = self._shard_counts(uid, 0)
        shard = next((number for number, count in enumerate(counts) if count < SHARD_SIZE), len(counts))
        self._shard_counts(uid, shard)[shard] += 1
        return shard

    def _forget(self, job: Job) -> None:
        self._give_back(job)
        self.jobs.pop(job.id, None)
        self._pending.pop(job.id, None)
        self._remains.pop(job.id, None)


def _refusal(error: Exception) -> Unavailable:
    return Unavailable(
        f"The queue's database can't be written: {error}.",
        "See that its file system has room and is writable; `journalctl -u sysjobsd` has more.",
        code="storage",
    )


class StorageFailed(Exception):
    """The commit failed. `load` and `reconcile` follow."""
