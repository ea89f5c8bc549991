"""Pure: which waiting jobs start now, and what the others wait for.

In turn, as long as they fit. The first that doesn't is the head of the queue. It has a reservation: when it
can start at the latest, and what is left beside it then. A later job starts before it only where that can't
put the head off (EASY backfill, Lifka 1995): its time limit ends it by then, or it takes no more than what is
left. Where the head waits for jobs without a time limit, nobody knows when they end, and what is left is what
the head doesn't need of what is free now.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace

from sysjobs.errors import Refused
from sysjobs.jobs import Job, Reason
from sysjobs.limits import Limits
from sysjobs.resources import Amount, describe, format_cpus, format_duration, format_memory
from sysjobs.scheduling.fairshare import FairShares
from sysjobs.scheduling.holdings import Holdings
from sysjobs.scheduling.pending import Kind, Pending, kind_of

LOOKS = 1000
"""Lines that are looked at behind the head, and of one user among those that a limit keeps from starting, so
that a long queue of jobs that all differ costs no more."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What an administrator may choose: limits, whether users have shares, how many lines are looked at."""

    limits: Limits = field(default_factory=Limits)
    shares: FairShares | None = None
    looks: int = LOOKS


@dataclass(frozen=True, slots=True)
class Reservation:
    """When the head of the queue can start at the latest (None: nobody knows), and what is left beside it."""

    at: int | None
    left: Amount


def reservation(asked: Amount, free: Amount, ends: Iterable[tuple[int, Amount]]) -> Reservation:
    """For a job that doesn't fit into what is free. `ends`: when running jobs end at the latest, in order."""
    now_free = free
    for at, amount in ends:
        free += amount
        if asked.fits(free):
            return Reservation(at, free - asked)
    left = now_free - asked
    return Reservation(None, Amount(max(left.cpus, 0), max(left.memory, 0)))


class _Plan:
    """What is free, what users have and when jobs end, as more and more of them are chosen."""

    def __init__(self, holdings: Holdings, rules: Rules, now: int) -> None:
        self.free = holdings.free
        self._holdings = holdings
        self._rules = rules
        self._now = now
        self._chosen: list[Kind] = []

    def _of_user(self, uid: int) -> list[Amount]:
        return [kind.amount for kind in self._chosen if kind.uid == uid]

    def share(self, uid: int) -> float:
        """What a user has had lately."""
        if self._rules.shares is None:
            return 0.0
        return self._rules.shares.of(uid, sum(amount.cpus for amount in self._of_user(uid)))

    def broken(self, kind: Kind, beside: Kind | None = None) -> str | None:
        """Which limit of its user keeps one more of these from starting, where `beside` starts too."""
        running, has = self._holdings.of_user(kind.uid)
        more = self._of_user(kind.uid)
        if beside is not None and beside.uid == kind.uid:
            more.append(beside.amount)
        return self._rules.limits.broken(running + len(more), sum(more, has), kind.amount)

    def is_feasible(self, kind: Kind) -> bool:
        """Whether the node has so much by now."""
        return kind.amount.fits(self._holdings.capacity)

    @property
    def full(self) -> str | None:
        """Why none can start at all."""
        return self._rules.limits.full(len(self._holdings) + len(self._chosen))

    def take(self, kind: Kind) -> None:
        self.free -= kind.amount
        self._chosen.append(kind)

    def reserve(self, asked: Amount) -> Reservation:
        chosen = [
            (self._now + kind.longest, kind.amount) for kind in self._chosen if kind.longest is not None
        ]
        ends = heapq.merge(self._holdings.ends(), sorted(chosen, key=_end), key=_end)
        return reservation(asked, self.free, ends)


def _startable(
    pending: Pending, plan: _Plan, rules: Rules, chosen: Container[int] = ()
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


def _end(entry: tuple[int, Amount]) -> int:
    return entry[0]


def choose(pending: Pending, holdings: Holdings, rules: Rules, now: int, most: int) -> list[int]:
    """The jobs that start now, `most` of them at most. `now` is in microseconds of CLOCK_MONOTONIC.

    One that asks for more than the node has by now, or whose user has enough, holds up nobody.
    """
    chosen: dict[int, None] = {}
    plan = _Plan(holdings, rules, now)
    head: Kind | None = None
    reserved: Reservation | None = None
    looks = rules.looks
    for job_id, kind in _startable(pending, plan, rules, chosen):
        if len(chosen) == most or plan.full:
            break
        if head is not None:
            if not looks:
                break
            looks -= 1
        if not kind.amount.fits(plan.free):
            head = head or kind
            continue
        if head is not None:
            reserved = reserved or plan.reserve(head.amount)
            if not _ends_by(reserved, kind, now):
                # What it takes, of the node and of what its user may have, the head has to do without.
                if not kind.amount.fits(reserved.left) or plan.broken(head, kind):
                    continue
                reserved = replace(reserved, left=reserved.left - kind.amount)
        plan.take(kind)
        chosen[job_id] = None
    return [*chosen]


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
    plan = _Plan(holdings, rules, now)
    for job_id, kind in _startable(pending, plan, rules):
        return Outlook(job_id, None if kind.amount.fits(plan.free) else plan.reserve(kind.amount))
    return Outlook()


def why_waiting(job: Job, seen: Outlook, holdings: Holdings, rules: Rules, now: int) -> Reason:
    """What a pending job waits for."""
    kind = kind_of(job)
    capacity = holdings.capacity
    if not kind.amount.fits(capacity):
        have = describe(capacity)
        text = f"Asks for more than jobs may have here by now, {have}: cancel it, or wait for more."
        return Reason("resources", text)
    plan = _Plan(holdings, rules, now)
    limited = plan.broken(kind) or plan.full
    if limited is not None:
        return Reason("limits", limited)
    soon = ""
    # What is past that moment doesn't end though it was killed: nobody knows when it will.
    if seen.reserved is not None and seen.reserved.at is not None and seen.reserved.at > now:
        soon = format_duration(-((now - seen.reserved.at) // 1_000_000))
    if seen.head not in (None, job.id):
        when = f", which can start in {soon} at the latest" if soon else ""
        return Reason("resources", f"Waits behind job {seen.head}, the head of the queue{when}.")
    when = f" It can start in {soon} at the latest." if soon else ""
    return Reason("resources", _lacks(kind.amount, holdings) + when)


def _lacks(asked: Amount, holdings: Holdings) -> str:
    """What isn't free of what is asked for."""
    capacity = holdings.capacity
    left = Amount(max(holdings.free.cpus, 0), max(holdings.free.memory, 0))
    if asked.cpus > left.cpus:
        of_all = f"{format_cpus(left.cpus)} of the node's {format_cpus(capacity.cpus)}"
        return f"Waits for CPUs: asks for {format_cpus(asked.cpus)}; {of_all} are free."
    if asked.memory > left.memory:
        of_all = f"{format_memory(left.memory)} of the node's {format_memory(capacity.memory)}"
        return f"Waits for memory: asks for {format_memory(asked.memory)}; {of_all} is free."
    return "Is about to start."


def refuse_infeasible(asked: Amount, capacity: Amount) -> None:
    """Raise Refused for a job that this node can never run."""
    if asked.fits(capacity):
        return
    said = f"--memory {format_memory(asked.memory)}"
    if asked.cpus > capacity.cpus:
        said = f"--cpus {format_cpus(asked.cpus)}"
    raise Refused(
        f"{said} is more than this node has.",
        f"It has {describe(capacity)}; ask for no more than that.",
        code="infeasible",
    )
