"""What has to come before a job may wait for its turn: other jobs, a time, and that nobody holds it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum


class When(StrEnum):
    """At which moment of another job's life a job may wait for its turn, by the name of the option."""

    AFTER = "after"
    """It has begun, or ended without."""
    OK = "afterok"
    ANY = "afterany"
    NOT_OK = "afternotok"
    SINGLETON = "singleton"
    """It has ended, and is of the same name."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """On a job, an array as a whole, or a `task` of an array."""

    when: When
    job_id: int
    task: int | None = None

    @property
    def on(self) -> int | tuple[int, int]:
        """The job's key."""
        return self.job_id if self.task is None else (self.job_id, self.task)

    @property
    def label(self) -> str:
        return str(self.job_id) if self.task is None else f"{self.job_id}_{self.task}"

    def __str__(self) -> str:
        return f"{self.when}:{self.label}"


@dataclass(frozen=True, slots=True)
class Conditions:
    """`begin_at`: microseconds since 1970."""

    begin_at: int | None = None
    dependencies: tuple[Dependency, ...] = ()

    def __bool__(self) -> bool:
        return self.begin_at is not None or bool(self.dependencies)


@dataclass(frozen=True, slots=True)
class Hold:
    """Who keeps a job from waiting for its turn."""

    uid: int
    user: str


def dump_dependencies(dependencies: tuple[Dependency, ...]) -> str | None:
    if not dependencies:
        return None
    return json.dumps([[each.when, *filter(_is_there, (each.job_id, each.task))] for each in dependencies])


def _is_there(value: int | None) -> bool:
    return value is not None


def load_dependencies(text: str | None) -> tuple[Dependency, ...]:
    """As `dump_dependencies` wrote them. Raises ValueError for what it didn't write."""
    if text is None:
        return ()
    try:
        found = json.loads(text)
        return tuple(Dependency(When(when), _id(job_id), *map(_index, task)) for when, job_id, *task in found)
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"its dependencies are {text:.80}") from None


def _index(value: object) -> int:
    return _id(value) if value else 0


def _id(value: object) -> int:
    if type(value) is not int or not 0 < value < 2**63:
        raise ValueError(value)
    return value
