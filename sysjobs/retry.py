"""Pure: how often a job that failed begins again, after which failures, and how long it waits before."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sysjobs.errors import Refused

MAX_RETRIES = 100
MAX_DELAY = 86_400.0
DEFAULT_DELAY = 1.0
LONGEST_BACKOFF = 300.0
"""Seconds to which delays grow; one that is longer from the beginning stays as it is."""

CAUSES = ("signal", "time-limit", "setup", "oom", "reboot", "power-cut", "killed", "lost")
"""Codes of reasons, or what they begin with."""

_CODES = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Retry:
    """`times` more attempts at most; without `codes` and `causes` after any failure.

    `codes` are exit codes, 128 more than its number for a signal. The first retry comes after `delay`
    seconds, each further one after twice as many as the one before.
    """

    times: int
    delay: float = DEFAULT_DELAY
    codes: tuple[range, ...] = ()
    causes: tuple[str, ...] = ()

    def covers(self, code: int | None, cause: str) -> bool:
        """Whether a failure with this exit code, or this code of its reason, is one to try again after."""
        if not self.codes and not self.causes:
            return True
        if code is not None and any(code in each for each in self.codes):
            return True
        return any(cause == each or cause.startswith(f"{each}-") for each in self.causes)

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures."""
        return min(self.delay * 2.0 ** (failures - 1), max(self.delay, LONGEST_BACKOFF))

    def __str__(self) -> str:
        """'3 times after 1,33-40,oom, first after 1s'."""
        after = ",".join([*map(_text, self.codes), *self.causes]) or "any failure"
        return f"{self.times} times after {after}, first in {self.delay:g}s"


def _text(codes: range) -> str:
    return str(codes[0]) if len(codes) == 1 else f"{codes[0]}-{codes[-1]}"


def parse_retry(times: int | None, delay: float | None, on: Sequence[str]) -> Retry | None:
    """Raises Refused."""
    if not times:
        if delay is not None or on:
            raise Refused(
                "--retry-delay and --retry-on say how it is tried again, which it isn't.",
                "Give --retries N too.",
                code="bad-retry",
            )
        if times is None or times == 0:
            return None
    assert times is not None
    if not 0 < times <= MAX_RETRIES:
        raise Refused(
            f"--retries {times} is out of range.", f"Give a number from 0 to {MAX_RETRIES}.", code="bad-retry"
        )
    if delay is not None and delay > MAX_DELAY:
        raise Refused(
            f"--retry-delay: {delay:g} seconds are too long.", "Give a day at most.", code="bad-retry"
        )
    codes: list[range] = []
    causes: list[str] = []
    for text in on:
        word = text.strip().lower()
        if match := _CODES.fullmatch(word):
            first, last = int(match[1]), int(match[2] or match[1])
            if not 0 < first <= last <= 255:
                raise _bad(text)
            codes.append(range(first, last + 1))
        elif word in CAUSES:
            causes.append(word)
        else:
            raise _bad(text)
    return Retry(times, DEFAULT_DELAY if delay is None else delay, tuple(codes), tuple(causes))


def _bad(text: str) -> Refused:
    return Refused(
        f"--retry-on {text!r:.80} is neither an exit code nor a cause.",
        f"Give exit codes from 1 to 255 such as 1 or 64-78, or causes: {', '.join(CAUSES)}.",
        code="bad-retry",
    )


def dump_retry(retry: Retry | None) -> str | None:
    if retry is None:
        return None
    return json.dumps([retry.times, retry.delay, [*map(_text, retry.codes), *retry.causes]])


def load_retry(text: str | None) -> Retry | None:
    """As `dump_retry` wrote it. Raises ValueError for what it didn't write."""
    if text is None:
        return None
    try:
        times, delay, on = json.loads(text)
        return parse_retry(times, float(delay), on)
    except (TypeError, ValueError, AttributeError, RecursionError, Refused):
        raise ValueError(f"how it is tried again is {text:.80}") from None
