"""Pure: which waiting jobs start now. First come, first served: the head of the queue is never overtaken."""

from __future__ import annotations

from collections.abc import Iterable

from sysjobs.errors import Refused
from sysjobs.jobs import Job
from sysjobs.resources import Amount, describe, format_cpus, format_memory


def choose(pending: Iterable[Job], free: Amount, capacity: Amount, most: int) -> list[Job]:
    """The first jobs of the queue that fit into what is free, `most` of them at most.

    One that asks for more than the node has by now holds up nobody: it can't start in any case.
    """
    chosen: list[Job] = []
    for job in pending:
        if not job.amount.fits(capacity):
            continue
        if len(chosen) == most or not job.amount.fits(free):
            break
        chosen.append(job)
        free -= job.amount
    return chosen


def why_waiting(job: Job, head: Job, free: Amount, capacity: Amount) -> str:
    """What a pending job waits for, in a sentence."""
    if not job.amount.fits(capacity):
        have = describe(capacity)
        return f"Asks for more than jobs may have here by now, {have}: cancel it, or wait for more."
    if job.id != head.id:
        return f"Waits behind job {head.id}, the head of the queue."
    asked, left = job.amount, Amount(max(free.cpus, 0), max(free.memory, 0))
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
