"""What is done to jobs that are to end, or have ended: told to, given their grace, killed, let go."""

from __future__ import annotations

from typing import Protocol

from sysjobs.batch import Batch
from sysjobs.engine import Engine, Observation
from sysjobs.events import Event
from sysjobs.jobs import Job
from sysjobs.ports import Clock
from sysjobs.scheduling.holdings import Remains
from sysjobs.timers import RECHECK, Graces, Timers


class Jobs(Protocol):
    """What the queue is for that: the jobs there are, and where changes and effects of this round go."""

    jobs: dict[int, Job]
    timers: Timers
    batch: Batch

    def apply(self, job: Job, event: Event) -> Job: ...
    def observed(self, seen: Observation) -> None: ...
    def give_back(self, job: Job) -> None: ...
    def done(self, job: Job) -> None: ...


class Endings:
    def __init__(self, queue: Jobs, engine: Engine, clock: Clock) -> None:
        self._queue = queue
        self._engine = engine
        self._clock = clock
        self._graces = Graces()
        self._remains: dict[int, Remains] = {}

    def clear(self) -> None:
        self._remains = {}

    def note(self, before: Job, job: Job) -> None:
        """Take in how a job has changed."""
        self._graces.note(before, job, self._clock.monotonic())

    def forget(self, job: Job) -> None:
        self._remains.pop(job.id, None)
        self._graces.discard(job)

    def resume(self) -> None:
        """Take up where nobody was looking."""
        for job_id, remains in self._remains.items():
            remains.releasing = False
            if remains.kill_at is not None:
                self._queue.timers.at(remains.kill_at, job_id)
                self._queue.batch.do(self._engine.await_empty, self._queue.jobs[job_id])

    def settle(self, before: Job, job: Job, seen: Observation) -> None:
        """Give back and let go of what an ended job still has."""
        queue, remains = self._queue, self._remains.setdefault(job.id, Remains())
        if seen.empty:
            queue.give_back(job)
        if not seen.held:
            if seen.empty:
                queue.batch.do(self._engine.clean, job)
                queue.done(job)
            else:
                queue.timers.at(self._clock.monotonic() + RECHECK, job.id)
            return
        if remains.releasing or (not seen.empty and remains.kill_at is not None):
            return
        if not seen.empty and before.kill_at is not None and job.id not in self._graces:
            # It was told to end and so were the processes that it left: they have their grace too.
            remains.kill_at = before.kill_at
            queue.timers.at(before.kill_at, job.id)
            queue.batch.do(self._engine.await_empty, job)
            return
        remains.releasing = True
        queue.batch.do(self._release, job)

    def tend(self, job: Job, now: int) -> None:
        """See to an ended job whose processes or unit are still there."""
        remains = self._remains.get(job.id, Remains())
        if not remains.releasing and remains.kill_at is not None and remains.kill_at <= now:
            remains.releasing = True
            self._queue.batch.do(self._engine.kill, job)
            self._queue.batch.do(self._release, job)
        else:
            self._queue.observed(self._engine.observe(job))

    def terminate(self, job_id: int) -> None:
        """SIGTERM, and the grace from then on."""
        job = self._queue.jobs.get(job_id)
        if job is None or job.kill_at is None:
            return
        self._engine.terminate(job)
        if (late := self._graces.begin(job, self._clock.monotonic())) is not None:
            self._queue.apply(job, late)

    def kill(self, job_id: int) -> None:
        """SIGKILL, and again until its end is seen."""
        job, now = self._queue.jobs.get(job_id), self._clock.monotonic()
        if job is not None and job.kill_at is not None and job.kill_at <= now:
            self._queue.timers.at(now + RECHECK, job_id)
            self._engine.kill(job)
            self._queue.observed(self._engine.observe(job))

    def _release(self, job: Job) -> None:
        seen = self._engine.release(job)
        self._engine.clean(job)
        if seen is not None:
            self._queue.observed(seen)
