"""What ended jobs had and used, summed up by SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from sysjobs.store.database import queries

_SQL = queries()

_KEYS = {
    "user": "user",
    "name": "name",
    "day": "date(ended_at / 1000000, 'unixepoch', 'localtime')",
}


@dataclass(frozen=True, slots=True)
class Sums:
    """Of jobs that ended: how many, and seconds.

    `cpu_time` is what the CPUs were busy with them, where that was counted; `cpu_held` and `gpu_held` are
    what they had of CPUs and GPUs, times how long; `ran` and `waited` are times alone. Memory in bytes.
    """

    jobs: int
    succeeded: int
    failed: int
    cancelled: int
    cpu_time: float
    cpu_held: float
    gpu_held: float
    ran: float
    waited: float
    peak_memory: int | None

    def plus(self, other: Sums) -> Sums:
        return Sums(
            self.jobs + other.jobs, self.succeeded + other.succeeded, self.failed + other.failed,
            self.cancelled + other.cancelled, self.cpu_time + other.cpu_time, self.cpu_held + other.cpu_held,
            self.gpu_held + other.gpu_held, self.ran + other.ran, self.waited + other.waited,
            max((peak for peak in (self.peak_memory, other.peak_memory) if peak is not None), default=None),
        )  # fmt: skip

    def view(self) -> dict[str, object]:
        view = asdict(self)
        return {name: value for name, value in view.items() if value is not None}


def sums(
    connection: sqlite3.Connection, by: str, ids: range, since: int, until: int | None, uid: int | None
) -> Iterator[tuple[str, Sums]]:
    """By 'user', 'name' or 'day', of jobs with these ids that ended from `since` on and before `until`."""
    values = {"first": ids.start, "last": ids.stop - 1, "since": since, "until": until, "uid": uid}
    for key, *row in connection.execute(_SQL["sums"].replace(":key", _KEYS[by]), values):
        yield str(key), Sums(*row)
