"""What jobs hold of the node, taken and given back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sysjobs.jobs import Job, Status
from sysjobs.resources import Amount, Total
from sysjobs.scheduling.holdings import SHARD_SIZE, Holdings
from sysjobs.scheduling.pool import Capacity, all_of
from tests.models import queued

NODE = Capacity(4000, 8 << 30)


def job(number: int, uid: int = 1000, shard: int = 0) -> Job:
    amount = Amount(100 * number, number << 20)
    return replace(queued(Status.RUNNING, shard=shard), id=number, uid=uid, amount=amount)


def total(jobs: Iterable[Job]) -> Total:
    found = Total()
    for each in jobs:
        found = found.plus(each.amount)
    return found


@given(
    st.lists(st.tuples(st.sampled_from(["take", "give_back"]), st.integers(1, 5), st.sampled_from([0, 1000])))
)
def test_what_is_free_is_what_nobody_holds(steps: list[tuple[str, int, int]]) -> None:
    holdings = Holdings(NODE)
    held: dict[int, Job] = {}
    for action, number, uid in steps:
        one = job(number, held[number].uid if number in held else uid)
        if action == "take":
            holdings.take(one)
            held[number] = one
        else:
            holdings.give_back(one)
            held.pop(number, None)
        everybody = total(held.values())
        assert (holdings.free.cpus, holdings.free.memory) == (
            NODE.cpus - everybody.cpus, NODE.memory - everybody.memory
        )  # fmt: skip
        assert len(holdings) == len(held)
        for user in (0, 1000):
            theirs = [each for each in held.values() if each.uid == user]
            assert holdings.holds(user) == bool(theirs)
            assert holdings.of_user(user) == (len(theirs), total(theirs))


def test_capacity_can_change_below_what_is_held() -> None:
    holdings = Holdings(NODE)
    holdings.take(job(5))
    holdings.resize(Capacity(400, 8 << 30))
    assert (holdings.free.cpus, holdings.free.memory) == (-100, (8 << 30) - (5 << 20))
    holdings.give_back(job(5))
    assert holdings.free == holdings.all == all_of(Capacity(400, 8 << 30))


def test_the_lowest_shard_with_room() -> None:
    holdings = Holdings(NODE)
    assert holdings.place(1000) == 0
    for number in range(SHARD_SIZE + 1):
        holdings.take(job(number, shard=holdings.place(1000)))
    assert holdings.place(1000) == 1
    assert holdings.place(0) == 0, "users have shards of their own"
    holdings.give_back(job(7))
    assert holdings.place(1000) == 0


def ends(holdings: Holdings) -> list[tuple[int, int]]:
    return [(at, grant.amount.cpus // 100) for at, grant in holdings.ends()]


def test_when_what_is_held_is_given_back_at_the_latest() -> None:
    holdings = Holdings(NODE)
    limited = replace(job(1), deadline=7_000_000, grace=2.0)
    sooner = replace(job(2), deadline=1_000_000, grace=2.0)
    for one in (limited, sooner, job(3)):
        holdings.take(one)
    assert ends(holdings) == [(3_000_000, 2), (9_000_000, 1)]
    # Cancelled, and over with processes left, which nobody knows the end of.
    holdings.note_end(replace(limited, kill_at=2_000_000))
    assert ends(holdings) == [(2_000_000, 1), (3_000_000, 2)]
    holdings.note_end(replace(limited, deadline=None))
    assert ends(holdings) == [(3_000_000, 2)]
    holdings.give_back(sooner)
    holdings.note_end(sooner)
    assert ends(holdings) == []


def test_each_change_has_a_version() -> None:
    holdings = Holdings(NODE)
    versions = [holdings.version]
    holdings.take(job(1))
    versions.append(holdings.version)
    holdings.note_end(replace(job(1), kill_at=5))
    versions.append(holdings.version)
    holdings.give_back(job(1))
    versions.append(holdings.version)
    holdings.resize(NODE)
    versions.append(holdings.version)
    assert len(set(versions)) == 5
