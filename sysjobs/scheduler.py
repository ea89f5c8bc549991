"""Pure: which waiting jobs start now. First come, first served: the head of the queue is never overtaken."""

from __future__ import annotations

from collections.abc import Iterable

from sysjobs.errors import Refused
from sysjobs.jobs import Job
from sysjobs.resources import Amount, format_cpus, format_memory


def choose(pending: Iterable[Job], free: Amount, most: int) -> list[Job]:
    """The first jobs of the queue that fit into what is free, `most` of them at most."""
    chosen: list[Job] = []
    for job in pending:
        if len(chosen) == most or not job.amount.fits(free):
            break
        chosen.append(job)
        free -= job.amount
    return chosen


def why_waiting(job: Job, head: Job, free: Amount, capacity: Amount) -> str:
    """What a pending job waits for, in a sentence."""
    if job.id != head.id:
        return f"Waits behind job {head.id}, the head of the queue."
    if not job.amount.fits(capacity):
        return f"Asks for more than this node has by now: {describe(capacity)}."
    if job.amount.cpus > free.cpus:
        return f"Waits for {format_cpus(job.amount.cpus)} CPUs; {format_cpus(max(free.cpus, 0))} are free."
    if job.amount.memory > free.memory:
        free_memory = format_memory(max(free.memory, 0))
        return f"Waits for {format_memory(job.amount.memory)} of memory; {free_memory} are free."
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


def describe(amount: Amount) -> str:
    return f"{format_cpus(amount.cpus)} CPUs and {format_memory(amount.memory)} of memory"
