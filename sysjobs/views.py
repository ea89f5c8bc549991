"""Jobs as the wire shows them: `Job` and `JobDetails` of io.sysjobs.varlink."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping

from sysjobs.devices import WHOLE, Access, Share, core_number, format_gpus
from sysjobs.engine.units import slice_name
from sysjobs.indices import Indices, Places
from sysjobs.jobs import Array, Attempt, Job, Reason
from sysjobs.payload import NewJob, Payload
from sysjobs.resources import format_duration
from sysjobs.sweep import Param
from sysjobs.tasks import is_without_turn
from sysjobs.transition import canceller
from sysjobs.wire import Wire, to_wire


def job_view(
    job: Job, *, log: str | None, why: Reason | None, params: Mapping[bytes, bytes] | None = None
) -> dict[str, object]:
    """A job for everybody; `log` and `params` are given to those who may read them.

    What isn't known is left out.
    """
    main, usage = job.main, job.usage
    view: dict[str, object | None] = {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "uid": job.uid,
        "status": job.status.value,
        "reason_code": why.code if why else None,
        "reason": why.text if why else None,
        "exit_code": main.code if main else None,
        "signal": main.signal if main else None,
        "attempt": job.attempt,
        "submitted_at": job.submitted_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "cpus": job.amount.cpus / 1000,
        "memory": job.amount.memory or None,
        "gpus": format_gpus(job.amount.gpus, job.amount.model) if job.amount.gpus else None,
        "resources": dict(job.amount.others) or None,
        "priority": job.priority,
        "cpu_time": None if usage.cpu_time is None else usage.cpu_time / 1_000_000,
        "peak_memory": usage.peak_memory,
        "io_read": usage.read,
        "io_written": usage.written,
        "unit": "" if job.array is not None or is_without_turn(job) else job.unit,
        "log": None if job.array is not None else log,
        "array": None if job.array is None else _array(job, job.array),
        "array_id": job.task.array_id if job.task else None,
        "task": job.task.index if job.task else None,
        "params": {name.decode(): to_wire(value) for name, value in (params or {}).items()} or None,
    }
    return _known(view)


def _array(job: Job, array: Array) -> dict[str, object]:
    """Which tasks it has, and how they are; of an array that is over none waits."""
    waiting = Places() if job.status.terminal else array.waiting
    held = Places() if job.status.terminal else array.unstarted - array.waiting
    return _known(
        {
            "indices": short(array.indices),
            "count": len(array.indices),
            "limit": array.limit,
            "waiting": short(array.indices.some(waiting)) or None,
            "held": short(array.indices.some(held)) or None,
            "running": array.live,
            "ended": {status.value: count for status, count in array.counts().items()} or None,
        }
    )


MAX_PARTS = 20


def short(indices: Indices) -> str:
    """As many parts of it as a line can have."""
    if len(indices.ranges) <= MAX_PARTS:
        return str(indices)
    return f"{Indices(indices.ranges[:MAX_PARTS])},…"


def details_view(
    job: Job,
    view: dict[str, object],
    payload: Payload | None,
    setup_log: str | None,
    warnings: list[str],
    access: Access,
    position: tuple[int, int] | None = None,
    past_log: Callable[[int], str | None] = lambda number: None,
) -> dict[str, object]:
    """Everything about a job.

    `payload`, and logs (`past_log`: that of an attempt), are given to those who may know them.
    """
    setup, cancellation = job.setup, job.cancellation
    return _known(
        {
            "job": view,
            "warnings": warnings or None,
            "spec": _spec(job, payload) if payload else None,
            "time_limit": job.time_limit,
            "grace": job.grace,
            "setup_log": setup_log,
            "setup_exit_code": setup.code if setup else None,
            "setup_signal": setup.signal if setup else None,
            "running_at": job.running_at,
            "position": position[0] if position else None,
            "pending": position[1] if position else None,
            "peak_memory": job.usage.peak_memory,
            "core_dumped": job.main.dumped if job.main and job.main.signal else None,
            "invocation_id": job.invocation_id,
            "boot_id": job.boot_id if job.array is None else None,
            "slice": slice_name(job.uid, job.shard) if job.shard is not None and job.array is None else None,
            "cancelled_by": cancellation.user if cancellation else None,
            "cancel_reason": cancellation.reason or None if cancellation else None,
            "cancel_requested_at": cancellation.at if cancellation else None,
            "held_by": job.hold.user if job.hold else None,
            "begin_at": job.conditions.begin_at,
            "devices": [_device(share, access) for share in job.shares] or None,
            "cpu_limit": "hard" if job.hard_cpus else None,
            "sent_signal": job.sent.signal if job.sent else None,
            "sent_by": job.sent.user if job.sent else None,
            "sent_at": job.sent.at if job.sent else None,
            "signal_before_limit": str(job.notice) if job.notice else None,
            "dependencies": [str(each) for each in job.conditions.dependencies] or None,
            "retry": str(job.retry) if job.retry else None,
            "attempts": [_attempt(each, past_log(each.number)) for each in job.past] or None,
        }
    )


def _attempt(attempt: Attempt, log: str | None) -> dict[str, object]:
    main, usage = attempt.main, attempt.usage
    return _known(
        {
            "number": attempt.number,
            "status": attempt.status.value,
            "reason_code": attempt.reason.code if attempt.reason else None,
            "reason": attempt.reason.text if attempt.reason else None,
            "exit_code": main.code if main else None,
            "signal": main.signal if main else None,
            "started_at": attempt.started_at,
            "ended_at": attempt.ended_at,
            "cpu_time": None if usage.cpu_time is None else usage.cpu_time / 1_000_000,
            "peak_memory": usage.peak_memory,
            "io_read": usage.read,
            "io_written": usage.written,
            "log": log,
        }
    )


def _device(share: Share, access: Access) -> dict[str, object]:
    """What of a device a job got; what kind it is where it is still there."""
    device = access.devices.get(share.device)
    return _known(
        {
            "name": share.device,
            "share": share.amount / WHOLE,
            "model": device.model if device else None,
            "uuid": device.uuid or None if device else None,
        }
    )


def ending_reason(job: Job, monotonic: int) -> Reason | None:
    """Why a launched job is being ended, and how far that is at `monotonic`; None if it isn't."""
    if job.over:
        last = job.past[-1]
        said = f": {last.reason.text}" if last.reason else "."
        return Reason("again", f"Attempt {last.number} ended as {last.status}{said} Another one follows.")
    if job.kill_at is None:
        return None
    if job.cancellation is None and job.requeue is not None and not job.timed_out:
        why = Reason("requeueing", f"Being requeued by {canceller(job, job.requeue)}")
    elif job.cancellation is not None:
        why = Reason("cancelling", f"Being cancelled by {canceller(job, job.cancellation)}")
    else:
        assert job.time_limit is not None
        why = Reason("time-limit", f"Past its time limit of {format_duration(job.time_limit)}")
    left = (job.kill_at - monotonic) / 1_000_000
    if left > 0:
        return Reason(why.code, f"{why.text}; SIGKILL follows in {format_duration(left)}.")
    ago = format_duration(-left)
    return Reason("stuck", f"{why.text}; SIGKILL was sent {ago} ago and hasn't ended it yet.")


