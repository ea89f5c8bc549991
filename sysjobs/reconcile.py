"""Pure: what the queue believes of a job, and what an engine sees of it -> what must have happened.

The same for a signal that just came and for a daemon that was away for a week.
"""

from __future__ import annotations

from sysjobs.engine import Observation
from sysjobs.jobs import REBOOTED, Ended, Event, Job, NotStarted, Outcome, RunningSince, Started, Status


def events_of(job: Job, seen: Observation, now: int) -> list[Event]:
    """What happened to a launched job, in order. `now` stands in where the engine knows no time."""
    if not job.status.launched:
        return []
    if not seen.begun and seen.outcome is None:
        # Asked for, perhaps, and then nothing: it may be asked for again.
        return [] if seen.held else [NotStarted()]
    events: list[Event] = []
    if seen.invocation_id is not None and job.invocation_id is None:
        events.append(Started(seen.invocation_id))
    if seen.running_at is not None and job.running_at is None:
        events.append(RunningSince(seen.running_at))
    if seen.outcome is not None:
        events.append(Ended(seen.ended_at or now, seen.outcome, seen.ended_monotonic))
    return events


def lost_to_reboot(job: Job, boot_id: str, booted_at: int) -> Ended | None:
    """The end of a job that was launched in an earlier boot; `booted_at` is when this one began."""
    if not job.status.launched or job.boot_id == boot_id:
        return None
    ended = max(booted_at, job.running_at or job.started_at or booted_at)
    return Ended(ended, Outcome(Status.FAILED_DRIVER, REBOOTED))
