"""Which waiting jobs start now.

In turn, as long as they fit. The first that doesn't is the head of the queue. It has a reservation: when it
can start at the latest, and what is there then. A later job starts before it only where that can't put the
head off (EASY backfill, Lifka 1995): its time limit ends it by then, or it takes nothing that the head needs.
Where the head waits for jobs without a time limit, nobody knows when they end, and it needs what it can use
of what is free now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from types import MappingProxyType

from sysjobs.devices import Share
from sysjobs.limits import Limits
from sysjobs.resources import Amount, Total
from sysjobs.scheduling.fairshare import FairShares
from sysjobs.scheduling.holdings import Holdings
from sysjobs.scheduling.pending import Kind, Pending
from sysjobs.scheduling.pool import Grant, Pool

LOOKS = 1000
"""Lines that are looked at behind the head, and of one user among those that a limit keeps from starting, so
that a long queue of jobs that all differ costs no more."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What an administrator may choose: limits, whether users have shares, how many lines are looked at."""

    limits: Limits = field(default_factory=Limits)
    shares: FairShares | None = None
    looks: int = LOOKS
    keep_unmet: bool = False
    """Whether a job stays that is to come after what can never be."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """When the head of the queue can start at the latest (None: nobody knows), and what is there then."""

    at: int | None
    there: Pool

    def without(self, grant: Grant, asked: Amount) -> Reservation | None:
        """The same where another one has that too; None where the head, which asks so much, would miss it."""
        left = self.there.take(grant)
        if self.at is not None:
            return Reservation(self.at, left) if left.fits(asked) else None
        # What another one takes can't make more of anything.
        return Reservation(None, left) if left.has(asked) == self.there.has(asked) else None


def reservation(asked: Amount, free: Pool, ends: Sequence[tuple[int, Grant]]) -> Reservation:
    """For a job that doesn't fit into what is free. `ends`: when running jobs end at the latest, in order."""
    there = _given(free, ends)
    if not there.fits(asked):
        return Reservation(None, free)
    # The more have ended, the more fits: the last that has to is found by halving.
    first, last, before = 0, len(ends), free
    while last - first > 1:
        middle = (first + last) // 2
        half = _given(before, ends[first:middle])
        if half.fits(asked):
            last, there = middle, half
        else:
            first, before = middle, half
    return Reservation(ends[last - 1][0], there)


def _given(pool: Pool, ends: Iterable[tuple[int, Grant]]) -> Pool:
    return pool.give(*(grant for _, grant in ends))


class Plan:
    """What is free, what users have and when jobs end, as more and more of them are chosen."""

    def __init__(self, holdings: Holdings, rules: Rules, now: int) -> None:
        self.free = holdings.free
        self._holdings = holdings
        self._rules = rules
        self._now = now
        self._chosen: list[tuple[Kind, Grant]] = []
        # How many run of a user some of whose are chosen, and what these have.
        self._of: dict[int, tuple[int, Total]] = {}

    def _of_user(self, uid: int) -> tuple[int, Total]:
        return self._of.get(uid) or self._holdings.of_user(uid)

    def share(self, uid: int) -> float:
        """What a user has had lately."""
        if self._rules.shares is None:
            return 0.0
        return self._rules.shares.of(uid, self._of_user(uid)[1].cpus - self._holdings.of_user(uid)[1].cpus)

    def broken(self, kind: Kind, beside: Kind | None = None) -> str | None:
        """Which limit of its user keeps one more of these from starting, where `beside` starts too."""
        running, has = self._of_user(kind.uid)
        if beside is not None and beside.uid == kind.uid:
            running, has = running + 1, has.plus(beside.amount)
        return self._rules.limits.broken(running, has, kind.amount)

    def is_feasible(self, kind: Kind) -> bool:
        """Whether the node has so much by now."""
        return self._holdings.all.fits(kind.amount)

    @property
    def chosen(self) -> int:
        return len(self._chosen)

    @property
    def full(self) -> str | None:
        """Why none can start at all."""
        return self._rules.limits.full(len(self._holdings) + len(self._chosen))

    def take(self, kind: Kind, grant: Grant) -> None:
        self.free = self.free.take(grant)
        self._chosen.append((kind, grant))
        running, has = self._of_user(kind.uid)
        self._of[kind.uid] = running + 1, has.plus(kind.amount)

    def reserve(self, asked: Amount) -> Reservation:
        chosen = [
            (self._now + kind.longest, grant) for kind, grant in self._chosen if kind.longest is not None
        ]
        return reservation(asked, self.free, sorted([*self._holdings.ends(), *chosen], key=_end))


def _startable(
    pending: Pending, plan: Plan, rules: Rules, chosen: Mapping[int, Sized] = MappingProxyType({})
) -> Iterator[tuple[int, Kind]]:
    """In turn, those that may start once there is room."""
    passed: Counter[int] = Counter()
    enough: set[int] = set()
    for job_id, kind in pending.in_turn(chosen, plan.share, enough):
        if plan.is_feasible(kind) and not plan.broken(kind):
            yield job_id, kind
            continue
        passed[kind.uid] += 1
        if passed[kind.uid] > rules.looks:
            enough.add(kind.uid)


def _end(entry: tuple[int, Grant]) -> int:
    return entry[0]


def choose(
    pending: Pending, holdings: Holdings, rules: Rules, now: int, most: int
) -> dict[int, list[tuple[Share, ...]]]:
    """The jobs that start now, `most` of them at most, and which devices each gets; of an array, each task.

    `now` is in microseconds of CLOCK_MONOTONIC.

    One that asks for more than the node has by now, or whose user has enough, holds up nobody.
    """
    chosen: dict[int, list[tuple[Share, ...]]] = {}
    plan = Plan(holdings, rules, now)
    head: Kind | None = None
    reserved: Reservation | None = None
    looks = rules.looks
    for job_id, kind in _startable(pending, plan, rules, chosen):
        if plan.chosen == most or plan.full:
            break
        if head is not None:
            if not looks:
                break
            looks -= 1
        if not plan.free.fits(kind.amount):
            head = head or kind
            continue
        shares = plan.free.pick(kind.amount) or ()
        grant = Grant(kind.amount, shares)
        if head is not None:
            reserved = reserved or plan.reserve(head.amount)
            if not _ends_by(reserved, kind, now):
                # What it takes, of the node and of what its user may have, the head has to do without.
                without = reserved.without(grant, head.amount)
                if without is None or plan.broken(head, kind):
                    continue
                reserved = without
        plan.take(kind, grant)
        chosen.setdefault(job_id, []).append(shares)
    return chosen


def _ends_by(reserved: Reservation, kind: Kind, now: int) -> bool:
    """Whether one of these that starts now has ended when the head can start."""
    return reserved.at is not None and kind.longest is not None and now + kind.longest <= reserved.at


@dataclass(frozen=True, slots=True)
class Outlook:
    """The head of the queue, which nobody overtakes, and what it waits for. None: nobody waits."""

    head: int | None = None
    reserved: Reservation | None = None


def outlook(pending: Pending, holdings: Holdings, rules: Rules, now: int) -> Outlook:
    """As it is once all that can start has started."""
    plan = Plan(holdings, rules, now)
    for job_id, kind in _startable(pending, plan, rules):
        return Outlook(job_id, None if plan.free.fits(kind.amount) else plan.reserve(kind.amount))
    return Outlook()
