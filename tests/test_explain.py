"""What is said to those who wait, and to those who ask for more than there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sysjobs.errors import Refused
from sysjobs.jobs import Status
from sysjobs.resources import Amount
from sysjobs.scheduling.backfill import Outlook, Reservation, Rules, outlook
from sysjobs.scheduling.explain import describe, refuse_infeasible, why_waiting
from sysjobs.scheduling.pool import Capacity, all_of
from tests.models import SECOND, node, queue, queued, runs

FREE = Rules()
GIB = 1 << 30
NODE = Capacity(4000, 8 * GIB)
ALL = Amount(4000, 8 * GIB)
WAITS = [
    (Amount(2000, GIB), Amount(1500, GIB), "Waits for CPUs: asks for 2; 1.5 of the node's 4 are free."),
    (Amount(2000, GIB), Amount(-500, GIB), "Waits for CPUs: asks for 2; 0 of the node's 4 are free."),
    (Amount(2000, 4 * GIB), Amount(4000, GIB), "Waits for memory: asks for 4G; 1G of the node's 8G is free."),
    (Amount(2000, 4 * GIB), Amount(4000, -GIB), "Waits for memory: asks for 4G; 0 of the node's 8G is free."),
    (Amount(2000, GIB), ALL, "Is about to start."),
    (Amount(2000, GIB), Amount(2000, GIB), "Is about to start."),
    (
        Amount(9000, GIB),
        ALL,
        "Asks for more than jobs may have here by now, 4 CPUs and 8G of memory: cancel it, or wait for more.",
    ),
]


@pytest.mark.parametrize(("asked", "free", "sentence"), WAITS)
def test_why_the_head_waits(asked: Amount, free: Amount, sentence: str) -> None:
    head = queued(id=1, amount=asked)
    held = Amount(4000 - free.cpus, 8 * GIB - free.memory)
    holdings = node(NODE, queued(Status.RUNNING, id=2, amount=held))
    reason = why_waiting(head, outlook(queue(head), holdings, FREE, 0), holdings, FREE, 0)
    assert (reason.code, reason.text) == ("resources", sentence)


def test_when_the_head_can_start() -> None:
    head, other = queued(id=1, amount=ALL), queued(id=2, amount=Amount(1, 0), time_limit=None)
    holdings = node(NODE, runs(9, 3000, until=5400))
    seen = outlook(queue(head, other), holdings, FREE, 0)
    assert seen == Outlook(1, Reservation(5400 * SECOND, all_of(NODE)))
    soon = why_waiting(head, seen, holdings, FREE, 0).text
    assert soon.endswith("1 of the node's 4 are free. It can start in 1h 30m at the latest.")
    behind = "Waits behind job 1, the head of the queue, which can start in {} at the latest."
    assert why_waiting(other, seen, holdings, FREE, 0).text == behind.format("1h 30m")
    assert why_waiting(other, seen, holdings, FREE, 5400 * SECOND - 1).text == behind.format("1s")
    # What should have ended hasn't.
    overdue = why_waiting(other, seen, holdings, FREE, 5400 * SECOND).text
    assert overdue == "Waits behind job 1, the head of the queue."
    # One that lacks something itself is told what, and of the head nothing.
    lacks = why_waiting(replace(other, amount=Amount(2000)), seen, holdings, FREE, 0).text
    before = "Job 1, the head of the queue, goes before it."
    assert lacks == f"Waits for CPUs: asks for 2; 1 of the node's 4 are free. {before}"
    unknown = outlook(queue(head, other), node(NODE, runs(9, 3000)), FREE, 0)
    assert why_waiting(other, unknown, holdings, FREE, 0).text == "Waits behind job 1, the head of the queue."


def test_nobody_waits() -> None:
    assert outlook(queue(), node(NODE), FREE, 0) == Outlook()


def test_one_that_waits_no_more() -> None:
    """As those are told who read of it before that is on disk."""
    holdings = node(NODE, runs(9, 4000))
    text = why_waiting(queued(id=1, amount=ALL), Outlook(), holdings, FREE, 0).text
    assert text == "Waits for CPUs: asks for 4; 0 of the node's 4 are free."


def test_describe() -> None:
    assert describe(Capacity(1500, GIB)) == "1.5 CPUs and 1G of memory"


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
    refuse_infeasible(ALL, NODE)
    refuse_infeasible(Amount(), NODE)
