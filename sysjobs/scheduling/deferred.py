"""Jobs that may not wait for their turn yet, and which to look at: those that something has changed for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from sysjobs.conditions import Dependency, When
from sysjobs.events import Eligible, Event, Unmet
from sysjobs.jobs import Job, Key, Outcome, Reason, Status
from sysjobs.ports import StorageFailed
from sysjobs.resources import format_duration

LookUp = Callable[[Key], Job | None]
"""A job by its key; None: it is gone, or its record is damaged. Raises StorageFailed: nobody knows yet."""


_SLACK = 1000
"""Moments of jobs that are gone and are kept in memory."""


class Deferred:
    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._counts: Counter[int] = Counter()
        # What of its dependencies each still waits for, and so who waits for whom.
        self._open: dict[int, dict[Dependency, None]] = {}
        self._behind: defaultdict[Key, dict[int, None]] = defaultdict(dict)
        # Until when they wait (microseconds since 1970).
        self._begin: list[tuple[int, int]] = []
        self._has_begun: set[int] = set()
        # Those that are kept though something that was to come before them never can, and what.
        self._stranded: dict[int, Reason] = {}
        # Those to look at, and of each the dependencies for which something has changed.
        self._touched: dict[int, dict[Dependency, None]] = {}
        # The same, of others that couldn't be read: to be looked at the next time.
        self._unread: dict[int, dict[Dependency, None]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def get(self, job_id: int) -> Job | None:
        return self._jobs.get(job_id)

    def of_user(self, uid: int) -> int:
        return self._counts[uid]

    def put(self, job: Job) -> None:
        """One that is deferred, or was and has changed."""
        if (known := self._jobs.get(job.id)) is not None and known.conditions != job.conditions:
            self.discard(job.id)
        if job.id not in self._jobs:
            self._counts[job.uid] += 1
            self._open[job.id] = {}
            for dependency in job.conditions.dependencies:
                self._wait_for(job.id, dependency)
            if job.conditions.begin_at is not None:
                heappush(self._begin, (job.conditions.begin_at, job.id))
        self._jobs[job.id] = job
        self._touched.setdefault(job.id, {})

    def _wait_for(self, job_id: int, dependency: Dependency) -> None:
        self._open[job_id][dependency] = None
        self._behind[dependency.on][job_id] = None
        self._touched.setdefault(job_id, {})[dependency] = None

    def discard(self, job_id: int) -> None:
        job = self._jobs.pop(job_id, None)
        if job is None:
            return
        self._counts[job.uid] -= 1
        self._touched.pop(job_id, None)
        self._unread.pop(job_id, None)
        self._stranded.pop(job_id, None)
        self._has_begun.discard(job_id)
        for dependency in self._open.pop(job_id):
            self._leave(job_id, dependency.on)
        if len(self._begin) > 2 * len(self._jobs) + _SLACK:
            self._begin = sorted({entry for entry in self._begin if entry[1] in self._jobs})

    def _leave(self, job_id: int, other: Key) -> None:
        """Have a job wait for another one no more."""
        behind = self._behind[other]
        behind.pop(job_id, None)
        if not behind:
            del self._behind[other]

    def changed(self, key: Key) -> None:
        """Whoever waits for this job is to be looked at."""
        for behind in self._behind.get(key, ()):
            self._touched.setdefault(behind, {}).update(self._open_on(behind, key))

    def given_up(self, array_id: int) -> None:
        """Whoever waits for single tasks of this array is to be looked at."""
        for key in [key for key in self._behind if isinstance(key, tuple) and key[0] == array_id]:
            self.changed(key)

    def _open_on(self, job_id: int, key: Key) -> dict[Dependency, None]:
        on = key if isinstance(key, tuple) else (key, None)
        return {each: None for when in When if (each := Dependency(when, *on)) in self._open[job_id]}

    def is_stranded(self, job_id: int) -> bool:
        return job_id in self._stranded

    def next_begin(self) -> int | None:
        """When the next one may begin, in microseconds since 1970."""
        while self._begin and self._begin[0][1] not in self._jobs:
            heappop(self._begin)
        return self._begin[0][0] if self._begin else None

    def verdicts(self, now: int, look_up: LookUp, *, keep: bool = False) -> Iterator[tuple[Job, Event]]:
        """Those that may wait for their turn now, or never may; what comes of that is looked at too.

        With `keep` those that never may stay as they are.
        """
        while (begin := self.next_begin()) is not None and begin <= now:
            job_id = heappop(self._begin)[1]
            self._has_begun.add(job_id)
            self._touched.setdefault(job_id, {})
        for job_id, dependencies in self._unread.items():
            self._touched.setdefault(job_id, {}).update(dependencies)
        self._unread.clear()
        ended: dict[Key, Job] = {}

        def look_up_once(key: Key) -> Job | None:
            """Many may wait for one; what has ended stays as it is."""
            if (other := ended.get(key) or look_up(key)) is not None and other.status.terminal:
                ended[key] = other
            return other

        while self._touched:
            # Not the first, which a dict finds by going over all that were there before it.
            job_id, _ = next_one = self._touched.popitem()
            event: Event | None = self._unmet(*next_one, now, look_up_once)
            if keep and isinstance(event, Unmet) and event.outcome.reason is not None:
                self._stranded[job_id] = event.outcome.reason
                continue
            event = event or self._verdict(self._jobs[job_id], now)
            if event is not None:
                yield self._jobs[job_id], event

    def _unmet(
        self, job_id: int, dependencies: dict[Dependency, None], now: int, look_up: LookUp
    ) -> Event | None:
        """Take in how it is about these; the end of a job for which one can never be met."""
        looking = list(dependencies)
        for dependency in looking:
            try:
                other = look_up(dependency.on)
            except StorageFailed:
                self._unread.setdefault(job_id, {})[dependency] = None
                continue
            met = is_met(dependency, other)
            if met is None or other is None:
                return Unmet(now, Outcome(Status.CANCELLED, _unmet(dependency, other)))
            if not met:
                continue
            self._open[job_id].pop(dependency, None)
            if not self._open_on(job_id, dependency.on):
                self._leave(job_id, dependency.on)
            if dependency.when is When.SINGLETON and other.started_at is None:
                # It stood for those before it, some of which may not have ended.
                before = [each for each in other.conditions.dependencies if each.when is When.SINGLETON]
                for each in before:
                    self._wait_for(job_id, each)
                looking += before
                self._touched.pop(job_id, None)
        return None

    def _verdict(self, job: Job, now: int) -> Event | None:
        begin_at = job.conditions.begin_at
        if job.hold is not None or self._open[job.id]:
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
            who = "root's " if job.hold.uid == 0 else ""
            return Reason("held", f"Held by {by}; {who}`sysjobs release {job.label}` lets it go on.")
        if (never := self._stranded.get(job.id)) is not None:
            text = f"{never.text} `sysjobs release {job.id}` lets it start all the same."
            return Reason("unmet-dependency", text)
        if (dependency := next(iter(self._open.get(job.id, ())), None)) is not None:
            return Reason("dependency", f"Waits for job {dependency.label} to {_TO[dependency.when]}.")
        if (begin_at := job.conditions.begin_at) is not None and begin_at > now:
            soon = format_duration((begin_at - now) / 1_000_000)
            if not job.past:
                return Reason("begin", f"Is to begin in {soon}.")
            last = job.past[-1]
            said = f": {last.reason.text}" if last.reason else "."
            return Reason(
                "retry", f"Begins again in {soon}; attempt {last.number} ended as {last.status}{said}"
            )
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
    how = "is gone, or can't be read" if other is None else f"ended as {other.status}"
    text = f"Was to start after job {dependency.label} ({dependency.when}), which {how}."
    return Reason("dependency", text)
