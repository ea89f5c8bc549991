"""sysjobs run: submit a job and stay with it."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from sysjobs.answers import JobView
from sysjobs.cli import outcome
from sysjobs.cli.follow import follow, note_end
from sysjobs.cli.output import note
from sysjobs.cli.submit import job_options, submit_job
from sysjobs.client import Client


@click.command(context_settings={"allow_interspersed_args": False})
@job_options
@click.pass_obj
def run(socket: str | None, /, **options: Any) -> int:
    """Submit a command as a job, follow its log, and exit with the job's own code.

    What its setup prints goes to stderr. Ctrl-C cancels the job and waits for its end, a second one leaves at
    once. The job is an ordinary one: it goes on if this command is killed or its terminal is closed. Its
    standard input is empty.

    \b
    Exit codes:
      the program's own, 128+N for signal N, 126 or 127 if it couldn't be executed or found;
      100 if it failed without one, 103 if it was cancelled before it had one

    \b
    Example:
      sysjobs run --cpus 2 -- make -j2
      sysjobs run --setup 'make' -c './a.out | tee result'

    The options are those of 'sysjobs submit'.
    """
    if options["array"] or options["param"]:
        raise click.UsageError("run stays with one job: submit an array, and wait for it.")
    with Client(socket) as client:
        job_id = submit_job(client, **options)
        note(f"Submitted job {job_id}")
        job = _stay(client, job_id)
        note_end(job, setup_shown=True)
        return outcome.own_code(job)


def _stay(client: Client, job_id: int) -> JobView:
    """Follows setup's log, then the job's; the job as it ended."""
    again = False

    def interrupted() -> None:
        nonlocal again
        if again:
            raise KeyboardInterrupt
        again = True
        note(f"Cancelling job {job_id}; Ctrl-C again leaves without waiting for its end.")
        client.cancel([job_id], reason="Ctrl-C in sysjobs run")

    try:
        details = client.show(job_id)
    except KeyboardInterrupt:
        interrupted()
        details = client.show(job_id)
    if details.setup_log is not None:
        # Its end may be heard with the job's, whose own log is then there all the same.
        job = follow(client, details, setup=True, out=sys.stderr, interrupted=interrupted)
        details = replace(details, job=job)
    return follow(client, details, interrupted=interrupted)
