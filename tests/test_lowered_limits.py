"""What a job is told that is beyond a limit which was lowered after it had come."""

from __future__ import annotations

import pytest

from sysjobs.devices import Device
from sysjobs.limits import Limits
from sysjobs.resources import Amount
from sysjobs.scheduling.backfill import Rules, choose, outlook
from sysjobs.scheduling.explain import why_waiting
from sysjobs.scheduling.holdings import Holdings
from sysjobs.scheduling.pending import Pending
from sysjobs.scheduling.pool import Capacity
from tests.models import queued

NEVER = [
    (Limits(running=0), "No job starts here for now (running is 0 in [limits])."),
    (Limits(running_per_user=0), "No job of a user starts here for now (running-per-user is 0 in [limits])."),
    (
        Limits(cpus_per_user=1000),
        "Asks for more CPUs than the 1 that a user may have by now (cpus-per-user in [limits]): "
        "cancel it, or wait for more.",
    ),
    (
        Limits(gpus_per_user=1500, running_per_user=1),
        "Asks for more GPUs than the 1.5 that a user may have by now (gpus-per-user in [limits]): "
        "cancel it, or wait for more.",
    ),
    (
        Limits(memory_per_user=1 << 30, running_per_user=1),
        "Asks for more memory than the 1G that a user may have by now (memory-per-user in [limits]): "
        "cancel it, or wait for more.",
    ),
]


TWO = (Device("one", "L4"), Device("other", "L4"))


@pytest.mark.parametrize(("limits", "says"), NEVER)
def test_who_waits_for_nobody_to_end(limits: Limits, says: str) -> None:
    job, rules = queued(amount=Amount(1001, 2 << 30, 2000)), Rules(limits)
    holdings, pending = Holdings(Capacity(9000, 9 << 30, TWO)), Pending()
    pending.add(job)
    assert choose(pending, holdings, rules, 0, 9) == {}
    reason = why_waiting(job, outlook(pending, holdings, rules, 0), holdings, rules, 0)
    assert (reason.code, reason.text) == ("limits", says)
