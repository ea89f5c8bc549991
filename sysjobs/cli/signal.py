"""sysjobs signal."""

from __future__ import annotations

import click

from sysjobs.cli.changed import report
from sysjobs.client import Client


@click.command()
@click.argument("name", metavar="SIGNAL")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--everybody", is_flag=True, help="To all processes of the job, not to its main one alone.")
@click.pass_obj
def signal(socket: str | None, name: str, ids: tuple[str, ...], everybody: bool) -> int:
    """Send a signal to jobs that run, and print what became of each. Who sent it is kept with the job.

    Exits with 1 if one isn't there, waits, has ended, or is somebody else's. To end a job there is `sysjobs
    cancel`.

    \b
    Example:
      sysjobs signal USR1 42
      sysjobs signal --everybody INT train
    """
    with Client(socket) as client:
        return report(client.signal(ids, name, everybody=everybody), ended_is_fine=False)
