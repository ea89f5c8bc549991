"""The jobs that wait, in the order of their turns: the higher priority first, then the lower id.

Jobs that are alike in all that matters for a start stand in one line: where its first can't start, none of it
can. So whoever looks for one that can looks at lines, however long they are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from sysjobs.jobs import Job
from sysjobs.resources import Amount

_SLACK = 1000
"""Ids of a line that are gone and are kept in memory."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What the jobs of one line have in common. `longest`: microseconds that one can run, None: any time."""

    uid: int
    priority: int
    amount: Amount
    longest: int | None


def kind_of(job: Job) -> Kind:
    longest = None if job.time_limit is None else int((job.time_limit + job.grace) * 1_000_000)
    return Kind(job.uid, job.priority, job.amount, longest)


class _Line:
    """Ids in order; those that left are passed over."""

    __slots__ = ("_first", "_ids", "_kinds")

    def __init__(self, kinds: Container[int]) -> None:
        self._kinds = kinds
        self._ids: list[int] = []
        self._first = 0

    def add(self, job_id: int) -> None:
        if not self._ids or self._ids[-1] < job_id:
            self._ids.append(job_id)
            return
        at = bisect_left(self._ids, job_id)
        if self._ids[at] != job_id:
            self._ids.insert(at, job_id)
        self._first = min(self._first, at)

    def first(self) -> int | None:
        self._first = self._there(self._first)
        if self._first >= _SLACK:
            del self._ids[: self._first]
            self._first = 0
        return self._ids[self._first] if self._first < len(self._ids) else None

    def after(self, job_id: int) -> int | None:
        at = self._there(bisect_right(self._ids, job_id))
        return self._ids[at] if at < len(self._ids) else None

    def _there(self, at: int) -> int:
        while at < len(self._ids) and self._ids[at] not in self._kinds:
            at += 1
        return at


Turn = tuple[int, int, Kind]
"""The negative priority and the id, which make the order, and the line."""


class Pending:
    """Adding what is there, or removing what isn't, changes nothing."""

    def __init__(self) -> None:
        self._kinds: dict[int, Kind] = {}
        self._lines: dict[Kind, _Line] = {}
        # The first of each line, in order.
        self._firsts: list[Turn] = []
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._kinds)

    def in_turn(self, taken: Container[int] = ()) -> Iterator[tuple[int, Kind]]:
        """Each line's first, in order; and after one that is `taken` by the time, the next of its line."""
        firsts = iter(self._firsts)
        first = next(firsts, None)
        others: list[Turn] = []
        while first is not None or others:
            if first is None or (others and others[0] < first):
                _, job_id, kind = heappop(others)
            else:
                _, job_id, kind = first
                first = next(firsts, None)
            yield job_id, kind
            if job_id in taken and (after := self._lines[kind].after(job_id)) is not None:
                heappush(others, (-kind.priority, after, kind))

    def add(self, job: Job) -> None:
        if job.id in self._kinds:
            return
        kind = self._kinds[job.id] = kind_of(job)
        self._counts[job.uid] += 1
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = _Line(self._kinds)
        elif (first := line.first()) is not None:
            if first < job.id:
                line.add(job.id)
                return
            self._drop_first(first, kind)
        line.add(job.id)
        insort(self._firsts, (-kind.priority, job.id, kind))

    def remove(self, job_id: int) -> None:
        kind = self._kinds.get(job_id)
        if kind is None:
            return
        line = self._lines[kind]
        was_first = line.first() == job_id
        del self._kinds[job_id]
        self._counts[kind.uid] -= 1
        if not self._counts[kind.uid]:
            del self._counts[kind.uid]
        if not was_first:
            return
        self._drop_first(job_id, kind)
        first = line.first()
        if first is None:
            del self._lines[kind]
        else:
            insort(self._firsts, (-kind.priority, first, kind))

    def _drop_first(self, job_id: int, kind: Kind) -> None:
        del self._firsts[bisect_left(self._firsts, (-kind.priority, job_id))]

    def of_user(self, uid: int) -> int:
        """How many are this user's."""
        return self._counts[uid]
