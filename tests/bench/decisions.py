"""How long one decision of the scheduler takes, however many jobs wait.

    python3 -m tests.bench.decisions

Queues of 1,000 to 100,000 jobs on a node that is full, behind a head that waits: jobs that are all alike, of
50 kinds, that all differ, and that want GPUs besides. Medians of interleaved rounds; their ratio to the
shortest queue counts.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from sysjobs.devices import Device
from sysjobs.jobs import Status
from sysjobs.resources import Amount
from sysjobs.scheduling.backfill import Rules, choose
from sysjobs.scheduling.holdings import Holdings
from sysjobs.scheduling.pending import Pending
from sysjobs.scheduling.pool import Capacity
from tests.models import queued

DEVICES = tuple(Device(f"gpu{number}", ("L4", "A100")[number % 2]) for number in range(8))
NODE = Capacity(64_000, 256 << 30, DEVICES)
RUNNING = 200
LENGTHS = (1_000, 10_000, 100_000)
ROUNDS = 31

GPUS = (250, 500, 750, 1000, 2000, 4000)
MODELS = ("", "L4", "A100")
KINDS: dict[str, Callable[[int], Amount]] = {
    "all alike": lambda number: Amount(4000, 1 << 30),
    "of 50 kinds": lambda number: Amount(1000 * (1 + number % 50), 1 << 30),
    "all differ": lambda number: Amount(1000 * (1 + number % 50), 1 << 30 | number),
    "for GPUs": lambda number: Amount(0, 1 << 30 | number, GPUS[number % 6], MODELS[number % 3]),
}


def full_node() -> Holdings:
    """Jobs that end at random times have all of its CPUs."""
    chance, holdings = random.Random(1), Holdings(NODE)
    for number in range(RUNNING):
        amount = Amount(NODE.cpus // RUNNING, 1 << 20)
        job = queued(Status.RUNNING, amount=amount, deadline=chance.randint(1, 10**12))
        holdings.take(replace(job, id=10**9 + number))
    return holdings


def queue(length: int, amount: Callable[[int], Amount]) -> Pending:
    pending, plain = Pending(), queued()
    pending.add(replace(plain, id=1, amount=Amount(NODE.cpus, NODE.memory, 4000)))
    for number in range(2, length + 1):
        limit = None if number % 3 else float(60 * (1 + number % 7))
        pending.add(replace(plain, id=number, amount=amount(number), time_limit=limit))
    return pending


def main() -> None:
    holdings = full_node()
    queues = {(name, length): queue(length, kind) for name, kind in KINDS.items() for length in LENGTHS}
    times: dict[tuple[str, int], list[float]] = {case: [] for case in queues}
    for _ in range(ROUNDS):
        for case, pending in queues.items():
            start = time.perf_counter()
            choose(pending, holdings, Rules(), 0, 16)
            times[case].append(1000 * (time.perf_counter() - start))
    print(f"{ROUNDS} rounds, load {os.getloadavg()[0]:.1f}; milliseconds of a decision")
    print(f"{'':14}{'jobs':>9}{'median':>9}{'max':>9}{'ratio':>8}")
    for (name, length), values in times.items():
        ratio = statistics.median(values) / statistics.median(times[name, LENGTHS[0]])
        print(f"{name:14}{length:9,}{statistics.median(values):9.3f}{max(values):9.3f}{ratio:8.2f}")


if __name__ == "__main__":
    main()
