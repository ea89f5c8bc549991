"""The jobs that wait: their order, and how many may be whose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sysjobs.errors import Refused
from sysjobs.jobs import Job
from sysjobs.pending import Pending
from tests.models import queued


def job(number: int, uid: int = 1000) -> Job:
    return replace(queued(), id=number, uid=uid)


def test_order() -> None:
    pending = Pending()
    for number in (3, 1, 2, 3):
        pending.add(job(number))
    assert [*pending] == [3, 1, 2]
    for number in (2, 2):
        pending.add_first(job(number))
    assert [*pending] == [2, 3, 1]
    for number in (3, 3, 7):
        pending.remove(number)
    assert ([*pending], len(pending)) == ([2, 1], 2)


def test_how_many_a_user_may_have() -> None:
    pending = Pending()
    pending.add(job(1))
    pending.add(job(2))
    pending.add_first(job(2))
    pending.add(job(3, 1001))
    pending.refuse_beyond(3, 1000)
    pending.refuse_beyond(2, 1001)
    with pytest.raises(Refused, match="You have 2 jobs waiting, and nobody may have more than 2") as caught:
        pending.refuse_beyond(2, 1000)
    assert caught.value.code == "too-many-pending"
    pending.remove(1)
    pending.refuse_beyond(2, 1000)
