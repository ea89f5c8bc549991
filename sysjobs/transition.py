"""`transition()`, the one place where a job's status changes."""

from __future__ import annotations

from dataclasses import replace

from sysjobs.events import (
    Adjusted,
    Again,
    CancelRequested,
    Eligible,
    Ended,
    Event,
    GraceBegan,
    Held,
    Launched,
    LimitChanged,
    Noticed,
    NotStarted,
    Released,
    RequeueRequested,
    RunningSince,
    SignalSent,
    SignalWanted,
    Started,
    TaskEnded,
    TaskLaunched,
    TasksCancelled,
    TasksCounted,
    TasksHeld,
    TasksReleased,
    TimeLimitReached,
    Unmet,
)
from sysjobs.jobs import Array, Attempt, Cancellation, Exit, Job, Outcome, Reason, Sent, Status
from sysjobs.resources import format_duration


def transition(job: Job, event: Event) -> Job:
    """The job after the event. An event that comes too late or twice leaves it as it is."""
    if job.status.terminal:
        return job
    if job.array is not None:
        return _array(job, job.array, event)
    match event:
        case CancelRequested(cancellation=cancellation, kill_at=kill_at):
            if not job.status.launched:
                return _end(replace(job, cancellation=cancellation), cancellation.at, _CANCELLED_WAITING)
            if job.over:
                # There is nothing to end: no other attempt follows.
                return replace(job, cancellation=job.cancellation or cancellation)
            if job.cancellation is not None:
                # A second cancel may only shorten the grace.
                return _hasten(job, kill_at)
            before = kill_at if job.kill_at is None else job.kill_at
            wished = replace(
                job, requeue=_later(job.requeue, (kill_at - before) / 1_000_000), kill_at=kill_at
            )
            return _hasten(replace(wished, cancellation=cancellation), before)
        case Launched(at=at, boot_id=boot_id, shard=shard, deadline=deadline, shares=shares):
            if job.status is not Status.PENDING:
                return job
            status = Status.SETTING_UP if job.has_setup else Status.RUNNING
            return replace(
                job,
                status=status,
                reason=None,
                boot_id=boot_id,
                shard=shard,
                started_at=at,
                deadline=deadline,
                shares=shares,
            )
        case Held() | Released() | Eligible() | Unmet():
            return job if job.status.launched else _conditional(job, event)
        case Adjusted() if not job.status.launched:
            return _adjusted(job, event)
    if not job.status.launched:
        return job
    if job.over:
        return _again(job, event.at) if isinstance(event, Again) else job
    match event:
        case RequeueRequested(wish=wish, kill_at=kill_at):
            if job.ending:
                return job
            return _hasten(replace(job, requeue=wish), kill_at)
        case Again():
            return job
        case Adjusted(time_limit=time_limit, deadline=deadline):
            return job if job.ending else replace(job, time_limit=time_limit, deadline=deadline)
        case Started(invocation_id=invocation_id):
            return replace(job, invocation_id=invocation_id)
        case RunningSince(at=at):
            return replace(job, status=Status.RUNNING, running_at=job.running_at or at)
        case SignalWanted(sent=sent):
            return replace(job, sent=sent)
        case SignalSent():
            return replace(job, sent=replace(job.sent, due=False)) if job.sent is not None else job
        case Noticed(at=at):
            if job.notice is None or job.noticed:
                return job
            return replace(job, noticed=True, sent=Sent(job.notice.signal, "--signal", at))
        case TimeLimitReached(kill_at=kill_at):
            if job.timed_out:
                return job
            return _hasten(replace(job, timed_out=True, deadline=None), kill_at)
        case GraceBegan(kill_at=kill_at):
            return _kill_at(job, kill_at) if job.ending else job
        case NotStarted():
            if job.cancellation is not None:
                return _end(job, job.cancellation.at, _CANCELLED_WAITING)
            # A requeue has come about by itself.
            return replace(unstarted(job), status=Status.PENDING, requeue=None)
        case Ended(at=at, outcome=outcome, monotonic=monotonic):
            return _end_or_again(job, _end(job, at, outcome, monotonic), monotonic)
    raise AssertionError(event)


