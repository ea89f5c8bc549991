"""sysjobs show."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from sysjobs.answer_parts import AttemptView, DeviceShare
from sysjobs.answers import JobDetails, JobView
from sysjobs.cli.output import (
    SECOND,
    ago,
    array_text,
    details_json,
    duration,
    emit,
    emit_json,
    params_text,
    printable,
    resources,
)
from sysjobs.client import Client
from sysjobs.resources import format_duration, format_memory
from sysjobs.wire import from_wire


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.pass_obj
def show(socket: str | None, job_id: str, as_json: bool) -> None:
    """Show all that is known of a job.

    \b
    Example:
      sysjobs show 42
      sysjobs show @ --json
    """
    with Client(socket) as client:
        details = client.show(job_id)
    if as_json:
        emit_json(details_json(details))
        return
    lines = [(label, text) for label, text in describe(details) if text]
    width = max(len(label) for label, _ in lines) + 2
    emit("\n".join(f"{label:{width}}{printable(text)}" for label, text in lines))


def describe(details: JobDetails, now: int | None = None) -> list[tuple[str, str]]:
    """Labels and texts for people; an empty text means that there is nothing to say."""
    job, spec = details.job, details.spec or {}
    return [
        ("ID", job.label),
        ("Name", job.name),
        ("User", f"{job.user} ({job.uid})"),
        ("Status", job.status),
        ("Reason", job.reason or ""),
        ("Tasks", "" if job.array is None else array_text(job.array)),
        ("Array", _text(spec.get("array") or (job.array.indices if job.array else ""))),
        ("Parameters", " ".join(map(_text, spec.get("params") or ())) or params_text(job)),
        ("Position", "" if details.position is None else f"{details.position} of {details.pending}"),
        ("Exit", exit_text(job.exit_code, job.signal, bool(details.core_dumped))),
        ("Setup's exit", exit_text(details.setup_exit_code, details.setup_signal, False)),
        ("Cancelled by", details.cancelled_by or ""),
        ("Cancelled at", moment(details.cancel_requested_at, now)),
        ("Cancelled for", details.cancel_reason or ""),
        ("Command", command_text(spec)),
        ("Setup", "" if spec.get("setup") is None else _text(spec["setup"])),
        ("Directory", "" if spec.get("workdir") is None else _text(spec["workdir"])),
        ("Variables", " ".join(spec.get("env") or {})),
        ("Resources", resources(job)),
        ("Devices", ", ".join(device_text(device) for device in details.devices)),
        ("CPU limit", details.cpu_limit or ""),
        ("Priority", str(job.priority)),
        ("CPU time", "" if job.cpu_time is None else format_duration(job.cpu_time)),
        ("Peak memory", _amount(details.peak_memory)),
        ("Disks", _disks(job)),
        ("Beware", " ".join(details.warnings)),
        ("Begins", "" if details.begin_at is None else local_time(details.begin_at)),
        ("After", " ".join(details.dependencies)),
        ("Held by", details.held_by or ""),
        ("Time limit", "" if details.time_limit is None else format_duration(details.time_limit)),
        ("Signal", details.signal_before_limit or ""),
        ("Was sent", sent_text(details, now)),
        ("Grace", format_duration(details.grace)),
        ("Submitted", moment(job.submitted_at, now)),
        ("Waited", "" if job.started_at is None else duration(job.submitted_at, job.started_at)),
        ("Started", moment(job.started_at, now)),
        ("Ended", moment(job.ended_at, now)),
        ("Duration", "" if job.started_at is None else duration(job.started_at, job.ended_at, now)),
        ("Attempt", str(job.attempt) if job.array is None else ""),
        ("Retries", details.retry or ""),
        *((f"Attempt {each.number}", attempt_text(each, now)) for each in details.attempts),
        ("Log", job.log or ""),
        ("Setup's log", details.setup_log or ""),
        ("Unit", job.unit),
        ("Slice", details.slice or ""),
        ("Invocation", details.invocation_id or ""),
        ("Boot", details.boot_id or ""),
    ]


def sent_text(details: JobDetails, now: int | None) -> str:
    """'SIGUSR1 by alice, 2026-11-30 03:10:11 (2 mins ago)'."""
    if details.sent_signal is None:
        return ""
    return (
        f"{exit_text(None, details.sent_signal, False)} by {details.sent_by}, {moment(details.sent_at, now)}"
    )


def attempt_text(attempt: AttemptView, now: int | None) -> str:
    """'FAILED after 3s, 2026-11-30 03:10:11 (2 mins ago): Ended with exit code 1.'"""
    ran, began = duration(attempt.started_at, attempt.ended_at), moment(attempt.started_at, now)
    return f"{attempt.status} after {ran}, {began}{f': {attempt.reason}' if attempt.reason else ''}"


def device_text(device: DeviceShare) -> str:
    """'0.25 of 0000:3b:00.0 (NVIDIA L4, GPU-...)'."""
    known = ", ".join(filter(None, (device.model, device.uuid)))
    text = f"{device.name} ({known})" if known else device.name
    return text if device.share == 1 else f"{device.share:g} of {text}"


def _amount(size: int | None) -> str:
    return "" if size is None else format_memory(size)


def _disks(job: JobView) -> str:
    if job.io_read is None or job.io_written is None:
        return ""
    return f"{_amount(job.io_read)} read, {_amount(job.io_written)} written"


def exit_text(code: int | None, signal: int | None, core_dumped: bool) -> str:
    """'exit code 3' or 'SIGSEGV, core dumped'."""
    if signal is not None:
        from sysjobs.jobs import Exit

        return str(Exit(signal=signal, dumped=core_dumped))
    return "" if code is None else f"exit code {code}"


def command_text(spec: dict[str, Any]) -> str:
    """The command as a shell would take it."""
    if spec.get("shell") is not None:
        return f"bash -c {shlex.quote(_text(spec['shell']))}"
    return shlex.join(_text(argument) for argument in spec.get("command") or ())


def moment(at: int | None, now: int | None = None) -> str:
    """'2026-11-30 03:10:11 (2 mins ago)', in the local time zone."""
    if at is None:
        return ""
    return f"{local_time(at)} ({ago(at, now)})"


def local_time(at: int) -> str:
    from datetime import datetime

    return f"{datetime.fromtimestamp(at // SECOND):%Y-%m-%d %H:%M:%S}"


def _text(value: object) -> str:
    return os.fsdecode(from_wire(value))
