"""sysjobs hold and sysjobs release."""

from __future__ import annotations

import click

from sysjobs.cli.changed import report
from sysjobs.client import Client


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.pass_obj
def hold(socket: str | None, ids: tuple[str, ...]) -> int:
    """Keep jobs that haven't started from doing so, until they are released, and print what became of each.

    Exits with 1 if one isn't there, has started or ended, or is somebody else's. What root holds, only root
    releases.

    \b
    Example:
      sysjobs hold 42 50-59
      sysjobs submit --hold -- make
    """
    with Client(socket) as client:
        return report(client.hold(ids), ended_is_fine=False)


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.pass_obj
def release(socket: str | None, ids: tuple[str, ...]) -> int:
    """Let jobs go on that were held, and print what became of each.

    So can one go on that was to come after what never can be, where the settings have it kept.

    Exits with 1 if one isn't there, has started or ended, or is somebody else's, or held by root.

    \b
    Example:
      sysjobs release 42 50-59
    """
    with Client(socket) as client:
        return report(client.release(ids), ended_is_fine=False)
