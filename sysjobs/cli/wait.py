"""sysjobs wait."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import click

from sysjobs.cli import outcome
from sysjobs.cli.output import emit, note, printable
from sysjobs.client import Client
from sysjobs.errors import NotFound
from sysjobs.resources import format_duration, parse_duration

if TYPE_CHECKING:
    from sysjobs.answers import JobView

_TICK = 0.25
"""How late --timeout may be noticed."""


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--timeout", metavar="TIME", help="Wait this long at most, such as 90s or 1h.")
@click.option("--propagate", is_flag=True, help="Exit with the job's own code; the highest of several.")
@click.pass_obj
def wait(socket: str | None, ids: tuple[str, ...], timeout: str | None, propagate: bool) -> int:
    """Wait until jobs have ended, and exit with the worst outcome.

    \b
    Exit codes:
      0 all succeeded, 100 one failed, 103 one was cancelled, 101 one hadn't ended by --timeout,
      102 there is no such job. With --propagate: what the program ended with, 128+N for signal N,
      126 or 127 if it couldn't be executed or found.

    \b
    Example:
      sysjobs wait 42 && echo done
      sysjobs wait 3-9 --timeout 1h
    """
    seconds = None if timeout is None else parse_duration(timeout, "--timeout")
    try:
        with Client(socket) as client:
            jobs = _wait(client, ids, seconds)
    except NotFound as error:
        error.exit_code = outcome.NOT_FOUND
        raise
    if any(not job.ended for job in jobs):
        unfinished = " ".join(str(job.label) for job in jobs if not job.ended)
        note(f"After {format_duration(seconds or 0)} these jobs hadn't ended: {unfinished}")
        return outcome.UNFINISHED
    return max(map(outcome.own_code, jobs)) if propagate else outcome.worst(jobs)


def _wait(client: Client, ids: tuple[str, ...], seconds: float | None) -> list[JobView]:
    """The jobs as they are when all have ended or the time is over."""
    deadline = None if seconds is None else monotonic() + seconds
    jobs: dict[str, JobView] = {}
    for job in client.follow(ids, 3600.0 if seconds is None else _TICK):
        news = job is None or job.label in jobs
        if job is not None:
            jobs[job.label] = job
            if job.ended:
                emit(printable(outcome.sentence(job)))
        # The first state of each comes at once; without it nothing could be said of that job.
        if deadline is not None and monotonic() >= deadline and news:
            break
    return list(jobs.values())
