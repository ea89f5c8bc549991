"""sysjobs cancel."""

from __future__ import annotations

import click

from sysjobs.cli.changed import report
from sysjobs.cli.output import emit
from sysjobs.client import Client


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
        changed = client.cancel(
            ids or None, all_jobs=all_jobs, all_users=all_users, reason=reason, grace=grace
        )
    if all_jobs and not changed.results:
        emit("There is nothing to cancel.")
    return report(changed, ended_is_fine=True)
