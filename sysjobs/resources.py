"""Amounts as people write them, as exact integers: CPUs in thousandths, memory in bytes, time in seconds.

Each parser takes the text and the option's name, and raises `Refused` naming both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sysjobs.errors import Refused

DEFAULT_CPUS = 500
"""CPUs of a job that asks for none, in thousandths (SkyPilot's default of half a CPU)."""

MIN_MEMORY, MAX_MEMORY = 1 << 20, 1 << 60
"""No program starts in less; who asks for it forgot the unit."""

MAX_PRIORITY = 1000
"""And the lowest is as far below 0."""

MAX_COUNT = 1_000_000
"""Of a resource that the settings name."""

MAX_SECONDS = 100 * 365 * 86400

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_MEMORY = re.compile(r"(\d{1,20}(?:\.\d{1,6})?)\s*([KMGTP]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_CPUS = re.compile(r"(\d{1,6})(?:\.(\d{1,3})0*)?", re.ASCII)
_SPAN_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(
    r"(\d{1,12}(?:\.\d{1,6})?)\s*(s(?:ecs?)?|m(?:ins?)?|h(?:rs?)?|d(?:ays?)?|w(?:eeks?)?)?", re.ASCII
)
_CLOCK = re.compile(r"(?:(\d{1,6})-)?(\d{1,6}):(\d{1,2})(?::(\d{1,2}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Amount:
    """What a job asks for: CPUs and GPUs in thousandths, memory in bytes, others of the settings by name.

    The GPUs are of one model, which may be any.
    """

    cpus: int = 0
    memory: int = 0
    gpus: int = 0
    model: str = ""
    others: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Total:
    """What several jobs have together, of any model."""

    cpus: int = 0
    memory: int = 0
    gpus: int = 0

    def plus(self, one: Amount) -> Total:
        return Total(self.cpus + one.cpus, self.memory + one.memory, self.gpus + one.gpus)

    def minus(self, one: Amount) -> Total:
        return Total(self.cpus - one.cpus, self.memory - one.memory, self.gpus - one.gpus)


def parse_cpus(text: str, option: str = "--cpus") -> int:
    """'0.5' -> 500. At most three digits after the point."""
    match = _CPUS.fullmatch(text.strip())
    if match is None:
        raise Refused(
            f"{option} {text!r} is not a number of CPUs.",
            "Give a number that isn't negative, such as 2 or 0.5, in steps of 0.001.",
            code="bad-cpus",
        )
    return int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0"))


def is_other(name: str) -> bool:
    """Whether the settings can name a resource so."""
    named = re.fullmatch(r"[A-Za-z][\w.-]{0,63}", name, re.ASCII) is not None
    return named and name not in ("cpus", "memory", "gpus")


OTHERS = "Give letters, digits, '_', '.' and '-', beginning with a letter, but not cpus, memory or gpus."


def parse_others(asked: Mapping[str, object]) -> tuple[tuple[str, int], ...]:
    """Counts of what the settings name, in the order of the names; 0 asks for nothing."""
    found = []
    for name, count in sorted(asked.items()):
        if not is_other(name):
            raise Refused(f"--resource {name!r:.80} can't be a resource's name.", OTHERS, code="bad-resource")
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_COUNT:
            raise Refused(
                f"--resource {name}={count!r:.40} is not a number from 0 to {MAX_COUNT:,}.",
                "Give NAME=COUNT, such as licence=1.",
                code="bad-resource",
            )
        if count:
            found.append((name, count))
    return tuple(found)


def dump_others(others: tuple[tuple[str, int], ...]) -> str | None:
    return json.dumps(dict(others)) if others else None


def load_others(text: str | None) -> tuple[tuple[str, int], ...]:
    """As `dump_others` wrote it. Raises ValueError."""
    others = json.loads(text) if text else {}
    if not isinstance(others, dict) or not all(
        type(count) is int and 0 < count <= MAX_COUNT for count in others.values()
    ):
        raise ValueError(f"its other resources are {text}")
    return tuple(sorted(others.items()))


def parse_memory(text: str, option: str = "--memory") -> int:
    """'4G' -> 4 * 2**30. Units are powers of 1024; a bare number is bytes."""
    match = _MEMORY.fullmatch(text.strip())
    if match is not None:
        whole, _, fraction = match[1].partition(".")
        scale = 1 << (10 * _UNITS[match[2].upper()])
        value: int = int(whole) * scale + int(fraction or 0) * scale // 10 ** len(fraction)
        if 0 < value < MIN_MEMORY:
            raise Refused(
                f"{option} {text!r} is {value} bytes, too little for any program.",
                "Give a unit, such as 512M or 4G.",
                code="bad-memory",
            )
        if 0 < value <= MAX_MEMORY:
            return value
    raise Refused(
        f"{option} {text!r} is not an amount of memory.",
        "Give a positive number with K, M, G or T, such as 512M or 4G.",
        code="bad-memory",
    )


def parse_duration(text: str, option: str) -> float:
    """'90', '90s', '1h30m', '1:30:00', '2-12:00:00' -> seconds, as a float of at most microseconds."""
    if re.fullmatch(r"\d{1,6}:\d{2}", text.strip(), re.ASCII):
        raise Refused(
            f"{option} {text!r} could be hours and minutes, or minutes and seconds.",
            "Say which: 1h30m, 90m, 1:30:00.",
            code="bad-duration",
        )
    seconds = _parse_clock(text.strip()) if ":" in text else _parse_span(text.strip())
    if seconds is None or seconds > MAX_SECONDS:
        raise Refused(
            f"{option} {text!r} is not a duration.",
            "Give seconds, or units such as 90s, 30m, 1h30m, 2d, HH:MM:SS or D-HH:MM.",
            code="bad-duration",
        )
    return seconds


def _parse_clock(text: str) -> float | None:
    match = _CLOCK.fullmatch(text)
    if match is None or int(match[3]) > 59 or int(match[4] or 0) > 59:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _parse_span(text: str) -> float | None:
    total, position = 0.0, 0
    while position < len(text):
        match = _SPAN.match(text, position)
        if match is None:
            return None
        unit = match[2]
        if unit is None and (position or match.end() != len(text)):
            return None
        total += float(match[1]) * _SPAN_UNITS[unit[0] if unit else "s"]
        position = match.end()
        while position < len(text) and text[position] == " ":
            position += 1
    return total if text else None


def format_cpus(cpus: int) -> str:
    """500 -> '0.5'."""
    return f"{cpus / 1000:g}" if cpus < 1_000_000 else str(cpus // 1000)


def format_memory(size: int) -> str:
    """4 * 2**30 -> '4G'; one digit after the point where it isn't whole."""
    for letter, power in (("T", 4), ("G", 3), ("M", 2), ("K", 1)):
        unit = 1024**power
        if size >= unit:
            return f"{size // unit}{letter}" if size % unit == 0 else f"{size / unit:.1f}{letter}"
    return str(size)


def format_duration(seconds: float) -> str:
    """5400 -> '1h 30m': the two largest units, for people."""
    whole = int(seconds)
    if whole == 0 and seconds > 0:
        return f"{seconds:.2g}s"
    parts = []
    for letter, unit in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, unit)
        if count:
            parts.append(f"{count}{letter}")
    return " ".join(parts[:2]) or "0s"
