"""Moments as people write them: a time of day, a date, or so long from now."""

from __future__ import annotations

from datetime import datetime, timedelta

from sysjobs.errors import Refused
from sysjobs.resources import parse_duration

_FORMATS = ("%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d")
_TIMES = ("%H:%M", "%H:%M:%S")


def parse_when(text: str, option: str, now: datetime) -> datetime:
    """'+1h30m', '22:00' (the next one), '2026-12-24', '2026-12-24 18:00', in the zone of `now`."""
    if text.startswith("+"):
        return now + timedelta(seconds=parse_duration(text[1:], option))
    for pattern in _FORMATS:
        if (found := _parsed(text, pattern)) is not None:
            return _local(found, text, option)
    for pattern in _TIMES:
        if (found := _parsed(text, pattern)) is not None:
            today = datetime.combine(now.date(), found.time())
            moment = today.astimezone()
            return moment if moment > now else (today + timedelta(days=1)).astimezone()
    raise _refusal(text, option)


def parse_past(text: str, option: str, now: datetime) -> datetime:
    """'7d' for so long ago, '22:00' (the last one), a date, a date and a time."""
    for pattern in _TIMES:
        if (found := _parsed(text, pattern)) is not None:
            today = datetime.combine(now.date(), found.time()).astimezone()
            return today if today <= now else today - timedelta(days=1)
    for pattern in _FORMATS:
        if (found := _parsed(text, pattern)) is not None:
            return _local(found, text, option)
    try:
        return now - timedelta(seconds=parse_duration(text, option))
    except (Refused, OverflowError):
        raise Refused(
            f"{option} {text!r} is not a moment.",
            "Give 7d (so long ago), a time such as 22:00, or a date, 2026-11-01 or '2026-11-01 18:00'.",
            code="bad-moment",
        ) from None


def _local(found: datetime, text: str, option: str) -> datetime:
    try:
        return found.astimezone()
    except (ValueError, OverflowError):
        # Of a year that is the first or the last in one zone, and none in another.
        raise _refusal(text, option) from None


def _refusal(text: str, option: str) -> Refused:
    return Refused(
        f"{option} {text!r} is not a moment.",
        "Give +1h30m, a time such as 22:00, or a date such as 2026-12-24 or '2026-12-24 18:00'.",
        code="bad-begin",
    )


def _parsed(text: str, pattern: str) -> datetime | None:
    try:
        return datetime.strptime(text, pattern)
    except ValueError:
        return None
