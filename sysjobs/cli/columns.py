"""The columns that `sysjobs queue --format` can print."""

from __future__ import annotations

from collections.abc import Callable

from sysjobs.answers import JobView
from sysjobs.cli.output import duration, iso, line_id, params_text, printable, resources
from sysjobs.errors import UsageError
from sysjobs.resources import format_duration, format_memory


def _text(value: object) -> str:
    return "-" if value is None or value == "" else printable(str(value))


def _size(value: int | None) -> str:
    return "-" if value is None else format_memory(value)


COLUMNS: dict[str, Callable[[JobView], str]] = {
    "id": line_id,
    "name": lambda job: _text(job.name),
    "user": lambda job: _text(job.user),
    "status": lambda job: job.status,
    "reason": lambda job: _text(job.reason),
    "reason_code": lambda job: _text(job.reason_code),
    "exit_code": lambda job: _text(job.exit_code),
    "signal": lambda job: _text(job.signal),
    "attempt": lambda job: str(job.attempt),
    "priority": lambda job: str(job.priority),
    "resources": resources,
    "submitted_at": lambda job: _text(iso(job.submitted_at)),
    "started_at": lambda job: _text(iso(job.started_at)),
    "ended_at": lambda job: _text(iso(job.ended_at)),
    "waited": lambda job: duration(job.submitted_at, job.started_at or job.ended_at),
    "duration": lambda job: duration(job.started_at, job.ended_at),
    "cpu_time": lambda job: "-" if job.cpu_time is None else format_duration(job.cpu_time),
    "peak_memory": lambda job: _size(job.peak_memory),
    "io_read": lambda job: _size(job.io_read),
    "io_written": lambda job: _size(job.io_written),
    "unit": lambda job: job.unit,
    "log": lambda job: _text(job.log),
    "params": lambda job: _text(params_text(job) or None),
}


def parse_columns(text: str) -> list[str]:
    """'id,name' -> the columns. Raises UsageError."""
    names = [name.strip().lower() for name in text.split(",")]
    for name in names:
        if name not in COLUMNS:
            raise UsageError(
                f"--format: there is no column {name!r:.80}.", f"There are {', '.join(COLUMNS)}."
            )
    return names


def table_of(jobs: list[JobView], columns: list[str]) -> str:
    from tabulate import tabulate

    rows = [[COLUMNS[name](job) for name in columns] for job in jobs]
    return tabulate(rows, [name.upper() for name in columns], tablefmt="plain", disable_numparse=True)
