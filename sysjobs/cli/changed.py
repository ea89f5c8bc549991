"""What became of jobs that somebody wished to change: a line for each, and the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sysjobs.cli.output import emit, note, printable
from sysjobs.errors import EXIT_FAILED, EXIT_OK
from sysjobs.selectors import damaged_records, nothing_found

if TYPE_CHECKING:
    from sysjobs.answers import Changed, ChangeResult

# Those that aren't as wished are marked.
_SENTENCES = {
    "cancelled": "is cancelled; it had not started.",
    "given_up": "is cancelled; none of its other tasks starts.",
    "cancelling": "is being cancelled; its processes were told to end.",
    "requeued": "is being ended; it begins again after that.",
    "held": "is held; it won't start before it is released.",
    "released": "is released.",
    "signalled": "was sent the signal.",
    "set": "is set.",
    "not_held": "wasn't held.",
}
_REFUSALS = {
    "denied": "belongs to somebody else; it was left alone.",
    "held_by_root": "is held by root; only root can release it.",
    "unstarted": "hasn't started; there is nothing to do again.",
    "too_often": "has begun too often; submit it as another job.",
    "waits": "hasn't started; nothing was sent.",
    "sets_up": "has no main process before its setup is over; --everybody would have reached that.",
    "started": "has started; `sysjobs cancel` ends it.",
    "no_array": "is no array; it has no tasks.",
    "array_held": "is held with its array; release that as a whole.",
    "part": "has no turn yet; set its array as a whole.",
    "ending": "is being ended already, for good.",
    "has_begun": "has begun; of one that runs only the time limit can be changed.",
}


def report(changed: Changed, *, ended_is_fine: bool) -> int:
    """Prints what became of each job; 1 if something of that isn't as wished."""
    code = EXIT_OK
    for result in changed.results:
        emit(describe(result))
        if result.outcome in _REFUSALS or (result.outcome == "ended" and not ended_is_fine):
            code = EXIT_FAILED
    for text in changed.missing:
        note(nothing_found(text))
    if changed.damaged:
        note(f"{damaged_records(changed.damaged)}, and left alone; `sudo sysjobs doctor` says what to do.")
    return EXIT_FAILED if changed.missing or changed.damaged else code


def describe(result: ChangeResult) -> str:
    """One line for what became of a job."""
    job = f"Job {result.label} ({printable(result.name)})" if result.name else f"Job {result.label}"
    if result.outcome == "ended":
        return f"{job} had ended before: {result.status}."
    if result.outcome == "held" and result.status == "RUNNING":
        return f"{job} is held; no more of its tasks start before it is released."
    sentence = _SENTENCES.get(result.outcome) or _REFUSALS.get(result.outcome)
    return f"{job} {sentence}" if sentence else f"{job}: {printable(result.outcome)}."
