"""How things look: errors on stderr, times and amounts for people, jobs as JSON."""

from __future__ import annotations

import json
import sys
from time import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sysjobs.answer_parts import ArrayView
    from sysjobs.answers import JobDetails, JobView

SECOND = 1_000_000
"""In the microseconds of the wire."""

_SPANS = (
    (31536000, "year"),
    (2592000, "month"),
    (604800, "week"),
    (86400, "day"),
    (3600, "hour"),
    (60, "min"),
    (1, "sec"),
)
_TIMES = (
    "submitted_at",
    "started_at",
    "ended_at",
    "running_at",
    "cancel_requested_at",
    "begin_at",
    "sent_at",
)


def printable(text: str) -> str:
    """The text with whatever a terminal could take as a command escaped: names may hold anything."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    if "\udc80" <= char <= "\udcff":
        # A byte that wasn't UTF-8.
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")


def emit(text: str) -> None:
    """One line to stdout."""
    if sys.stdout is not None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def note(text: str) -> None:
    """One line to stderr, beside what was asked for."""
    if sys.stderr is not None:
        sys.stderr.write(f"sysjobs: {printable(text)}\n")


def print_error(message: str, hint: str) -> None:
    """What went wrong and, on a line of its own, what to do."""
    note(message)
    if hint and sys.stderr is not None:
        sys.stderr.write(f"  {printable(hint)}\n")


def emit_json(value: object) -> None:
    emit(json.dumps(value, indent=2))


def emit_json_list(values: Iterable[object]) -> None:
    """One element a line: with `indent` Python's encoder is several times slower."""
    lines = ",\n".join(json.dumps(value) for value in values)
    emit(f"[\n{lines}\n]" if lines else "[]")


def ago(at: int | None, now: int | None = None) -> str:
    """'2 mins ago'."""
    if at is None:
        return "-"
    seconds = ((microseconds_now() if now is None else now) - at) // SECOND
    for span, name in _SPANS:
        count = seconds // span
        if count > 0:
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"


def duration(start: int | None, end: int | None, now: int | None = None) -> str:
    """'1m 3s'; up to now if there is no end yet."""
    if start is None:
        return "-"
    from sysjobs.resources import format_duration

    if end is None:
        end = microseconds_now() if now is None else now
    return format_duration(max(0, end - start) // SECOND)


def microseconds_now() -> int:
    return int(time() * SECOND)


def iso(at: int | None) -> str | None:
    """ISO 8601 with the local offset."""
    if at is None:
        return None
    from datetime import UTC, datetime, timedelta

    # Not fromtimestamp(at / 1e6), which rounds.
    return (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at)).astimezone().isoformat()


def line_id(job: JobView) -> str:
    """'42', '42_7', or '42_[3-99%10]' for an array: those of its tasks that had no turn, or else all."""
    if job.array is None:
        return job.label
    limit = f"%{job.array.limit}" if job.array.limit and not job.ended else ""
    parts = [*filter(None, ",".join(filter(None, (job.array.waiting, job.array.held))).split(","))]
    waiting = ",".join(sorted(parts, key=_first_number))
    return f"{job.id}_[{waiting or job.array.indices}{limit}]"


def _first_number(part: str) -> float:
    number = part.partition("-")[0]
    return int(number) if number.isdecimal() else float("inf")


def params_text(job: JobView) -> str:
    """'lr=0.1 seed=3'."""
    return " ".join(f"{name}={printable(value)}" for name, value in job.params.items())


def array_text(array: ArrayView) -> str:
    """'100 tasks: 3 have begun, 90 wait, 7 SUCCEEDED'."""
    ended = sum(array.ended.values())
    left = array.count - ended - array.running
    parts = [f"{array.running:,} ha{'ve' if array.running > 1 else 's'} begun"] if array.running else []
    parts += [f"{left:,} wait"] if left else []
    parts += [f"{count:,} {status}" for status, count in array.ended.items()]
    return f"{array.count:,} task{'s' if array.count > 1 else ''}: {', '.join(parts)}"


def resources(job: JobView) -> str:
    """'cpus=0.5,memory=4G', as the options of submit are called."""
    from sysjobs.resources import format_cpus, format_memory

    parts = [f"cpus={format_cpus(round(job.cpus * 1000))}"]
    parts += [f"memory={format_memory(job.memory)}"] if job.memory is not None else []
    parts += [f"gpus={job.gpus}"] if job.gpus is not None else []
    return ",".join(parts + [f"{name}={count}" for name, count in job.resources.items()])


def waited(job: JobView) -> float | None:
    """Seconds from the submit to the start; None as long as there is none."""
    return None if job.started_at is None else (job.started_at - job.submitted_at) / SECOND


def job_json(job: JobView) -> dict[str, object]:
    """A job as `queue --json` and `show --json` have it."""
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "status": job.status,
        "reason": job.reason,
        "reason_code": job.reason_code,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "submitted_at": iso(job.submitted_at),
        "started_at": iso(job.started_at),
        "ended_at": iso(job.ended_at),
        "waited": waited(job),
        "resources": {"cpus": job.cpus, "memory": job.memory, "gpus": job.gpus, **job.resources},
        "unit": job.unit,
        "log": job.log,
        "attempt": job.attempt,
        "priority": job.priority,
        "cpu_time": job.cpu_time,
        "peak_memory": job.peak_memory,
        "io_read": job.io_read,
        "io_written": job.io_written,
        "array": None if job.array is None else _array_json(job.array),
        "array_id": job.array_id,
        "task": job.task,
        "params": job.params,
    }


def _array_json(array: ArrayView) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(array)


def details_json(details: JobDetails) -> dict[str, object]:
    """A job with everything, as `show --json` has it."""
    from dataclasses import asdict, fields

    more = {field.name: getattr(details, field.name) for field in fields(details) if field.name != "job"}
    more["devices"] = [asdict(device) for device in details.devices]
    more["attempts"] = [
        asdict(each) | {"started_at": iso(each.started_at), "ended_at": iso(each.ended_at)}
        for each in details.attempts
    ]
    return job_json(details.job) | {
        name: iso(value) if name in _TIMES else value for name, value in more.items()
    }
