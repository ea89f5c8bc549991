"""What the queue asks of the world besides an engine: a database and a clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from sysjobs.errors import Refused, Unavailable
from sysjobs.indices import Indices
from sysjobs.jobs import Job
from sysjobs.payload import NewJob, Payload


class Storage(Protocol):
    """What the queue asks of a database. Writes are kept back until `commit`."""

    @property
    def failure(self) -> type[Exception]:
        """What reads and writes raise when the database can't be used."""

    def add(self, new: NewJob) -> Job: ...
    def add_task(self, array: Job, index: int) -> Job:
        """The job that a task of an array is from its turn on."""

    def find_tasks(self, array_id: int, indices: Indices) -> dict[int, int]:
        """The ids of those tasks that had their turn, by index."""

    def save(self, job: Job) -> None:
        """Write what can change of a job. Raises RowRefused, which leaves all other writes as they are."""

    def reserve(self, job_id: int) -> None:
        """Let no job that is added from now on have this id or a lower one."""

    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def get(self, job_id: int) -> Job | None:
        """Raises RowDamaged."""

    def payload(self, job_id: int) -> Payload:
        """Raises RowDamaged."""

    def unfinished(self) -> Iterator[Job | RowDamaged]: ...


class Room(Protocol):
    """Whether there is room for more; each says in a sentence what is in short supply, or None."""

    def to_submit(self) -> str | None: ...
    def to_start(self) -> str | None: ...


class Clock(Protocol):
    def now(self) -> int:
        """Microseconds since 1970."""

    def monotonic(self) -> int:
        """Microseconds of CLOCK_MONOTONIC."""


class RowRefused(Exception):
    """The database's checks don't allow this row."""


class RowDamaged(Refused):
    """What the database has of a job can't be what was written there. It stays as it is; others go on."""

    def __init__(self, job_id: int, why: str) -> None:
        super().__init__(
            f"The record of job {job_id} in the database is damaged: {why[:100]}.",
            f"Its unit, sysjobs-{job_id}, and its logs are left alone. "
            "With sysjobsd stopped, `sysjobsd --repair` sets the record aside.",
            code="damaged",
        )
        self.job_id = job_id


class StorageFailed(Exception):
    """The commit failed, for the reason that it says. `load` and `reconcile` follow."""


def storage_refusal(why: str) -> Unavailable:
    """What a client is told when its request couldn't be written."""
    return Unavailable(
        f"The queue's database can't be written: {why}.",
        "See that its file system has room and is writable; `journalctl -u sysjobsd` has more.",
        code="storage",
    )


def storage_unreadable(error: Exception) -> Unavailable:
    return Unavailable(
        f"The queue's database can't be read: {error}.",
        "Jobs run on. With sysjobsd stopped, root can save what is readable by `sysjobsd --repair`.",
        code="storage",
    )
