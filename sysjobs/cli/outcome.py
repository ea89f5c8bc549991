"""Exit codes that tell how jobs ended, as SkyPilot's `logs --status` has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sysjobs.answers import JobView

SUCCEEDED = 0
FAILED = 100
UNFINISHED = 101
NOT_FOUND = 102
CANCELLED = 103

# From bad to worse. Unfinished is worst: how it ends isn't known.
_BY_BADNESS = (SUCCEEDED, CANCELLED, FAILED, UNFINISHED)


def exit_code(job: JobView) -> int:
    if not job.ended:
        return UNFINISHED
    if job.status == "SUCCEEDED":
        return SUCCEEDED
    return CANCELLED if job.status == "CANCELLED" else FAILED


def worst(jobs: Iterable[JobView]) -> int:
    return max((exit_code(job) for job in jobs), key=_BY_BADNESS.index, default=SUCCEEDED)


def own_code(job: JobView) -> int:
    """What the job's program ended with, as a shell would say it.

    A job without such a code, or one that didn't succeed although its program ended with 0, has the code of
    its status.
    """
    if job.ended and job.signal:
        return 128 + job.signal
    if job.ended and job.exit_code:
        return job.exit_code
    return exit_code(job)


def sentence(job: JobView) -> str:
    """'Job 42 FAILED: exit code 3.'"""
    reason = (job.reason or "").removesuffix(".")
    return f"Job {job.label} {job.status}: {reason}" if reason else f"Job {job.label} {job.status}"
