"""Who wants to be told of which job's changes."""

from __future__ import annotations

from collections.abc import Callable

from sysjobs.jobs import Job

Watcher = Callable[[Job], None]


class Watchers:
    def __init__(self) -> None:
        self._by_job: dict[int, list[Watcher]] = {}

    def add(self, job_id: int, watcher: Watcher) -> Callable[[], None]:
        """Have every committed change of a job told to `watcher`, until the returned function is called."""
        watchers = self._by_job.setdefault(job_id, [])
        watchers.append(watcher)

        def stop() -> None:
            watchers.remove(watcher)
            if not watchers and self._by_job.get(job_id) is watchers:
                del self._by_job[job_id]

        return stop

    def tell(self, job: Job) -> None:
        for watcher in list(self._by_job.get(job.id, ())):
            watcher(job)
