"""Why a job waits, and why another one can never start here, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sysjobs.devices import WHOLE, format_gpus, is_model
from sysjobs.errors import Refused
from sysjobs.jobs import Array, Job, Reason
from sysjobs.resources import Amount, format_cpus, format_duration, format_memory
from sysjobs.scheduling.backfill import Outlook, Plan, Rules
from sysjobs.scheduling.holdings import Holdings
from sysjobs.scheduling.pending import kind_of
from sysjobs.scheduling.pool import Capacity, Pool, all_of


def why_waiting(job: Job, seen: Outlook, holdings: Holdings, rules: Rules, now: int) -> Reason:
    """What a pending job waits for."""
    kind = kind_of(job)
    if not holdings.all.fits(kind.amount):
        have = describe(holdings.capacity)
        text = f"Asks for more than jobs may have here by now, {have}: cancel it, or wait for more."
        return Reason("resources", text)
    plan = Plan(holdings, rules, now)
    limited = plan.broken(kind) or plan.full
    if limited is not None:
        return Reason("limits", limited)
    soon = ""
    # What is past that moment doesn't end though it was killed: nobody knows when it will.
    if seen.reserved is not None and seen.reserved.at is not None and seen.reserved.at > now:
        soon = format_duration(-((now - seen.reserved.at) // 1_000_000))
    lacks = next(_lacks(kind.amount, holdings.free, holdings.all), None)
    if seen.head in (None, job.id):
        when = f" It can start in {soon} at the latest." if soon else ""
        return Reason("resources", (lacks or "Is about to start.") + when)
    if lacks is not None:
        return Reason("resources", f"{lacks} Job {seen.head}, the head of the queue, goes before it.")
    when = f", which can start in {soon} at the latest" if soon else ""
    return Reason("resources", f"Waits behind job {seen.head}, the head of the queue{when}.")


def why_no_task_starts(job: Job, array: Array) -> Reason:
    """What an array waits for that has no task that may start."""
    if array.waiting:
        are = "is" if array.live == 1 else "are"
        text = f"{array.live} of its tasks {are} at work, and no more than {array.limit} may be at a time."
        return Reason("array-limit", text)
    return Reason("held", f"Its other tasks are held; `sysjobs release {job.label}` lets them go on.")


def _lacks(asked: Amount, free: Pool, whole: Pool) -> Iterator[str]:
    """What isn't free of what is asked for."""
    if asked.cpus > max(free.cpus, 0):
        of_all = f"{format_cpus(max(free.cpus, 0))} of the node's {format_cpus(whole.cpus)}"
        yield f"Waits for CPUs: asks for {format_cpus(asked.cpus)}; {of_all} are free."
    if asked.memory > max(free.memory, 0):
        of_all = f"{format_memory(max(free.memory, 0))} of the node's {format_memory(whole.memory)}"
        yield f"Waits for memory: asks for {format_memory(asked.memory)}; {of_all} is free."
    if free.pick(Amount(asked.cpus)) is None:
        yield _lacks_cores(asked, free)
    if free.pick(replace(asked, cpus=0)) is None:
        yield _lacks_gpus(asked, free, whole)
    for name, count in asked.others:
        if count > (left := max(free.others.get(name, 0), 0)):
            yield f"Waits for {name}: asks for {count}; {left} of the node's {whole.others[name]} are free."


def _lacks_cores(asked: Amount, free: Pool) -> str:
    what, left = format_cpus(asked.cpus), format_cpus(free.most_cores(asked.cpus))
    if asked.cpus < WHOLE:
        return (
            f"Waits for CPUs: asks for {what} of one to be kept to; {left} is the most that is free of one."
        )
    said = f"{left} of {format_cpus(free.cpus)} that are free are whole ones"
    return f"Waits for CPUs: asks for {what} to be kept to; {said}."


def _lacks_gpus(asked: Amount, free: Pool, whole: Pool) -> str:
    what, left = format_gpus(asked.gpus, asked.model), free.most_gpus(asked)
    if asked.gpus < WHOLE:
        return f"Waits for a GPU: asks for {what}; {format_gpus(left)} is the most that is free of one."
    fitting = sum(is_model(asked.model, device.model) for device in whole.devices)
    return f"Waits for GPUs: asks for {what}; {format_gpus(left)} of the node's {fitting} are free."


def refuse_infeasible(asked: Amount, capacity: Capacity) -> None:
    """Raise Refused for a job that this node can never run."""
    if all_of(capacity).fits(asked):
        return
    _refuse_unknown(asked, capacity)
    said = f"--memory {format_memory(asked.memory)}"
    if asked.cpus > capacity.cpus:
        said = f"--cpus {format_cpus(asked.cpus)}"
    elif asked.memory <= capacity.memory:
        said = _what_else(asked, capacity)
    raise Refused(
        f"{said} is more than this node has.",
        f"It has {describe(capacity)}; ask for no more than that.{_out_of_use(asked, capacity)}",
        code="infeasible",
    )


def _refuse_unknown(asked: Amount, capacity: Capacity) -> None:
    """Raise Refused for what this node has nothing of at all."""
    for name, _ in asked.others:
        if name not in capacity.others:
            known = ", ".join(capacity.others) or "none"
            raise Refused(
                f"This node has no resource {name!r}.",
                f"Its resources are {known}; the administrator names them in [resources].",
                code="infeasible",
            )
    if asked.gpus and not any(is_model(asked.model, device.model) for device in capacity.devices):
        models = dict.fromkeys(device.model for device in capacity.devices)
        what = f"GPU {asked.model!r}" if asked.model else "GPUs"
        have = f"It has {', '.join(models)}." if models else "It has none at all."
        raise Refused(f"This node has no {what}.", have + _out_of_use(asked, capacity), code="infeasible")


def _out_of_use(asked: Amount, capacity: Capacity) -> str:
    """Those that were meant and can't be had now."""
    meant = [
        f"{device.name}, {why}" for device, why in capacity.out_of_use if is_model(asked.model, device.model)
    ]
    return f" Out of use: {'; '.join(meant)}." if asked.gpus and meant else ""


def _what_else(asked: Amount, capacity: Capacity) -> str:
    if asked.gpus and all_of(capacity).pick(asked) is None:
        return f"--gpus {format_gpus(asked.gpus, asked.model)}"
    name, count = next((name, count) for name, count in asked.others if count > capacity.others.get(name, 0))
    return f"--resource {name}={count}"


def describe(capacity: Capacity) -> str:
    """'2 CPUs, 4G of memory, 1 NVIDIA L4 and 3 of licence'."""
    plural = "" if capacity.cpus == 1000 else "s"
    parts = [f"{format_cpus(capacity.cpus)} CPU{plural}", f"{format_memory(capacity.memory)} of memory"]
    models = [device.model for device in capacity.devices]
    parts += [f"{models.count(model)} {model}" for model in dict.fromkeys(models)]
    parts += [f"{count} of {name}" for name, count in capacity.others.items()]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
