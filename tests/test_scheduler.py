"""Who starts: in turn what fits, and behind the head of the queue what can't put it off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.devices import Device, Share
from sysjobs.jobs import Job
from sysjobs.limits import Limits
from sysjobs.resources import Amount
from sysjobs.scheduling.backfill import (
    LOOKS,
    Reservation,
    Rules,
    choose,
    outlook,
    reservation,
)
from sysjobs.scheduling.explain import why_waiting
from sysjobs.scheduling.fairshare import FairShares
from sysjobs.scheduling.holdings import Holdings
from sysjobs.scheduling.pending import Kind, Pending
from sysjobs.scheduling.pool import Capacity, Grant, Pool
from tests.models import SECOND, node, queue, queued, runs, waits

FREE = Rules()


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
    holdings = node(Capacity(4, 4), *(runs(100 + number, *row) for number, row in enumerate(running)))
    pending = queue(*(waits(number, *row) for number, row in enumerate(waiting, 1)))
    assert [*choose(pending, holdings, FREE, 0, 9)] == started


def test_first_come_first_served_where_nobody_looks_behind_the_head() -> None:
    pending = queue(waits(1, 1), waits(2, 4, limit=9), waits(3, 0))
    assert [*choose(pending, node(Capacity(4, 4)), Rules(looks=0), 0, 9)] == [1]
    assert [*choose(pending, node(Capacity(4, 4)), FREE, 0, 9)] == [1, 3]


def test_not_more_lines_are_looked_at_than_that() -> None:
    others = [waits(2 + number, 2, number) for number in range(LOOKS)]
    full = node(Capacity(4, LOOKS), runs(1, 3))
    assert [*choose(queue(waits(1, 4), *others[:-1], waits(9999, 0)), full, FREE, 0, 9)] == [9999]
    assert [*choose(queue(waits(1, 4), *others, waits(9999, 0)), full, FREE, 0, 9)] == []


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
    full = node(Capacity(4, 4 * LOOKS), runs(10000, 1))
    assert [*choose(pending, full, rules, 0, 9)] == [9999]
    assert outlook(pending, full, rules, 0).head == 9999
    assert looks <= 2 * (LOOKS + 2)


def test_the_higher_priority_first() -> None:
    pending = queue(waits(1, 1), waits(2, 1, priority=5), waits(3, 1, priority=-5), waits(4, 1, priority=5))
    assert [*choose(pending, node(Capacity(3, 0)), FREE, 0, 9)] == [2, 4, 1]
    assert [*choose(pending, node(Capacity(3, 0)), FREE, 0, 2)] == [2, 4]


def test_those_who_had_less_go_first() -> None:
    shares = FairShares(3600)
    shares.advance(0, {1: 1000})
    shares.advance(10, {1: 1000})
    pending = queue(
        waits(1, 1, uid=1), waits(2, 1, uid=2), waits(3, 1, uid=1, priority=1), waits(4, 1, uid=3)
    )
    assert [*choose(pending, node(Capacity(4, 0)), Rules(shares=shares), 0, 9)] == [3, 2, 4, 1]
    head = queued(id=9, uid=2, amount=Amount(9, 0))
    pending.add(head)
    assert outlook(pending, node(Capacity(9, 0), runs(8, 9)), Rules(shares=shares), 0).head == 3


def test_whoever_comes_first_does_not_have_all() -> None:
    pending = queue(*(waits(number, 1000, uid=1 + (number > 10)) for number in range(1, 21)))
    chosen = [*choose(pending, node(Capacity(5000, 0)), Rules(shares=FairShares(3600)), 0, 9)]
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
    holdings, pending = node(Capacity(9000, 9 << 30), *running), queue(*waiting)
    rules = Rules(limits)
    assert [*choose(pending, holdings, rules, 0, 9)] == started
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
    full = node(Capacity(4, 4), replace(runs(100, 2, 2, until=10), uid=7))
    head, later = waits(1, 3, 3), waits(2, asks, asks)
    assert [*choose(queue(head, later), full, FREE, 0, 9)] == [2], "else it may"
    assert [*choose(queue(head, later), full, Rules(limits), 0, 9)] == []
    assert [*choose(queue(head, replace(later, time_limit=10.0)), full, Rules(limits), 0, 9)] == [2]
    assert [*choose(queue(head, replace(later, uid=8)), full, Rules(limits), 0, 9)] == [2]


DEVICES = (Device("a", "L4"), Device("b", "L4"), Device("c", "T4"))
amounts = st.builds(
    Amount, st.integers(0, 4), st.integers(0, 4), st.sampled_from([0, 0, 250, 500, 1000, 2000]),
    st.sampled_from(["", "L4", "T4"]), st.sampled_from([(), (("seat", 1),)]),
)  # fmt: skip
limits = st.none() | st.integers(1, 9).map(float)
jobs = st.lists(st.tuples(amounts, limits, st.integers(-1, 1)), max_size=8)


@given(jobs, st.lists(st.tuples(amounts, st.none() | st.integers(1, 9)), max_size=4), st.integers(0, 8))
def test_choose(
    asked: list[tuple[Amount, float | None, int]], held: list[tuple[Amount, int | None]], most: int
) -> None:
    holdings = Holdings(Capacity(8, 8, DEVICES, {"seat": 2}))
    for number, (amount, until) in enumerate(held):
        shares = holdings.free.pick(amount)
        running = replace(runs(100 + number, 0, until=until), shares=shares or (), shard=0)
        holdings.take(replace(running, amount=amount if shares is not None else replace(amount, gpus=0)))
    waiting = [
        replace(waits(number, 0, limit=limit, priority=priority), amount=amount)
        for number, (amount, limit, priority) in enumerate(asked, 1)
    ]
    in_order = sorted(waiting, key=lambda job: (-job.priority, job.id))
    chosen = choose(queue(*waiting), holdings, FREE, 0, most)
    assert len(chosen) <= most
    free = holdings.free
    ends: list[tuple[int, Grant]] = []
    # Those that wait though the node has so much.
    heads = [job for job in in_order if job.id not in chosen and holdings.all.fits(job.amount)]
    for job in in_order:
        if job.id not in chosen:
            continue
        before, ended = free, sorted([*holdings.ends(), *ends], key=lambda end: end[0])
        assert before.fits(job.amount), "never more than is free"
        grant = Grant(job.amount, *chosen[job.id])
        assert sum(share.amount for share in grant.shares) == job.amount.gpus
        free = before.take(grant)
        assert all(0 <= part <= 1000 for part in free.parts.values())
        if job.time_limit is not None:
            ends.append((int(job.time_limit * SECOND), grant))
        ahead = [head for head in heads if in_order.index(head) < in_order.index(job)]
        if ahead:
            # Beside the head: it ends in time, or takes what the head can do without.
            by = reservation(ahead[0].amount, before, ended)
            in_time = by.at is not None and job.time_limit is not None and job.time_limit * SECOND <= by.at
            assert in_time or by.without(grant, ahead[0].amount) is not None
    if len(chosen) < most and heads:
        assert not free.fits(heads[0].amount), "the head waits for what isn't there"


def of(cpus: int, memory: int) -> Grant:
    return Grant(Amount(cpus, memory))


RESERVATIONS = [
    ("none ends", Amount(3, 0), Pool(2, 4), [], Reservation(None, Pool(2, 4))),
    ("too little ends", Amount(4, 1), Pool(2, 4), [(5, of(1, 0))], Reservation(None, Pool(2, 4))),
    ("the first ends", Amount(3, 1), Pool(2, 4), [(5, of(2, 1))], Reservation(5, Pool(4, 5))),
    (
        "the second ends",
        Amount(4, 1),
        Pool(2, 4),
        [(5, of(1, 0)), (7, of(1, 0)), (8, of(9, 0))],
        Reservation(7, Pool(4, 4)),
    ),
    ("less than nothing is free", Amount(1, 0), Pool(-2, 4), [(5, of(3, 0))], Reservation(5, Pool(1, 4))),
]


@pytest.mark.parametrize(
    ("asked", "free", "ends", "reserved"), [r[1:] for r in RESERVATIONS], ids=[r[0] for r in RESERVATIONS]
)
def test_reservation(asked: Amount, free: Pool, ends: list[tuple[int, Grant]], reserved: Reservation) -> None:
    assert reservation(asked, free, ends) == reserved


BESIDE = [
    ("what it doesn't need", Amount(3, 1), Pool(4, 4), of(1, 3), True),
    ("a CPU that it needs", Amount(3, 1), Pool(3, 4), of(1, 0), False),
    ("nothing, where it lacks CPUs", Amount(3, 1), Pool(2, 4), of(0, 3), True),
    ("a CPU, where it lacks CPUs", Amount(3, 1), Pool(2, 4), of(1, 0), False),
    ("memory that it needs", Amount(3, 1), Pool(2, 4), of(0, 4), False),
]


@pytest.mark.parametrize(
    ("asked", "there", "grant", "may"), [r[1:] for r in BESIDE], ids=[r[0] for r in BESIDE]
)
def test_what_another_one_may_have_beside_the_head(
    asked: Amount, there: Pool, grant: Grant, may: bool
) -> None:
    without = Reservation(None, there).without(grant, asked)
    assert without == (Reservation(None, there.take(grant)) if may else None)


def test_few_looks_at_devices_however_many_run_and_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of the devices is asked once of all lines that ask the same."""
    devices = tuple(Device(f"gpu{number}", "L4") for number in range(8))
    holdings, pending = Holdings(Capacity(9, 9 << 40, devices)), Pending()
    for number in range(2000):
        shares = (Share(f"gpu{number % 8}", 4),)
        running = replace(runs(10_000 + number, 0, until=1 + number), amount=Amount(gpus=4), shares=shares)
        holdings.take(running)
    pending.add(replace(waits(1, 0), amount=Amount(gpus=8000)))
    for number in range(2, 1000):
        pending.add(
            replace(waits(number, 0, limit=9.0), amount=Amount(0, number, 1000 + 1000 * (number % 7)))
        )
    looks = 0

    class Devices(tuple[Device, ...]):
        def __iter__(self) -> Iterator[Device]:
            nonlocal looks
            looks += 1
            return super().__iter__()

    holdings.all = replace(holdings.all, devices=Devices(devices))
    holdings.free = replace(holdings.free, devices=Devices(devices))
    assert choose(pending, holdings, FREE, 0, 9) == {}
    assert outlook(pending, holdings, FREE, 0).reserved is not None
    assert looks < 50
