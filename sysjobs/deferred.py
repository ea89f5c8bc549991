"""Jobs that may not wait for their turn yet, and which to look at: those that something has changed for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from sysjobs.conditions import Dependency, When
from sysjobs.jobs import Eligible, Event, Job, Outcome, Reason, Status, Unmet
from sysjobs.resources import format_duration

LookUp = Callable[[int], Job | None]
"""A job by its id; None if it is gone, or can't be read."""


class Deferred:
    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._counts: Counter[int] = Counter()
        # Who waits for whom, and until when (microseconds since 1970).
        self._behind: defaultdict[int, dict[int, None]] = defaultdict(dict)
        self._begin: list[tuple[int, int]] = []
        self._has_begun: set[int] = set()
        # Those to look at, in order.
        self._touched: dict[int, None] = {}
        self._waits_for: dict[int, Dependency] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def of_user(self, uid: int) -> int:
        return self._counts[uid]

    def put(self, job: Job) -> None:
        """One that is deferred, or was and has changed."""
        if job.id not in self._jobs:
            self._counts[job.uid] += 1
            for dependency in job.conditions.dependencies:
                self._behind[dependency.job_id][job.id] = None
            if job.conditions.begin_at is not None:
                heappush(self._begin, (job.conditions.begin_at, job.id))
        self._jobs[job.id] = job
        self._touched[job.id] = None

    def discard(self, job_id: int) -> None:
        job = self._jobs.pop(job_id, None)
        if job is None:
            return
        self._counts[job.uid] -= 1
        self._touched.pop(job_id, None)
        self._waits_for.pop(job_id, None)
        self._has_begun.discard(job_id)
        for dependency in job.conditions.dependencies:
            behind = self._behind[dependency.job_id]
            behind.pop(job_id, None)
            if not behind:
                del self._behind[dependency.job_id]

    def changed(self, job_id: int) -> None:
        """Whoever waits for this job is to be looked at."""
        self._touched |= self._behind.get(job_id, {})

    def next_begin(self) -> int | None:
        """When the next one may begin, in microseconds since 1970."""
        while self._begin and self._begin[0][1] not in self._jobs:
            heappop(self._begin)
        return self._begin[0][0] if self._begin else None

    def verdicts(self, now: int, look_up: LookUp) -> Iterator[tuple[Job, Event]]:
        """Those that may wait for their turn now, or never may; what comes of that is looked at too."""
        while (begin := self.next_begin()) is not None and begin <= now:
            job_id = heappop(self._begin)[1]
            self._has_begun.add(job_id)
            self._touched[job_id] = None
        while self._touched:
            job = self._jobs[next(iter(self._touched))]
            del self._touched[job.id]
            event = self._verdict(job, now, look_up)
            if event is not None:
                yield job, event

    def _verdict(self, job: Job, now: int, look_up: LookUp) -> Event | None:
        self._waits_for.pop(job.id, None)
        for dependency in job.conditions.dependencies:
            other = look_up(dependency.job_id)
            met = is_met(dependency, other)
            if met is None:
                return Unmet(now, Outcome(Status.CANCELLED, _unmet(dependency, other)))
            if not met:
                self._waits_for.setdefault(job.id, dependency)
        begin_at = job.conditions.begin_at
        if job.hold is not None or job.id in self._waits_for:
            return None
        if begin_at is not None and begin_at > now:
            if job.id in self._has_begun:
                # The clock was set back since.
                self._has_begun.discard(job.id)
                heappush(self._begin, (begin_at, job.id))
            return None
        return Eligible()

    def why(self, job: Job, now: int) -> Reason:
        """What one of them waits for."""
        if job.hold is not None:
            by = "its owner" if job.hold.uid == job.uid else job.hold.user
            return Reason("held", f"Held by {by}; `sysjobs release {job.id}` lets it go on.")
        if (dependency := self._waits_for.get(job.id)) is not None:
            return Reason("dependency", f"Waits for job {dependency.job_id} to {_TO[dependency.when]}.")
        if (begin_at := job.conditions.begin_at) is not None and begin_at > now:
            return Reason("begin", f"Is to begin in {format_duration((begin_at - now) / 1_000_000)}.")
        return Reason("eligible", "Is about to wait for its turn.")


_TO = {
    When.AFTER: "begin",
    When.OK: "succeed",
    When.ANY: "end",
    When.NOT_OK: "fail",
    When.SINGLETON: "end, which has the same name",
}


def is_met(dependency: Dependency, other: Job | None) -> bool | None:
    """None: it never will be."""
    if other is None:
        return None
    ended, good = other.status.terminal, other.status is Status.SUCCEEDED
    match dependency.when:
        case When.AFTER:
            return ended or other.status.launched
        case When.OK:
            return good if good or not ended else None
        case When.NOT_OK:
            return ended if not good else None
    return ended


def _unmet(dependency: Dependency, other: Job | None) -> Reason:
    how = "is gone" if other is None else f"ended as {other.status}"
    text = f"Was to start after job {dependency.job_id} ({dependency.when}), which {how}."
    return Reason("dependency", text)
