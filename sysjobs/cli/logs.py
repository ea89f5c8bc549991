"""sysjobs logs. The daemon says how the job fares and where its log is, which its user reads."""

from __future__ import annotations

import click

from sysjobs.cli import outcome
from sysjobs.cli.follow import check_there, log_path, note_end, past_log
from sysjobs.cli.follow import follow as follow_log
from sysjobs.cli.logfile import LogFile
from sysjobs.cli.output import emit, note, printable
from sysjobs.client import Client
from sysjobs.errors import EXIT_OK, NotFound


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends; wait for it to start.")
@click.option("--tail", metavar="N", type=click.IntRange(min=0), help="Only the last N lines.")
@click.option("--setup", is_flag=True, help="The log of the job's setup.")
@click.option("--attempt", metavar="K", type=click.IntRange(min=1), help="The log of an earlier attempt.")
@click.option("--status", is_flag=True, help="Print the job's status instead, and exit with its code.")
@click.pass_obj
def logs(
    socket: str | None,
    job_id: str,
    follow: bool,
    tail: int | None,
    setup: bool,
    attempt: int | None,
    status: bool,
) -> int:
    """Print a job's log, or follow it. Why the job didn't succeed is said on stderr once it has ended.

    \b
    Exit codes of --status, and of -f when the job has ended:
      0 succeeded, 100 failed, 101 unfinished, 102 there is no such job, 103 cancelled

    \b
    Example:
      sysjobs logs -f @
      sysjobs logs --tail 20 42
      sysjobs logs --status 42 > /dev/null || echo 'not yet, or not well'
    """
    if status and (follow or tail is not None or setup or attempt is not None):
        raise click.UsageError("--status prints no log: it goes with no other option.")
    try:
        with Client(socket) as client:
            details = client.show(job_id)
            if status:
                emit(printable(outcome.sentence(details.job)))
                return outcome.exit_code(details.job)
            if attempt is not None and attempt != details.job.attempt:
                if follow or setup:
                    raise click.UsageError(
                        "--attempt K of an earlier attempt goes with neither -f nor --setup."
                    )
                with LogFile(past_log(details, attempt), tail) as log:
                    log.copy()
                return EXIT_OK
            if follow:
                job = follow_log(client, details, setup=setup, tail=tail)
                note_end(job, setup_shown=setup)
                return EXIT_OK if setup and not job.ended else outcome.exit_code(job)
            with LogFile(log_path(details, setup), tail) as log:
                if not log.copy():
                    check_there(log, details.job, setup)
                if details.job.ended:
                    note_end(details.job, setup_shown=setup)
                elif log.copied == 0:
                    note(f"{outcome.sentence(details.job)}. It has no log yet.")
                return EXIT_OK
    except NotFound as error:
        error.exit_code = outcome.NOT_FOUND
        raise
