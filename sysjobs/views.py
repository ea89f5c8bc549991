"""Jobs as the wire shows them: `Job` and `JobDetails` of io.sysjobs.varlink."""

from __future__ import annotations

from collections.abc import Container

from sysjobs.devices import WHOLE, Access, Share, core_number, format_gpus
from sysjobs.engine.units import slice_name
from sysjobs.jobs import Job, Reason
from sysjobs.payload import NewJob, Payload
from sysjobs.resources import format_duration
from sysjobs.transition import canceller
from sysjobs.wire import to_wire


def job_view(job: Job, *, log: str | None, why: Reason | None) -> dict[str, object]:
    """A job for everybody; `log` is given to those who may read it. What isn't known is left out."""
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
        "unit": job.unit,
        "log": log,
    }
    return _known(view)


def details_view(
    job: Job,
    view: dict[str, object],
    payload: Payload | None,
    setup_log: str | None,
    warnings: list[str],
    access: Access,
    position: tuple[int, int] | None = None,
) -> dict[str, object]:
    """Everything about a job; `payload` and `setup_log` are given to those who may know them."""
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
            "boot_id": job.boot_id,
            "slice": slice_name(job.uid, job.shard) if job.shard is not None else None,
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
    if job.kill_at is None:
        return None
    if job.cancellation is not None:
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
    }
    return _known(spec)


def _known(values: dict[str, object | None]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
