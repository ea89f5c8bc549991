"""sysjobs cancel."""

from __future__ import annotations

import click

from sysjobs.answers import CancelResult
from sysjobs.cli.output import emit, note, printable
from sysjobs.client import Client
from sysjobs.errors import EXIT_FAILED, EXIT_OK
from sysjobs.selectors import damaged_records, nothing_found


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--all", "all_jobs", is_flag=True, help="All your jobs that haven't ended.")
@click.option("-a", "--all-users", is_flag=True, help="With --all: everybody's; for root alone.")
@click.option("--reason", metavar="TEXT", help="Why, for those who see the job in the queue.")
@click.option("--grace", metavar="TIME", help="Time between SIGTERM and SIGKILL, instead of the job's own.")
@click.pass_obj
def cancel(
    socket: str | None,
    ids: tuple[str, ...],
    all_jobs: bool,
    all_users: bool,
    reason: str | None,
    grace: str | None,
) -> int:
    """Cancel jobs, and print what became of each: SIGTERM, some grace, then SIGKILL, to all their processes.

    Exits with 1 if one isn't there, can't be read, or is somebody else's; one that had ended before is as
    wished.

    \b
    Example:
      sysjobs cancel 42 50-59
      sysjobs cancel train --grace 5s --reason 'wrong data'
      sysjobs cancel --all
    """
    if all_jobs == bool(ids):
        raise click.UsageError("Name jobs, or give --all." if not ids else "There are both IDs and --all.")
    if all_users and not all_jobs:
        raise click.UsageError("--all-users goes with --all.")
    with Client(socket) as client:
        results, missing, damaged = client.cancel(
            ids or None, all_jobs=all_jobs, all_users=all_users, reason=reason, grace=grace
        )
    for result in results:
        emit(describe(result))
    if all_jobs and not results:
        emit("There is nothing to cancel.")
    for text in missing:
        note(nothing_found(text))
    if damaged:
        note(f"{damaged_records(damaged)}, and left alone; `sudo sysjobs doctor` says what to do.")
    denied = any(result.outcome == "denied" for result in results)
    return EXIT_FAILED if denied or missing or damaged else EXIT_OK


def describe(result: CancelResult) -> str:
    """One line for what became of a job."""
    job = f"Job {result.id} ({printable(result.name)})" if result.name else f"Job {result.id}"
    if result.outcome == "cancelled":
        return f"{job} is cancelled; it had not started."
    if result.outcome == "cancelling":
        return f"{job} is being cancelled; its processes were told to end."
    if result.outcome == "ended":
        return f"{job} had ended before: {result.status}."
    if result.outcome == "denied":
        return f"{job} belongs to somebody else; it was left alone."
    return f"{job}: {printable(result.outcome)}."
