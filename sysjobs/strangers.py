"""Units that the queue has no job of in memory: the job has ended, or the database knows nothing of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Set

from sysjobs.jobs import Job
from sysjobs.ports import RowDamaged, Storage

log = logging.getLogger(__name__)


class Strangers:
    """Ids of jobs that the database has lost, and whose units are there."""

    def __init__(self, storage: Storage, reserve_ids: Callable[[int], None]) -> None:
        self._storage = storage
        self._reserve_ids = reserve_ids
        self._ids: set[int] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def keep(self, ids: Set[int]) -> None:
        """Forget those that aren't among these."""
        self._ids &= ids

    def adopt(self, job_id: int) -> Job | None:
        """An ended job whose unit is still there; None for a unit that the database knows nothing of."""
        if job_id in self._ids:
            return None
        try:
            job = self._storage.get(job_id)
        except RowDamaged as error:
            log.error("%s", error.message)
            job = None
        if job is not None and job.status.terminal and job.array is None:
            return job
        # The database was lost, damaged or put back: no new job may come by this one's unit.
        log.warning("unit of job %d is not accounted for by the database; it is left alone", job_id)
        self._ids.add(job_id)
        if job_id < 10**15:  # No queue has come to more: somebody else has named it so.
            self._reserve_ids(job_id)
        return None
