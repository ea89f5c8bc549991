"""Attempts of jobs in the database, and wishes for another one, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sysjobs.jobs import Attempt, Cancellation, Exit, Reason, Status, Usage


def dump_past(attempts: Sequence[Attempt]) -> str | None:
    if not attempts:
        return None
    return json.dumps([_dumped(each) for each in attempts], separators=(",", ":"))


def _dumped(attempt: Attempt) -> dict[str, object]:
    usage = attempt.usage
    found: dict[str, object] = {
        "number": attempt.number,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "status": attempt.status.value,
        "reason": attempt.reason and [attempt.reason.code, attempt.reason.text],
        "main": attempt.main and [attempt.main.code, attempt.main.signal, attempt.main.dumped],
        "setup": attempt.setup and [attempt.setup.code, attempt.setup.signal, attempt.setup.dumped],
        "usage": [usage.cpu_time, usage.peak_memory, usage.read, usage.written],
    }
    return {name: value for name, value in found.items() if value is not None}


def load_past(text: str | None) -> tuple[Attempt, ...]:
    """As `dump_past` wrote it. Raises ValueError for what it didn't write."""
    if text is None:
        return ()
    try:
        return tuple(_loaded(each) for each in json.loads(text))
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
        raise ValueError(f"its attempts are {text:.80}") from None


def _loaded(found: dict[str, Any]) -> Attempt:
    numbers = (found["number"], found["started_at"], found["ended_at"])
    if not all(type(number) is int for number in numbers):
        raise ValueError(numbers)
    reason, main, setup = found.get("reason"), found.get("main"), found.get("setup")
    return Attempt(
        *numbers,
        status=Status(found["status"]),
        reason=Reason(*reason) if reason else None,
        main=Exit(*main) if main else None,
        setup=Exit(*setup) if setup else None,
        usage=Usage(*found["usage"]),
    )


def dump_wish(wish: Cancellation | None) -> str | None:
    if wish is None:
        return None
    return json.dumps([wish.uid, wish.user, wish.reason, wish.at, wish.grace])


def load_wish(text: str | None) -> Cancellation | None:
    """As `dump_wish` wrote it. Raises ValueError for what it didn't write."""
    if text is None:
        return None
    try:
        uid, user, reason, at, grace = json.loads(text)
        return Cancellation(int(uid), str(user), str(reason), int(at), float(grace))
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"who wants it to begin again is {text:.80}") from None
