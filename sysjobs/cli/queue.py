"""sysjobs queue."""

from __future__ import annotations

import click

from sysjobs.answers import JobView
from sysjobs.cli.output import (
    ago,
    array_text,
    duration,
    emit,
    emit_json_list,
    job_json,
    line_id,
    note,
    params_text,
    printable,
    resources,
)
from sysjobs.client import Client
from sysjobs.jobs import Status
from sysjobs.selectors import damaged_records

COLUMNS = ("ID", "NAME", "USER", "SUBMITTED", "STARTED", "DURATION", "RESOURCES", "STATUS", "LOG")
WIDEST_NAME = 60


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("-s", "--skip-finished", is_flag=True, help="Only jobs that haven't ended.")
@click.option("-a", "--all-users", is_flag=True, help="Everybody's jobs.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([status.value for status in Status], case_sensitive=False),
    help="Only jobs of this status; can be repeated.",
)
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=0), default=1000, help="The newest N jobs (1000); 0: all."
)
@click.option("--tasks", is_flag=True, help="Tasks of arrays too; of arrays among the IDs, all of them.")
@click.option("--format", "fields", metavar="FIELDS", help="Print these columns, such as id,name,cpu_time.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects.")
@click.pass_obj
def queue(
    socket: str | None,
    ids: tuple[str, ...],
    skip_finished: bool,
    all_users: bool,
    statuses: tuple[str, ...],
    limit: int,
    tasks: bool,
    fields: str | None,
    as_json: bool,
) -> None:
    """List jobs: yours, or those with the IDs, with why they wait or how they failed.

    \b
    Example:
      sysjobs queue -s
      sysjobs queue --status failed --status failed_driver --json
      sysjobs queue 3-9
      sysjobs queue --tasks 42
      sysjobs queue --format id,name,waited,duration,cpu_time,peak_memory

    Columns of --format: id, name, user, status, reason, reason_code, exit_code, signal, attempt, priority,
    resources, submitted_at, started_at, ended_at, waited, duration, cpu_time, peak_memory, io_read,
    io_written, unit, log, params.

    An array is one line, with those of its tasks that wait: 42_[3-99%10].
    """
    if as_json and fields is not None:
        raise click.UsageError("--format and --json exclude each other: in JSON there is everything.")
    columns = None if fields is None else _columns(fields)
    with Client(socket) as client:
        jobs, left_out, damaged = client.list(
            ids or None,
            all_users=all_users or bool(ids),
            statuses=statuses or None,
            unfinished=skip_finished,
            limit=limit,
            tasks=tasks,
        )
    if as_json:
        emit_json_list(job_json(job) for job in jobs)
    elif columns is not None:
        from sysjobs.cli.columns import table_of

        emit(table_of(jobs, columns))
    else:
        emit(table(jobs))
    if left_out:
        note(f"{left_out} older job{'s are' if left_out > 1 else ' is'} left out; --limit 0 shows all.")
    if damaged:
        note(f"{damaged_records(damaged)}, and left out; `sudo sysjobs doctor` says what to do.")


def _columns(fields: str) -> list[str]:
    from sysjobs.cli.columns import parse_columns

    return parse_columns(fields)


def table(jobs: list[JobView], now: int | None = None) -> str:
    """The jobs for people. The columns PARAMS and REASON are there if any job has them."""
    from tabulate import tabulate

    more = {
        "PARAMS": [params_text(job) for job in jobs],
        "REASON": [_reason(job) for job in jobs],
    }
    shown = {name: texts for name, texts in more.items() if any(texts)}
    columns = [*COLUMNS, *shown]
    rows = [[*_row(job, now), *texts] for job, *texts in zip(jobs, *shown.values(), strict=True)]
    # Not numparse: a job called 1e5 keeps its name.
    return tabulate(rows, columns, tablefmt="plain", disable_numparse=True)


def _short(name: str) -> str:
    """Somebody's long name makes nobody's table wide; `show` and --json have all of it."""
    return name if len(name) <= WIDEST_NAME else name[: WIDEST_NAME - 1] + "…"


def _row(job: JobView, now: int | None) -> list[str]:
    return [
        line_id(job),
        _short(printable(job.name)) or "-",
        printable(job.user),
        ago(job.submitted_at, now),
        ago(job.started_at, now),
        duration(job.started_at, job.ended_at, now),
        resources(job),
        job.status,
        printable(job.log or "-"),
    ]


def _reason(job: JobView) -> str:
    """Of an array with tasks at work, how many there are of which kind comes first."""
    text = printable(job.reason or "")
    if job.array is None or not (job.array.running or job.array.ended) or job.ended:
        return text
    return f"{array_text(job.array)}. {text}".rstrip()
