"""Pure: what the queue believes of a job, and what an engine sees of it -> what must have happened.

The same for a signal that just came and for a daemon that was away for a week.
"""

from __future__ import annotations

from sysjobs.engine import Boot, Observation
from sysjobs.events import Again, Ended, Event, NotStarted, RunningSince, Started
from sysjobs.jobs import CUT_OFF, CUT_OFF_AT_START, REBOOTED, REBOOTED_AT_START, Job, Outcome, Status


def events_of(job: Job, seen: Observation, now: int) -> list[Event]:
    """What happened to a launched job, in order. `now` stands in where the engine knows no time."""
    if job.array is not None or job.over or not job.status.launched:
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


def lost_to_reboot(job: Job, boot: Boot) -> Ended | Again | None:
    """The end of a job that was launched in an earlier boot than this one."""
    if job.array is not None or not job.status.launched or job.boot_id == boot.id:
        return None
    if job.over:
        return Again(boot.began)
    ended = max(boot.began, job.running_at or job.started_at or boot.began)
    # Without its unit's id nobody knows whether it had begun, and so it must not begin again.
    known = job.invocation_id is not None
    if job.boot_id == boot.shut_down:
        reason = REBOOTED if known else REBOOTED_AT_START
    else:
        reason = CUT_OFF if known else CUT_OFF_AT_START
    return Ended(ended, Outcome(Status.FAILED_DRIVER, reason))
