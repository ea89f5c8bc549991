"""sysjobs report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from sysjobs.answers import ReportRow
from sysjobs.cli.output import emit, emit_json_list, printable
from sysjobs.client import Client

COLUMNS = (
    "JOBS",
    "SUCCEEDED",
    "FAILED",
    "CANCELLED",
    "CPU TIME",
    "CPU HELD",
    "GPU HELD",
    "MEAN WAIT",
    "PEAK",
)


@click.command()
@click.option(
    "--by", type=click.Choice(["user", "name", "day"]), default="user", help="What a line is for (user)."
)
@click.option("--since", metavar="WHEN", help="Only what ended then or later: 7d (ago), 2026-11-01.")
@click.option("--until", metavar="WHEN", help="Only what ended before.")
@click.option("-a", "--all-users", is_flag=True, help="Everybody's jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects, times in seconds.")
@click.pass_obj
def report(
    socket: str | None, by: str, since: str | None, until: str | None, all_users: bool, as_json: bool
) -> None:
    """Sum up jobs that ended: how many, the CPU time they used, and what they had of CPUs and GPUs.

    CPU HELD and GPU HELD are what they had, times how long: 2 CPUs for an hour are 2h. PEAK is the most
    memory that one had, where that is known. With --json all times are sums.

    \b
    Example:
      sysjobs report --by day --since 7d
      sysjobs report -a --since 2026-11-01 --until 2026-12-01 --json
    """
    moments = [
        None if text is None else _moment(text, name)
        for name, text in (("--since", since), ("--until", until))
    ]
    if moments[0] is not None and moments[1] is not None and moments[1] <= moments[0]:
        raise click.UsageError("--until is before --since, so that there is nothing between.")
    with Client(socket) as client:
        rows = client.report(by, since=moments[0], until=moments[1], all_users=all_users)
    if as_json:
        emit_json_list(row.to_json(by) for row in rows)
    else:
        emit(table(rows, by))


def _moment(text: str, option: str) -> datetime:
    from sysjobs.cli.when import parse_past

    return parse_past(text, option, datetime.now().astimezone())


def table(rows: Sequence[ReportRow], by: str) -> str:
    """For people."""
    from tabulate import tabulate

    return tabulate(
        [_row(row) for row in rows], [by.upper(), *COLUMNS], tablefmt="plain", disable_numparse=True
    )


def _row(row: ReportRow) -> list[object]:
    from sysjobs.resources import format_duration, format_memory

    times = (row.cpu_time, row.cpu_held, row.gpu_held, row.waited / max(row.jobs, 1))
    return [
        printable(row.key), row.jobs, row.succeeded, row.failed, row.cancelled, *map(format_duration, times),
        format_memory(row.peak_memory) if row.peak_memory else "-",
    ]  # fmt: skip
