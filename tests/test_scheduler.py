"""Who starts: in turn what fits, and behind the head of the queue what can't put it off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.errors import Refused
from sysjobs.jobs import Job, Status
from sysjobs.limits import Limits
from sysjobs.resources import Amount, describe
from sysjobs.scheduling.backfill import (
    LOOKS,
    Outlook,
    Reservation,
    Rules,
    choose,
    outlook,
    refuse_infeasible,
    reservation,
    why_waiting,
)
from sysjobs.scheduling.fairshare import FairShares
from sysjobs.scheduling.holdings import Holdings
from sysjobs.scheduling.pending import Kind, Pending
from tests.models import queued

SECOND = 1_000_000
FREE = Rules()


def waits(number: int, cpus: int, memory: int = 0, limit: float | None = None, **fields: int) -> Job:
    """A pending job that has no grace."""
    amount = Amount(cpus, memory)
    job = queued(id=number, amount=amount, time_limit=limit, grace=0.0)
    return replace(job, **fields)  # type: ignore[arg-type]


def runs(number: int, cpus: int, memory: int = 0, until: int | None = None) -> Job:
    """A running job that is to end by so many seconds."""
    deadline = None if until is None else until * SECOND
    job = queued(Status.RUNNING, deadline=deadline)
    return replace(job, id=number, amount=Amount(cpus, memory), grace=0.0)


def queue(*jobs: Job) -> Pending:
    pending = Pending()
    for job in jobs:
        pending.add(job)
    return pending


def node(capacity: Amount, *running: Job) -> Holdings:
    holdings = Holdings(capacity)
    for job in running:
        holdings.take(job)
    return holdings


# What runs on a node of 4 CPUs and 4 of memory, what waits, and who starts: (CPUs, memory, seconds or None).
Row = tuple[int, int, int | None]
CHOICES: list[tuple[str, list[Row], list[Row], list[int]]] = [
    ("nobody waits", [], [], []),
    ("all fit", [], [(1, 0, None)] * 4, [1, 2, 3, 4]),
    ("as many as fit", [(2, 0, None)], [(1, 0, None)] * 4, [1, 2]),
    ("what needs nothing fits anywhere", [(4, 4, None)], [(0, 0, None)] * 3, [1, 2, 3]),
    ("and where the node has less by now", [(6, 0, None)], [(0, 4, None), (1, 0, None)], [1]),
    ("one that can't start here by now holds up nobody", [], [(5, 0, None), (0, 5, None), (1, 0, None)], [3]),
    ("nobody knows when: nothing that the head needs", [(2, 0, None)], [(3, 0, 9), (1, 0, 9)], []),
    ("nobody knows when: what the head doesn't need", [(4, 0, None)], [(1, 1, 9), (0, 3, 9), (0, 1, 9)], [2]),
    (
        "and of that no more than there is",
        [(4, 0, None)],
        [(1, 1, 9), (0, 2, 9), (0, 2, 9), (0, 1, 9)],
        [2, 4],
    ),
    ("it ends by then", [(2, 0, 10)], [(4, 0, 9), (1, 0, 10), (1, 0, 11)], [2]),
    ("it ends later, and takes what is left", [(2, 0, 10)], [(3, 0, 9), (1, 0, 99)], [2]),
    ("and no more than what is left", [(2, 0, 10)], [(3, 0, 9), (1, 0, 99), (1, 0, None)], [2]),
    ("without a limit it takes what is left", [(2, 0, 10)], [(3, 0, 9), (1, 0, None)], [2]),
    ("the head waits for the second to end", [(1, 0, 5), (2, 0, 10)], [(3, 0, 9), (1, 0, 9)], [2]),
    ("and not for longer", [(1, 0, 5), (2, 0, 10)], [(3, 0, 9), (1, 0, 11)], [2]),
    ("what started just now counts", [], [(3, 0, 10), (4, 0, 9), (1, 0, 10), (1, 0, 9)], [1, 3]),
    ("only the head is waited for", [(2, 0, 10)], [(4, 0, 9), (3, 0, 9), (1, 0, 10), (1, 0, 10)], [3, 4]),
]


@pytest.mark.parametrize(
    ("running", "waiting", "started"), [row[1:] for row in CHOICES], ids=[row[0] for row in CHOICES]
)
def test_choices(running: list[Row], waiting: list[Row], started: list[int]) -> None:
    holdings = node(Amount(4, 4), *(runs(100 + number, *row) for number, row in enumerate(running)))
    pending = queue(*(waits(number, *row) for number, row in enumerate(waiting, 1)))
    assert choose(pending, holdings, FREE, 0, 9) == started


def test_first_come_first_served_where_nobody_looks_behind_the_head() -> None:
    pending = queue(waits(1, 1), waits(2, 4, limit=9), waits(3, 0))
    assert choose(pending, node(Amount(4, 4)), Rules(looks=0), 0, 9) == [1]
    assert choose(pending, node(Amount(4, 4)), FREE, 0, 9) == [1, 3]


def test_not_more_lines_are_looked_at_than_that() -> None:
    others = [waits(2 + number, 2, number) for number in range(LOOKS)]
    full = node(Amount(4, LOOKS), runs(1, 3))
    assert choose(queue(waits(1, 4), *others[:-1], waits(9999, 0)), full, FREE, 0, 9) == [9999]
    assert choose(queue(waits(1, 4), *others, waits(9999, 0)), full, FREE, 0, 9) == []


def test_not_more_lines_of_a_user_who_has_enough_are_looked_at_than_that() -> None:
    """However they differ, and whoever comes after them."""
    looks = 0

    class Counting(Pending):
        def in_turn(self, *rules: Any) -> Iterator[tuple[int, Kind]]:
            nonlocal looks
            for turn in super().in_turn(*rules):
                looks += 1
                yield turn

    pending, rules = Counting(), Rules(Limits(running_per_user=1))
    for number in range(1, 3 * LOOKS):
        pending.add(waits(number, 1, number))
    pending.add(waits(9999, 1, uid=7))
    full = node(Amount(4, 4 * LOOKS), runs(10000, 1))
    assert choose(pending, full, rules, 0, 9) == [9999]
    assert outlook(pending, full, rules, 0).head == 9999
    assert looks <= 2 * (LOOKS + 2)


def test_the_higher_priority_first() -> None:
    pending = queue(waits(1, 1), waits(2, 1, priority=5), waits(3, 1, priority=-5), waits(4, 1, priority=5))
    assert choose(pending, node(Amount(3, 0)), FREE, 0, 9) == [2, 4, 1]
    assert choose(pending, node(Amount(3, 0)), FREE, 0, 2) == [2, 4]


def test_those_who_had_less_go_first() -> None:
    shares = FairShares(3600)
    shares.advance(0, {1: 1000})
    shares.advance(10, {1: 1000})
    pending = queue(
        waits(1, 1, uid=1), waits(2, 1, uid=2), waits(3, 1, uid=1, priority=1), waits(4, 1, uid=3)
    )
    assert choose(pending, node(Amount(4, 0)), Rules(shares=shares), 0, 9) == [3, 2, 4, 1]
    head = queued(id=9, uid=2, amount=Amount(9, 0))
    pending.add(head)
    assert outlook(pending, node(Amount(9, 0), runs(8, 9)), Rules(shares=shares), 0).head == 3


def test_whoever_comes_first_does_not_have_all() -> None:
    pending = queue(*(waits(number, 1000, uid=1 + (number > 10)) for number in range(1, 21)))
    chosen = choose(pending, node(Amount(5000, 0)), Rules(shares=FairShares(3600)), 0, 9)
    assert chosen == [1, 11, 2, 12, 3]


LIMITS: list[tuple[str, Limits, list[Job], list[Job], list[int], str]] = [
    (
        "running",
        Limits(running=2),
        [runs(100, 1)],
        [waits(1, 1), waits(2, 1)],
        [1],
        "Waits for others to end: 2 run, and here no more may at once (running in [limits]).",
    ),
    (
        "running of a user",
        Limits(running_per_user=2),
        [runs(100, 1)],
        [waits(1, 1), waits(2, 1), waits(3, 1, uid=7)],
        [1, 3],
        "Waits for others of the same user to end: 2 run at once (running-per-user in [limits]).",
    ),
    (
        "CPUs of a user",
        Limits(cpus_per_user=2000),
        [runs(100, 500)],
        [waits(1, 1000), waits(2, 1000), waits(3, 500), waits(4, 1000, uid=7)],
        [1, 3, 4],
        "Waits for others of the same user to end: they have 2 of the 2 CPUs that a user may have at once "
        "(cpus-per-user in [limits]).",
    ),
    (
        "memory of a user",
        Limits(memory_per_user=2 << 30),
        [],
        [waits(1, 1, 1 << 30), waits(2, 1, 2 << 30)],
        [1],
        "Waits for others of the same user to end: they have 1G of the 2G of memory that a user may have at "
        "once (memory-per-user in [limits]).",
    ),
]


@pytest.mark.parametrize(
    ("limits", "running", "waiting", "started", "says"), [r[1:] for r in LIMITS], ids=[r[0] for r in LIMITS]
)
def test_limits(
    limits: Limits, running: list[Job], waiting: list[Job], started: list[int], says: str
) -> None:
    """Whoever has enough holds up nobody else."""
    holdings, pending = node(Amount(9000, 9 << 30), *running), queue(*waiting)
    rules = Rules(limits)
    assert choose(pending, holdings, rules, 0, 9) == started
    for job in waiting:
        if job.id in started:
            pending.remove(job.id)
            holdings.take(replace(job, shard=0))
    (left,) = (job for job in waiting if job.id not in started)
    seen = outlook(pending, holdings, rules, 0)
    reason = why_waiting(left, seen, holdings, rules, 0)
    assert (reason.code, reason.text) == ("limits", says)


@pytest.mark.parametrize(
    ("limits", "asks"),
    [(Limits(running_per_user=1), 1), (Limits(cpus_per_user=3), 1), (Limits(memory_per_user=3), 1)],
)
def test_the_head_is_not_put_off_by_what_its_user_may_have(limits: Limits, asks: int) -> None:
    """A later job of the same user takes of that, too; unless it ends by then."""
    full = node(Amount(4, 4), replace(runs(100, 2, 2, until=10), uid=7))
    head, later = waits(1, 3, 3), waits(2, asks, asks)
    assert choose(queue(head, later), full, FREE, 0, 9) == [2], "else it may"
    assert choose(queue(head, later), full, Rules(limits), 0, 9) == []
    assert choose(queue(head, replace(later, time_limit=10.0)), full, Rules(limits), 0, 9) == [2]
    assert choose(queue(head, replace(later, uid=8)), full, Rules(limits), 0, 9) == [2]


amounts = st.builds(Amount, cpus=st.integers(0, 4), memory=st.integers(0, 4))
limits = st.none() | st.integers(1, 9).map(float)
jobs = st.lists(st.tuples(amounts, limits, st.integers(-1, 1)), max_size=8)


@given(jobs, st.lists(st.tuples(amounts, st.none() | st.integers(1, 9)), max_size=4), st.integers(0, 8))
def test_choose(
    asked: list[tuple[Amount, float | None, int]], held: list[tuple[Amount, int | None]], most: int
) -> None:
    capacity = Amount(8, 8)
    running = [
        runs(100 + number, amount.cpus, amount.memory, until) for number, (amount, until) in enumerate(held)
    ]
    holdings = node(capacity, *running)
    waiting = [
        waits(number, amount.cpus, amount.memory, limit, priority=priority)
        for number, (amount, limit, priority) in enumerate(asked, 1)
    ]
    in_order = sorted(waiting, key=lambda job: (-job.priority, job.id))
    chosen = choose(queue(*waiting), holdings, FREE, 0, most)
    assert len(chosen) == len(set(chosen)) <= most
    free = holdings.free
    ends: list[tuple[int, Amount]] = []
    heads = [job for job in in_order if job.id not in chosen]
    for job in in_order:
        if job.id not in chosen:
            continue
        before, ended = free, sorted([*holdings.ends(), *ends], key=lambda end: end[0])
        free -= job.amount
        if job.time_limit is not None:
            ends.append((int(job.time_limit * SECOND), job.amount))
        ahead = [head for head in heads if in_order.index(head) < in_order.index(job)]
        if not ahead:
            assert job.amount.fits(before), "in turn, what fits"
            continue
        # Beside the head: it ends in time, or takes what is left.
        by = reservation(ahead[0].amount, before, ended)
        in_time = by.at is not None and job.time_limit is not None and job.time_limit * SECOND <= by.at
        assert in_time or job.amount.fits(by.left)
    if chosen:
        assert free.cpus >= min(0, holdings.free.cpus), "never more than is free"
        assert free.memory >= min(0, holdings.free.memory)
    if len(chosen) < most and heads:
        assert not heads[0].amount.fits(free), "the head waits for what isn't there"


RESERVATIONS = [
    ("none ends", Amount(3, 0), Amount(2, 4), [], Reservation(None, Amount(0, 4))),
    ("too little ends", Amount(4, 1), Amount(2, 4), [(5, Amount(1, 0))], Reservation(None, Amount(0, 3))),
    ("the first ends", Amount(3, 1), Amount(2, 4), [(5, Amount(2, 1))], Reservation(5, Amount(1, 4))),
    (
        "the second ends",
        Amount(4, 1),
        Amount(2, 4),
        [(5, Amount(1, 0)), (7, Amount(1, 0)), (8, Amount(9, 0))],
        Reservation(7, Amount(0, 3)),
    ),
    (
        "less than nothing is free",
        Amount(1, 0),
        Amount(-2, 4),
        [(5, Amount(3, 0))],
        Reservation(5, Amount(0, 4)),
    ),
]


@pytest.mark.parametrize(
    ("asked", "free", "ends", "reserved"), [r[1:] for r in RESERVATIONS], ids=[r[0] for r in RESERVATIONS]
)
def test_reservation(
    asked: Amount, free: Amount, ends: list[tuple[int, Amount]], reserved: Reservation
) -> None:
    assert reservation(asked, free, ends) == reserved


GIB = 1 << 30
NODE = Amount(4000, 8 * GIB)
WAITS = [
    (Amount(2000, GIB), Amount(1500, GIB), "Waits for CPUs: asks for 2; 1.5 of the node's 4 are free."),
    (Amount(2000, GIB), Amount(-500, GIB), "Waits for CPUs: asks for 2; 0 of the node's 4 are free."),
    (Amount(2000, 4 * GIB), Amount(4000, GIB), "Waits for memory: asks for 4G; 1G of the node's 8G is free."),
    (Amount(2000, 4 * GIB), Amount(4000, -GIB), "Waits for memory: asks for 4G; 0 of the node's 8G is free."),
    (Amount(2000, GIB), NODE, "Is about to start."),
    (Amount(2000, GIB), Amount(2000, GIB), "Is about to start."),
    (
        Amount(9000, GIB),
        NODE,
        "Asks for more than jobs may have here by now, 4 CPUs and 8G of memory: cancel it, or wait for more.",
    ),
]


@pytest.mark.parametrize(("asked", "free", "sentence"), WAITS)
def test_why_the_head_waits(asked: Amount, free: Amount, sentence: str) -> None:
    head = queued(id=1, amount=asked)
    holdings = node(NODE, queued(Status.RUNNING, id=2, amount=NODE - free))
    reason = why_waiting(head, outlook(queue(head), holdings, FREE, 0), holdings, FREE, 0)
    assert (reason.code, reason.text) == ("resources", sentence)


def test_when_the_head_can_start() -> None:
    head, other = queued(id=1, amount=NODE), queued(id=2, amount=Amount(1, 0), time_limit=None)
    holdings = node(NODE, runs(9, 4000, until=5400))
    seen = outlook(queue(head, other), holdings, FREE, 0)
    assert seen == Outlook(1, Reservation(5400 * SECOND, Amount(0, 0)))
    soon = why_waiting(head, seen, holdings, FREE, 0).text
    assert soon.endswith("0 of the node's 4 are free. It can start in 1h 30m at the latest.")
    behind = "Waits behind job 1, the head of the queue, which can start in {} at the latest."
    assert why_waiting(other, seen, holdings, FREE, 0).text == behind.format("1h 30m")
    assert why_waiting(other, seen, holdings, FREE, 5400 * SECOND - 1).text == behind.format("1s")
    # What should have ended hasn't.
    overdue = why_waiting(other, seen, holdings, FREE, 5400 * SECOND).text
    assert overdue == "Waits behind job 1, the head of the queue."
    unknown = outlook(queue(head, other), node(NODE, runs(9, 4000)), FREE, 0)
    assert why_waiting(other, unknown, holdings, FREE, 0).text == "Waits behind job 1, the head of the queue."


def test_nobody_waits() -> None:
    assert outlook(queue(), node(NODE), FREE, 0) == Outlook()


def test_one_that_waits_no_more() -> None:
    """As those are told who read of it before that is on disk."""
    holdings = node(NODE, runs(9, 4000))
    text = why_waiting(queued(id=1, amount=NODE), Outlook(), holdings, FREE, 0).text
    assert text == "Waits for CPUs: asks for 4; 0 of the node's 4 are free."


def test_describe() -> None:
    assert describe(Amount(1500, GIB)) == "1.5 CPUs and 1G of memory"


INFEASIBLE = [
    (Amount(4001, 0), "--cpus 4.001"),
    (Amount(0, 9 * GIB), "--memory 9G"),
    (Amount(5000, 9 * GIB), "--cpus 5"),
]


@pytest.mark.parametrize(("asked", "said"), INFEASIBLE)
def test_infeasible(asked: Amount, said: str) -> None:
    with pytest.raises(Refused) as caught:
        refuse_infeasible(asked, NODE)
    assert caught.value.message == f"{said} is more than this node has."
    assert caught.value.hint.startswith("It has 4 CPUs and 8G of memory;")


def test_feasible() -> None:
    refuse_infeasible(NODE, NODE)
    refuse_infeasible(Amount(), NODE)
