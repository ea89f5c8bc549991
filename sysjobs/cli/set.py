"""sysjobs set."""

from __future__ import annotations

from typing import Any

import click

from sysjobs.cli.changed import report
from sysjobs.cli.submit import cpus_number
from sysjobs.client import Client


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--priority", metavar="N", type=int, help="From -1000 to 1000: the highest starts first.")
@click.option("-t", "--time", metavar="TIME", help="Its time limit, such as 1h30m, or none.")
@click.option("--cpus", metavar="N", help="CPUs, such as 2 or 0.5.")
@click.option("--memory", metavar="SIZE", help="Memory, such as 512M or 4G.")
@click.option("--gpus", metavar="GPUS", help="GPUs, such as 2, L4, A100:2 or L4:0.25.")
@click.option(
    "--array-limit",
    metavar="N",
    type=click.IntRange(min=0),
    help="So many tasks of the array may run at a time; 0: as many as fit.",
)
@click.pass_obj
def set(  # noqa: A001 - its name for users
    socket: str | None, /, ids: tuple[str, ...], cpus: str | None, **options: Any
) -> int:
    """Change what jobs asked for that wait, and print what became of each. Of one that runs, its time limit.

    What of an array runs already goes on as it is.

    \b
    Example:
      sysjobs set 42 50-59 --priority 10 --time 2h
      sysjobs set 42 --array-limit 20
    """
    with Client(socket) as client:
        changed = client.set(ids, cpus=None if cpus is None else cpus_number(cpus), **options)
    return report(changed, ended_is_fine=False)
