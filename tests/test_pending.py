"""The jobs that wait: their turns, in lines of those that are alike, and how many are whose."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sysjobs.jobs import Job
from sysjobs.resources import Amount
from sysjobs.scheduling.pending import Pending, kind_of
from tests.models import queued


def job(number: int, cpus: int = 500, priority: int = 0, uid: int = 1000) -> Job:
    return replace(queued(), id=number, amount=Amount(cpus), priority=priority, uid=uid)


def turns(pending: Pending, wanted: Container[int] = range(10**9)) -> list[int]:
    """In order, where those that are wanted are taken."""
    taken: dict[int, list[int]] = {}
    found = []
    for job_id, _ in pending.in_turn(taken):
        if job_id in wanted:
            taken.setdefault(job_id, []).append(job_id)
        found.append(job_id)
    return found


def test_a_line_is_passed_over_with_its_first() -> None:
    pending = Pending()
    for number in range(1, 7):
        pending.add(job(number, cpus=500 + number % 2))
    assert [number for number, _ in pending.in_turn()] == [1, 2]
    assert turns(pending, {1, 3}) == [1, 2, 3, 5]
    assert turns(pending) == [1, 2, 3, 4, 5, 6]


def test_who_differs_stands_in_another_line() -> None:
    plain = queued()
    others = [
        {"uid": 7},
        {"priority": 1},
        {"amount": Amount(1)},
        {"time_limit": None},
        {"time_limit": 7.0},
        {"grace": 7.0},
    ]
    kinds = {kind_of(replace(plain, **fields)) for fields in others}  # type: ignore[arg-type]
    assert len({kind_of(plain), *kinds}) == 1 + len(others)
    assert kind_of(plain) == kind_of(replace(plain, id=7, name="other", submitted_at=7))
    assert kind_of(plain).longest == 3_630_000_000
    assert kind_of(replace(plain, time_limit=None)).longest is None


steps = st.lists(
    st.tuples(st.sampled_from(["add", "remove"]), st.integers(1, 9), st.integers(0, 2), st.integers(-1, 1)),
    max_size=40,
)


@given(steps)
def test_turns(steps: list[tuple[str, int, int, int]]) -> None:
    """However they come and go: the higher priority first, then the lower id."""
    pending = Pending()
    there: dict[int, Job] = {}
    for action, number, cpus, priority in steps:
        if action == "add":
            one = there.setdefault(number, job(number, cpus, priority, uid=cpus))
            pending.add(one)
        else:
            there.pop(number, None)
            pending.remove(number)
        in_order = sorted(there.values(), key=lambda one: (-one.priority, one.id))
        assert turns(pending) == [one.id for one in in_order]
        assert [pending.position(one.id) for one in in_order] == [*range(1, len(in_order) + 1)]
        assert len(pending) == len(there)


def test_a_long_line_that_moves_up() -> None:
    pending = Pending()
    for number in range(1, 5001):
        pending.add(job(number))
    for number in range(1, 5000):
        assert next(pending.in_turn())[0] == number
        pending.remove(number)
    pending.add(job(17))
    assert turns(pending) == [17, 5000]


def test_those_that_are_gone_take_no_memory() -> None:
    """Also behind one that stays."""
    pending = Pending()
    pending.add(job(1))
    for number in range(2, 5000):
        pending.add(job(number))
        pending.add(job(10_000 - number))
        pending.remove(number)
        pending.remove(10_000 - number)
    pending.add(job(4))
    (line,) = pending._lines.values()
    assert len(line._ids) <= 1003
    assert turns(pending) == [1, 4]
