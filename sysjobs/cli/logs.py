"""sysjobs logs. The daemon says how the job fares and where its log is, which its user reads."""

from __future__ import annotations

import click

from sysjobs.answers import JobDetails, JobView
from sysjobs.cli import outcome
from sysjobs.cli.logfile import LogFile, reader_gone
from sysjobs.cli.output import emit, note, printable
from sysjobs.client import Client
from sysjobs.errors import EXIT_OK, Denied, NotFound, Refused

_TICK = 0.2
"""Seconds between two looks at a log that is followed."""


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends; wait for it to start.")
@click.option("--tail", metavar="N", type=click.IntRange(min=0), help="Only the last N lines.")
@click.option("--setup", is_flag=True, help="The log of the job's setup.")
@click.option("--status", is_flag=True, help="Print the job's status instead, and exit with its code.")
@click.pass_obj
def logs(socket: str | None, job_id: str, follow: bool, tail: int | None, setup: bool, status: bool) -> int:
    """Print a job's log, or follow it.

    \b
    Exit codes of --status, and of -f when the job has ended:
      0 succeeded, 100 failed, 101 unfinished, 102 there is no such job, 103 cancelled

    \b
    Example:
      sysjobs logs -f @
      sysjobs logs --tail 20 42
      sysjobs logs --status 42 > /dev/null || echo 'not yet, or not well'
    """
    if status and (follow or tail is not None or setup):
        raise click.UsageError("--status prints no log: it goes with no other option.")
    try:
        with Client(socket) as client:
            details = client.show(job_id)
            if status:
                emit(printable(outcome.sentence(details.job)))
                return outcome.exit_code(details.job)
            with LogFile(_path(details, setup), tail) as log:
                if follow:
                    return _follow(client, details, log, setup)
                if not log.copy() or (log.copied == 0 and details.job.ended):
                    _say_why_empty(details.job, setup)
                return EXIT_OK
    except NotFound as error:
        error.exit_code = outcome.NOT_FOUND
        raise


def _follow(client: Client, details: JobDetails, log: LogFile, setup: bool) -> int:
    """Copies the log until the job ends; its outcome is the exit code."""
    job = details.job
    if not log.copy() and not job.ended:
        note(f"{outcome.sentence(job)}. Waiting for its log.")
    for state in client.follow([job.id], _TICK):
        if state is not None and state.attempt != job.attempt:
            log.copy()
            log.close()
            log = LogFile(_path(client.show(job.id), setup))
        job = state or job
        # After the state was heard: what is in the log of a job that has ended is all of it.
        log.copy()
        if reader_gone():
            raise BrokenPipeError
        if setup and job.status == "RUNNING":
            return EXIT_OK
    log.close()
    code = outcome.exit_code(job)
    if code != outcome.SUCCEEDED:
        note(_how_it_ended(job, setup))
    return code


def _path(details: JobDetails, setup: bool) -> str:
    job = details.job
    if job.log is None:
        raise Denied(
            f"The log of job {job.id} belongs to {job.user}.",
            "Only they and root can read it.",
            code="denied",
        )
    if not setup:
        return job.log
    if details.setup_log is None:
        raise Refused(f"Job {job.id} has no setup.", f"See sysjobs logs {job.id}.", code="no-setup")
    return details.setup_log


def _say_why_empty(job: JobView, setup: bool) -> None:
    if not job.ended:
        note(f"{outcome.sentence(job)}. It has no log yet.")
    elif job.status != "SUCCEEDED":
        note(_how_it_ended(job, setup))


def _how_it_ended(job: JobView, setup: bool) -> str:
    if job.status == "FAILED_SETUP" and not setup:
        return f"{outcome.sentence(job)} (sysjobs logs --setup {job.id} has its output)"
    return outcome.sentence(job)