def _array(job: Job, array: Array, event: Event) -> Job:
    """What becomes of an array: it has no unit of its own, and is over when all of its tasks are."""
    match event:
        case CancelRequested(cancellation=cancellation):
            # A second cancel is for the tasks that run.
            given_up = replace(job, cancellation=job.cancellation or cancellation)
            return _with(given_up, array.without(array.unstarted, cancellation), cancellation.at)
        case Held(hold=hold) if job.status.launched:
            return _with(job, array.hold(array.unstarted, hold))
        case Held() | Released() | Eligible() | Unmet():
            return job if job.status.launched else _conditional(job, event)
        case TaskLaunched(at=at, boot_id=boot_id):
            first = job.started_at is None
            begun = replace(job, status=Status.RUNNING, reason=None, boot_id=boot_id, shard=0, started_at=at)
            return _with(begun if first else job, array.launch())
        case TaskEnded(at=at, status=status):
            return _with(job, array.end(status), at)
        case TasksCounted(at=at, live=live):
            lost = array.live - live
            return _with(job, array.end(Status.FAILED_DRIVER, lost), at) if lost > 0 else job
        case TasksCancelled(places=places, cancellation=cancellation):
            return _with(job, array.without(places, cancellation), cancellation.at)
        case TasksHeld(places=places, hold=hold):
            return _with(job, array.hold(places, hold))
        case TasksReleased(places=places, by_root=by_root):
            return _with(job, array.release(places, by_root=by_root))
        case Adjusted():
            return _adjusted(job, event)
        case LimitChanged(limit=limit):
            return _with(job, replace(array, limit=limit))
    raise AssertionError(event)


def _with(job: Job, array: Array, at: int = 0) -> Job:
    """The same with its tasks as they are now, and its end if none of them can have a turn or runs."""
    job = replace(job, array=array)
    return job if array.live or array.unstarted else _end(job, at, outcome_of(job, array))


def outcome_of(job: Job, array: Array) -> Outcome:
    """How an array ended: as the worst of its tasks did."""
    counts = array.counts()
    worst = next(status for status in _FROM_WORST if counts.get(status))
    if worst is Status.SUCCEEDED:
        return Outcome(worst, main=Exit(0))
    others = [f"{count:,} {status}" for status, count in counts.items() if status is not worst]
    of_all = f"{counts[worst]:,} of its {len(array.indices):,} tasks ended as {worst}"
    return Outcome(worst, Reason("tasks", ", ".join((of_all, *others)) + "."))


_FROM_WORST = (Status.FAILED, Status.FAILED_SETUP, Status.FAILED_DRIVER, Status.CANCELLED, Status.SUCCEEDED)


def _end_or_again(job: Job, ended: Job, monotonic: int | None) -> Job:
    """The job that has ended, or, where another attempt follows, with what became of this one."""
    wish, begin_at = job.requeue, None
    wanted = wish is not None and not _ended_before(job, wish, monotonic)
    if ended.status is Status.CANCELLED:
        return ended
    assert ended.ended_at is not None
    assert job.started_at is not None
    status: Status = ended.status
    reason = ended.reason
    if wanted and wish is not None:
        status, reason = Status.CANCELLED, Reason("requeued", f"Requeued by {canceller(job, wish)}.")
    elif ended.status is Status.SUCCEEDED or not _is_tried_again(job, ended):
        return ended
    elif job.retry is not None:
        begin_at = ended.ended_at + int(job.retry.pause(job.failures + 1) * 1_000_000)
    attempt = Attempt(
        job.attempt, job.started_at, ended.ended_at, status, reason, ended.main, ended.setup, ended.usage
    )
    return replace(
        job,
        past=(*job.past, attempt),
        over=True,
        requeue=None,
        conditions=replace(job.conditions, begin_at=begin_at),
        deadline=None,
        kill_at=None,
    )


def _is_tried_again(job: Job, ended: Job) -> bool:
    retry = job.retry
    if retry is None or job.failures >= retry.times:
        return False
    end = ended.main or ended.setup or Exit()
    code = end.code if end.signal is None else 128 + end.signal
    return retry.covers(code, ended.reason.code if ended.reason else "")


def _again(job: Job, at: int) -> Job:
    """The job before its next attempt."""
    last = job.past[-1]
    if job.cancellation is not None:
        return _end(
            replace(job, over=False), at, Outcome(Status.CANCELLED, None, last.main, last.setup, last.usage)
        )
    return replace(
        unstarted(job),
        status=Status.PENDING if job.conditions.begin_at is None else Status.INIT,
        attempt=job.attempt + 1,
        over=False,
    )


def unstarted(job: Job) -> Job:
    """The job without its launch and what came of that."""
    return replace(
        job,
        boot_id=None,
        shard=None,
        started_at=None,
        deadline=None,
        shares=(),
        invocation_id=None,
        running_at=None,
        noticed=False,
        sent=None,
        timed_out=False,
        kill_at=None,
    )


def _adjusted(job: Job, event: Adjusted) -> Job:
    return replace(job, priority=event.priority, amount=event.amount, time_limit=event.time_limit)


