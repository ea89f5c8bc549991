"""Following a job's log until the job ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from sysjobs.answers import JobDetails, JobView
from sysjobs.cli import outcome
from sysjobs.cli.logfile import LogFile, reader_gone
from sysjobs.cli.output import note
from sysjobs.client import Client
from sysjobs.errors import Denied, Refused

_TICK = 0.2
"""Seconds between two looks at a log that is followed."""


def _raise() -> None:
    raise KeyboardInterrupt


def follow(
    client: Client,
    details: JobDetails,
    *,
    setup: bool = False,
    tail: int | None = None,
    out: TextIO | None = None,
    interrupted: Callable[[], None] = _raise,
) -> JobView:
    """Copies the log until the job ends, or setup's until that is over; the job as it is then.

    At a Ctrl-C `interrupted` is called, and unless it raises, the log is followed on.
    """
    job = details.job
    log = LogFile(log_path(details, setup), tail, out)
    try:
        if not log.copy() and job.started_at is None and not job.ended:
            note(f"{outcome.sentence(job)}. Waiting for its log.")
        while not (job.ended or (setup and job.status == "RUNNING")):
            try:
                for state in client.follow([job.label], _TICK):
                    if state is not None and state.attempt != job.attempt:
                        log.copy()
                        log.close()
                        log = LogFile(log_path(client.show(job.label), setup), None, out)
                    job = state or job
                    # After the state was heard: what is in the log of a job that has ended is all of it.
                    log.copy()
                    if reader_gone():
                        raise BrokenPipeError
                    if setup and job.status == "RUNNING":
                        break
            except KeyboardInterrupt:
                interrupted()
        # Of a job that had ended before, or whose end came with the interrupt.
        if not log.copy():
            check_there(log, job, setup)
    finally:
        log.close()
    return job


def check_there(log: LogFile, job: JobView, setup: bool) -> None:
    """Whether a log that can't be found was never written, which is no error."""
    begun = not setup and (job.exit_code is not None or job.signal is not None)
    if begun and job.ended:
        raise Refused(
            f"The log {log.path} is gone.", "It was there, and somebody has removed it.", code="log-gone"
        )


def log_path(details: JobDetails, setup: bool) -> str:
    job = details.job
    if job.array is not None:
        raise Refused(
            f"Job {job.label} is an array of {job.array.count:,} tasks, each with a log of its own.",
            f"Name one, as {job.label}_{job.array.indices.partition('-')[0].partition(',')[0]}; "
            f"`sysjobs queue --tasks {job.label}` lists them.",
            code="array",
        )
    if job.log is None:
        raise Denied(
            f"The log of job {job.label} belongs to {job.user}.",
            "Only they and root can read it.",
            code="denied",
        )
    if not setup:
        return job.log
    if details.setup_log is None:
        raise Refused(f"Job {job.label} has no setup.", f"See sysjobs logs {job.label}.", code="no-setup")
    return details.setup_log


def past_log(details: JobDetails, attempt: int) -> str:
    """Where the log of an attempt is that was followed by another one."""
    log_path(details, setup=False)
    for each in details.attempts:
        if each.number == attempt and each.log is not None:
            return each.log
    raise Refused(
        f"Job {details.job.label} has had no attempt {attempt}.",
        f"Its last one is {details.job.attempt}.",
        code="no-attempt",
    )


def note_end(job: JobView, *, setup_shown: bool) -> None:
    """A line about a job that didn't end well, with where its setup's output is if that is what matters."""
    if not job.ended or job.status == "SUCCEEDED":
        return
    has = f" (sysjobs logs --setup {job.label} has its output)"
    note(outcome.sentence(job) + (has if job.status == "FAILED_SETUP" and not setup_shown else ""))
