"""Who wants to be told of which job's changes."""

from __future__ import annotations

from collections.abc import Callable

from sysjobs.jobs import Job, Key
from sysjobs.tasks import given_up

Watcher = Callable[[Job], None]


class Watchers:
    def __init__(self) -> None:
        self._by_job: dict[Key, list[Watcher]] = {}
        # The tasks that are watched of each array, and how often some had been given up by the last look.
        self._tasks: dict[int, dict[int, None]] = {}
        self._told: dict[int, int] = {}

    def add(self, key: Key, watcher: Watcher) -> Callable[[], None]:
        """Have every committed change of a job told to `watcher`, until the returned function is called."""
        watchers = self._by_job.setdefault(key, [])
        watchers.append(watcher)
        if isinstance(key, tuple):
            self._tasks.setdefault(key[0], {})[key[1]] = None

        def stop() -> None:
            watchers.remove(watcher)
            if not watchers and self._by_job.get(key) is watchers:
                del self._by_job[key]
                self._forget(key)

        return stop

    def _forget(self, key: Key) -> None:
        if isinstance(key, tuple) and (tasks := self._tasks.get(key[0])) is not None:
            tasks.pop(key[1], None)
            if not tasks:
                del self._tasks[key[0]]
                self._told.pop(key[0], None)

    def tell(self, job: Job) -> None:
        """A job has changed; with an array, so may have tasks that have no turn."""
        for each in (job, *self._given_up(job)):
            for watcher in list(self._by_job.get(each.key, ())):
                watcher(each)

    def _given_up(self, job: Job) -> list[Job]:
        """Those of an array's watched tasks that are over, where more were given up since the last look."""
        if job.array is None or job.id not in self._tasks:
            return []
        times = len(job.array.cancelled) + job.status.terminal
        if self._told.get(job.id) == times:
            return []
        self._told[job.id] = times
        return given_up(job, self._tasks[job.id])