def not_enforced(job: Job | NewJob, controllers: Container[str], shares: tuple[Share, ...] = ()) -> list[str]:
    """What a job asks for, or has, that this node counts and can't hold it to, in sentences."""
    wanted: dict[str, tuple[str, object]] = {
        "memory": ("--memory", job.amount.memory),
        "cpu": ("--cpu-limit hard", job.hard_cpus),
    }
    if any(core_number(share.device) is not None for share in shares) and "cpuset" not in controllers:
        wanted["cpuset"] = ("pin-cpus of its settings", True)
    return [
        f"This node can't enforce {option}: its cgroups have no {controller} controller. It is only counted."
        for controller, (option, asked) in wanted.items()
        if asked and controller not in controllers
    ]


def _spec(job: Job, payload: Payload) -> dict[str, object]:
    """What was asked for, in the words of JobSpec. Values of variables are the submitter's secret to keep."""
    spec: dict[str, object | None] = {
        "command": None if payload.shell is not None else [to_wire(arg) for arg in payload.command],
        "shell": None if payload.shell is None else to_wire(payload.shell),
        "name": job.name,
        "cpus": job.amount.cpus / 1000,
        "memory": str(job.amount.memory) if job.amount.memory else None,
        "gpus": format_gpus(job.amount.gpus, job.amount.model) if job.amount.gpus else None,
        "resources": dict(job.amount.others) or None,
        "setup": None if payload.setup is None else to_wire(payload.setup),
        "workdir": to_wire(payload.workdir),
        "array": None if job.array is None else asked_for(job.array),
        "params": [_param(param) for param in job.array.params] or None if job.array else None,
    }
    return _known(spec)


def asked_for(array: Array) -> str:
    """'0-99%10'."""
    return str(array.indices) + (f"%{array.limit}" if array.limit else "")


def _param(param: Param) -> Wire:
    values = b",".join(re.sub(rb"([\\,-])", rb"\\\1", value) for value in param.values)
    return to_wire(param.name + b"=" + values)


def _known(values: dict[str, object | None]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
