"""The jobs that wait, in the order in which they start, and how many of them are whose."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

from sysjobs.errors import Refused
from sysjobs.jobs import Job


class Pending:
    """Ids in order. Adding what is there, or removing what isn't, changes nothing."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[int]:
        return iter(self._owners)

    def add(self, job: Job) -> None:
        if job.id not in self._owners:
            self._owners[job.id] = job.uid
            self._counts[job.uid] += 1

    def add_first(self, job: Job) -> None:
        """For a job that had been taken out to be started, and wasn't: before all that came after it."""
        self.remove(job.id)
        ahead = list(itertools.takewhile(lambda other: other < job.id, self._owners))
        owners = {job_id: self._owners.pop(job_id) for job_id in ahead}
        self._owners = {**owners, job.id: job.uid, **self._owners}
        self._counts[job.uid] += 1

    def remove(self, job_id: int) -> None:
        uid = self._owners.pop(job_id, None)
        if uid is None:
            return
        self._counts[uid] -= 1
        if not self._counts[uid]:
            del self._counts[uid]

    def refuse_beyond(self, most: int, uid: int) -> None:
        """Raise Refused if this user has `most` jobs waiting."""
        if self._counts[uid] >= most:
            raise Refused(
                f"You have {self._counts[uid]:,} jobs waiting, and nobody may have more than {most:,}.",
                "Submit more when some have started, or cancel some; "
                "the administrator sets pending-per-user in [limits].",
                code="too-many-pending",
            )
