"""Pure: a sweep over parameters. An array has a task for each combination of their values."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from sysjobs.errors import Refused
from sysjobs.indices import MAX_TASKS
from sysjobs.wire import from_wire, to_wire

MAX_PARAMS = 20
MAX_TEXT = 4 << 20
"""Bytes of all values of an array's parameters."""

_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{0,99}")
_OURS = (b"SYSJOBS_", b"SLURM_", b"SKYPILOT_")
_PARTS = re.compile(rb"((?:[^\\,]|\\.?)*)(,|\Z)", re.DOTALL)
_RANGE = re.compile(rb"(\d{1,9})-(\d{1,9})(?::(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class Param:
    name: bytes
    values: tuple[bytes, ...]


def combinations(params: Sequence[Param]) -> int:
    """How many there are; 0 without parameters."""
    return prod(len(param.values) for param in params) if params else 0


def longest(params: Sequence[Param]) -> int:
    """The index of a combination than which none is longer."""
    index = 0
    for param in params:
        index = index * len(param.values) + max(
            range(len(param.values)), key=lambda at: len(param.values[at])
        )
    return index


def values_of(params: Sequence[Param], index: int) -> dict[bytes, bytes]:
    """What the task of this number gets: the last parameter changes first, as in nested loops."""
    found: dict[bytes, bytes] = {}
    for param in reversed(params):
        index, which = divmod(index, len(param.values))
        found[param.name] = param.values[which]
    return dict(reversed(found.items()))


def parse_params(texts: Sequence[bytes]) -> tuple[Param, ...]:
    """'lr=0.1,0.01', 'seed=1-5' or 'seed=01-10:3'. A backslash before a comma or a dash makes it plain.

    Raises Refused.
    """
    params = tuple(map(_param, texts))
    names = [param.name for param in params]
    if len(set(names)) < len(names) or len(params) > MAX_PARAMS:
        raise Refused(
            f"--param is given {len(names)} times, for {len(set(names))} names.",
            f"Give each of up to {MAX_PARAMS} parameters once, with all of its values: lr=0.1,0.01.",
            code="bad-param",
        )
    if params and combinations(params) > MAX_TASKS:
        raise Refused(
            f"These parameters have {combinations(params):,} combinations; {MAX_TASKS:,} are taken.",
            "Submit them in parts.",
            code="too-many",
        )
    if sum(len(value) for param in params for value in param.values) > MAX_TEXT:
        raise Refused(
            "The values of the parameters are too long together.",
            f"Give up to {MAX_TEXT:,} bytes.",
            code="too-long",
        )
    return params


def _param(text: bytes) -> Param:
    name, given, values = text.partition(b"=")
    if not _NAME.fullmatch(name) or not given or name.startswith(_OURS):
        raise Refused(
            f"--param {_shown(text)} is not NAME=VALUES.",
            "Give a name of letters, digits and _ (which doesn't begin with SYSJOBS_ or SLURM_), and values: "
            "lr=0.1,0.01, or seed=1-5.",
            code="bad-param",
        )
    return Param(name, tuple(value for part in _split(values) for value in _values(part, text)))


def _split(values: bytes) -> list[bytes]:
    """At commas without a backslash before them."""
    found = []
    at = 0
    while match := _PARTS.match(values, at):
        found.append(match[1])
        at = match.end()
        if not match[2]:
            break
    return found


def _values(part: bytes, text: bytes) -> list[bytes]:
    match = _RANGE.fullmatch(part)
    if match is None:
        return [re.sub(rb"\\(.)", rb"\1", part, flags=re.DOTALL)]
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if last < first or not step or (last - first) // step >= MAX_TASKS:
        raise Refused(
            f"--param {_shown(text)}: {part.decode()} is no range.",
            f"Give up to {MAX_TASKS:,} numbers from the lower to the higher, as 1-5 or 0-100:10; "
            "a text with a dash is written 5\\-1.",
            code="bad-param",
        )
    # 01-10 keeps its zeros.
    width = len(match[1]) if match[1].startswith(b"0") else 0
    return [b"%0*d" % (width, number) for number in range(first, last + 1, step)]


def _shown(data: bytes) -> str:
    text = data[:60].decode("utf-8", "replace")
    return repr(text + ("…" if len(data) > 60 else ""))


def dump_params(params: Sequence[Param]) -> str | None:
    if not params:
        return None
    data = [[to_wire(param.name), [to_wire(value) for value in param.values]] for param in params]
    return json.dumps(data, separators=(",", ":"))


@lru_cache(maxsize=8)
def load_params(text: str | None) -> tuple[Param, ...]:
    """As `dump_params` wrote them. Raises ValueError for what it didn't write."""
    if text is None:
        return ()
    try:
        params = tuple(
            Param(from_wire(name), tuple(from_wire(value) for value in values))
            for name, values in json.loads(text)
        )
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"its parameters are {text:.80}") from None
    if not params or not all(_NAME.fullmatch(param.name) and param.values for param in params):
        raise ValueError(f"its parameters are {text:.80}")
    return params
