"""sysjobs set."""

from __future__ import annotations

import click

from sysjobs.cli.changed import report
from sysjobs.client import Client


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option(
    "--array-limit",
    metavar="N",
    type=click.IntRange(min=0),
    required=True,
    help="So many tasks of the array may run at a time; 0: as many as fit.",
)
@click.pass_obj
def set(socket: str | None, ids: tuple[str, ...], array_limit: int) -> int:  # noqa: A001 - its name for users
    """Change jobs that haven't ended, and print what became of each.

    What runs already goes on, though it be more than a new limit.

    \b
    Example:
      sysjobs set 42 --array-limit 20
    """
    with Client(socket) as client:
        return report(client.set(ids, array_limit=array_limit), ended_is_fine=False)