def _conditional(job: Job, event: Held | Released | Eligible | Unmet) -> Job:
    """What becomes of a job that hasn't started."""
    match event:
        case Held(hold=hold):
            # What root holds, only root lets go.
            return replace(job, status=Status.INIT, hold=job.hold if job.hold and job.hold.uid == 0 else hold)
        case Released(from_dependencies=True) if job.status is Status.INIT:
            return replace(job, hold=None, conditions=replace(job.conditions, dependencies=()))
        case Released():
            return replace(job, hold=None) if job.hold else job
        case Eligible():
            return job if job.hold or job.status is not Status.INIT else replace(job, status=Status.PENDING)
        case Unmet(at=at, outcome=outcome):
            return _end(job, at, outcome) if job.status is Status.INIT else job


_CANCELLED_WAITING = Outcome(Status.CANCELLED)


def _hasten(job: Job, kill_at: int) -> Job:
    """SIGKILL follows at `kill_at`, or earlier if that was due already."""
    return _kill_at(job, kill_at if job.kill_at is None else min(job.kill_at, kill_at))


def _kill_at(job: Job, kill_at: int) -> Job:
    """SIGKILL follows at `kill_at`; when the wish for it came stays what it was."""
    if job.kill_at is None:
        return replace(job, kill_at=kill_at)
    later = (kill_at - job.kill_at) / 1_000_000
    return replace(
        job,
        kill_at=kill_at,
        cancellation=_later(job.cancellation, later),
        requeue=_later(job.requeue, later),
    )


def _later(wish: Cancellation | None, seconds: float) -> Cancellation | None:
    return None if wish is None else replace(wish, grace=wish.grace + seconds)


def _ended_before(job: Job, wish: Cancellation, monotonic: int | None) -> bool:
    """Not to be told from `at`: somebody may have set that clock in between."""
    if job.kill_at is None or monotonic is None:
        return False
    return monotonic < job.kill_at - round(wish.grace * 1_000_000)


def _end(job: Job, at: int, outcome: Outcome, monotonic: int | None = None) -> Job:
    """The terminal job: its own outcome, or what we did to it before that."""
    status, reason = outcome.status, outcome.reason
    cancellation = job.cancellation
    if cancellation is not None and (
        outcome.status is Status.CANCELLED or not _ended_before(job, cancellation, monotonic)
    ):
        status, reason = Status.CANCELLED, _cancel_reason(job, cancellation)
    elif job.timed_out and job.time_limit is not None and not _is_external(outcome):
        status = Status.FAILED_SETUP if job.running_at is None and job.has_setup else Status.FAILED
        reason = Reason("time-limit", f"Ran into its time limit of {format_duration(job.time_limit)}.")
    elif job.sent is not None and _is_by(outcome, job.sent.signal):
        # Whoever sends SIGKILL means the program to end, and is known.
        status = Status.FAILED if outcome.main is not None else Status.FAILED_SETUP
        ago = format_duration(max(at - job.sent.at, 0) / 1_000_000)
        reason = Reason(
            "signal",
            f"Ended by {outcome.main or outcome.setup}, which {job.sent.user} had sent {ago} before.",
        )
    elif status is Status.FAILED_SETUP and not job.has_setup:
        # A setup of somebody else's: an administrator's drop-in for all services.
        status = Status.FAILED_DRIVER
    return replace(
        job,
        status=status,
        reason=reason,
        ended_at=max(at, job.submitted_at),
        main=outcome.main,
        setup=outcome.setup,
        usage=outcome.usage,
        deadline=None,
        kill_at=None,
        hold=None,
    )


def _is_by(outcome: Outcome, signal: int) -> bool:
    """Whether nothing but this signal ended it, whose sender systemd doesn't know."""
    end = outcome.main or outcome.setup
    return (
        end is not None
        and end.signal == signal
        and outcome.reason is not None
        and outcome.reason.code in ("signal", "setup", "killed")
    )


def _is_external(outcome: Outcome) -> bool:
    """What ended the job would have ended it with or without our SIGTERM."""
    return outcome.reason is not None and outcome.reason.code.partition("-")[0] in ("reboot", "power", "oom")


def _cancel_reason(job: Job, cancellation: Cancellation) -> Reason:
    before = "" if job.status.launched or job.past else " before it started"
    text = f"Cancelled{before} by {canceller(job, cancellation)}"
    if job.array is not None and job.status.launched:
        counts = ", ".join(f"{count:,} {status}" for status, count in job.array.counts().items())
        text += f"; of its {len(job.array.indices):,} tasks {counts}"
    return Reason("cancelled", f"{text}.")


def canceller(job: Job, cancellation: Cancellation) -> str:
    """Who, and why if that was said."""
    by = "its owner" if cancellation.uid == job.uid else cancellation.user
    return f"{by}: {cancellation.reason}" if cancellation.reason else by
