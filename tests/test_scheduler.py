"""First come, first served: what fits starts, and the head of the queue is never overtaken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.errors import Refused
from sysjobs.jobs import Job
from sysjobs.resources import Amount, describe
from sysjobs.scheduler import choose, refuse_infeasible, why_waiting
from tests.models import queued

amounts = st.builds(Amount, cpus=st.integers(0, 4), memory=st.integers(0, 4))


def jobs(*amounts: Amount) -> list[Job]:
    return [replace(queued(), id=number, amount=amount) for number, amount in enumerate(amounts, 1)]


@given(st.lists(amounts, max_size=8), amounts, st.integers(0, 8))
def test_choose(asked: list[Amount], free: Amount, most: int) -> None:
    pending = jobs(*asked)
    chosen = choose(pending, free, Amount(4, 4), most)
    assert chosen == pending[: len(chosen)], "nobody is overtaken"
    left = free
    for job in chosen:
        left -= job.amount
    assert left.cpus >= 0, "never more than is free"
    assert left.memory >= 0
    assert len(chosen) <= most
    if len(chosen) < min(most, len(pending)):
        assert not pending[len(chosen)].amount.fits(left), "nothing that could start waits"


CHOICES = [
    ([(1, 0), (1, 0), (1, 0)], (2, 0), 9, 2),
    ([(3, 0), (1, 0)], (2, 0), 9, 0),
    ([(1, 4), (1, 1)], (2, 4), 9, 1),
    ([(0, 0)] * 5, (0, 0), 3, 3),
    ([(0, 0)], (-1, 0), 9, 0),
    ([], (2, 2), 9, 0),
    # What can't start at all by now holds up nobody.
    ([(4, 0), (1, 0), (0, 5), (1, 0)], (2, 0), 9, 2),
    ([(4, 0), (3, 0), (1, 0)], (2, 0), 9, 0),
]


@pytest.mark.parametrize(("asked", "free", "most", "count"), CHOICES)
def test_choices(asked: list[tuple[int, int]], free: tuple[int, int], most: int, count: int) -> None:
    """The free amount can be negative, when an administrator has taken resources away from running jobs."""
    assert len(choose(jobs(*(Amount(*each) for each in asked)), Amount(*free), Amount(3, 4), most)) == count


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
    (head,) = jobs(asked)
    assert why_waiting(head, head, free, NODE) == sentence


def test_why_the_others_wait() -> None:
    head, other = jobs(NODE, Amount(1, 0))
    assert why_waiting(other, head, NODE, NODE) == "Waits behind job 1, the head of the queue."


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
