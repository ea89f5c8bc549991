"""The jobs that wait, in the order of their turns: the higher priority first, then the lower id.

Jobs that are alike in all that matters for a start stand in one line: where its first can't start, none of it
can. So whoever looks for one that can looks at lines, however long they are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sized
from dataclasses import dataclass
from heapq import heappop, heappush
from types import MappingProxyType

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
    """Ids in order; those that stand elsewhere by now, or nowhere, are passed over."""

    __slots__ = ("_first", "_ids", "_lines", "kind", "there")

    def __init__(self, kind: Kind, lines: Mapping[int, _Line]) -> None:
        self.kind = kind
        # Where each job stands.
        self._lines = lines
        self._ids: list[int] = []
        self._first = 0
        self.there = 0

    def add(self, job_id: int) -> None:
        self.there += 1
        if len(self._ids) > 2 * self.there + _SLACK:
            self._ids = [each for each in self._ids if self._lines.get(each) is self]
            self._first = 0
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

    def before(self, priority: int, job_id: int) -> int:
        """How many of it stand before a job of this priority."""
        if self.kind.priority != priority:
            return self.there if self.kind.priority > priority else 0
        ids = self._ids[self._first : bisect_left(self._ids, job_id)]
        return sum(self._lines.get(each) is self for each in ids)

    def _there(self, at: int) -> int:
        while at < len(self._ids) and self._lines.get(self._ids[at]) is not self:
            at += 1
        return at

    def turn(self, job_id: int) -> Turn:
        return -self.kind.priority, job_id, self


Turn = tuple[int, int, _Line]
"""The negative priority and the id, which make the order, and the line."""


def alike(uid: int) -> float:
    """All users go before each other as their jobs' ids say."""
    return 0.0


class Pending:
    """Adding what is there, or removing what isn't, changes nothing."""

    def __init__(self) -> None:
        # Where each job stands, and the lines that there are.
        self._of: dict[int, _Line] = {}
        self._lines: dict[Kind, _Line] = {}
        # The first of each of a user's lines, in order.
        self._firsts: dict[int, list[Turn]] = {}
        self._counts: Counter[int] = Counter()
        # How many tasks of an array may start; of all others there is one.
        self._tasks: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._of

    def in_turn(
        self,
        taken: Mapping[int, Sized] = MappingProxyType({}),
        share: Callable[[int], float] = alike,
        without: Container[int] = (),
    ) -> Iterator[tuple[int, Kind]]:
        """Each line's first, in order; and after one that is `taken` by the time, the next of its line.

        An array comes again as long as it has tasks that aren't taken; `taken` has as many as are of each.

        Of the same priority, those go first whose user's `share` is smaller. It may grow as jobs are taken.
        Users that are in `without` by the time are left out.
        """
        heap: list[tuple[int, float, int, _Line, Iterator[Turn]]] = []

        def offer(turn: Turn | None, others: Iterator[Turn]) -> None:
            if turn is not None:
                priority, job_id, line = turn
                heappush(heap, (priority, share(line.kind.uid), job_id, line, others))

        for firsts in self._firsts.values():
            others = iter(firsts)
            offer(next(others, None), others)
        while heap:
            _, was, job_id, line, others = heappop(heap)
            if line.kind.uid in without:
                continue
            if share(line.kind.uid) > was:
                offer(line.turn(job_id), others)
                continue
            offer(next(others, None), others)
            before = len(taken.get(job_id, ()))
            yield job_id, line.kind
            if (by_now := len(taken.get(job_id, ()))) == before:
                continue
            if by_now < self._tasks.get(job_id, 1):
                offer(line.turn(job_id), iter(()))
            elif (after := line.after(job_id)) is not None:
                offer(line.turn(after), iter(()))

    def add(self, job: Job) -> None:
        if job.array is not None:
            self._tasks[job.id] = job.array.startable
        if job.id in self._of:
            return
        kind = kind_of(job)
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = _Line(kind, self._of)
        first = line.first()
        self._of[job.id] = line
        self._counts[job.uid] += 1
        line.add(job.id)
        if first is None or job.id < first:
            firsts = self._firsts.setdefault(job.uid, [])
            if first is not None:
                _drop(firsts, line.turn(first))
            insort(firsts, line.turn(job.id))

    def remove(self, job_id: int) -> None:
        line = self._of.get(job_id)
        if line is None:
            return
        self._tasks.pop(job_id, None)
        uid = line.kind.uid
        was_first = line.first() == job_id
        del self._of[job_id]
        line.there -= 1
        self._counts[uid] -= 1
        if was_first:
            _drop(self._firsts[uid], line.turn(job_id))
            if (first := line.first()) is not None:
                insort(self._firsts[uid], line.turn(first))
            else:
                del self._lines[line.kind]
        if not self._counts[uid]:
            del self._counts[uid], self._firsts[uid]

    def position(self, job_id: int) -> int:
        """Which one in order it is, from 1 on: a look at all lines, and at those of its priority whole."""
        priority = self._of[job_id].kind.priority
        return 1 + sum(line.before(priority, job_id) for line in self._lines.values())


def _drop(turns: list[Turn], turn: Turn) -> None:
    del turns[bisect_left(turns, turn)]
