"""sysjobs requeue."""

from __future__ import annotations

import click

from sysjobs.cli.changed import report
from sysjobs.client import Client


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", metavar="TEXT", help="Why, for those who see the job in the queue.")
@click.option("--grace", metavar="TIME", help="Time between SIGTERM and SIGKILL, instead of the job's own.")
@click.pass_obj
def requeue(socket: str | None, ids: tuple[str, ...], reason: str | None, grace: str | None) -> int:
    """End jobs that run, and have them wait for their turn again, with another attempt and another log.

    Exits with 1 if one isn't there, hasn't started, has ended, or is somebody else's.

    \b
    Example:
      sysjobs requeue 42 --reason 'new data'
      sysjobs requeue 42_7
    """
    with Client(socket) as client:
        return report(client.requeue(ids, reason=reason, grace=grace), ended_is_fine=False)
