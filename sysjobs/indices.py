"""Which tasks an array has, and sets of them: a million take no more room than one."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain
from math import gcd

from sysjobs.errors import Refused

MAX_TASKS = 1_000_000
"""Tasks of one array."""

MAX_INDEX = 999_999_999
MAX_RANGES = 1000
"""Numbers and ranges in one text."""

MAX_RUNS = 10_000
"""Runs without a gap an array's tasks may be left in: each start of one looks at all, and writes them."""

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Places:
    """A set of tasks by their places in the array, from 0 on: runs in order, with gaps between them."""

    runs: tuple[range, ...] = ()

    @classmethod
    def of(cls, places: Iterable[int]) -> Places:
        return cls(_joined(range(place, place + 1) for place in sorted(places)))

    def __bool__(self) -> bool:
        return bool(self.runs)

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def __iter__(self) -> Iterator[int]:
        for run in self.runs:
            yield from run

    def __contains__(self, place: int) -> bool:
        at = bisect_right(self.runs, place, key=_start) - 1
        return at >= 0 and place in self.runs[at]

    def __or__(self, other: Places) -> Places:
        return Places(_joined(sorted((*self.runs, *other.runs), key=_start)))

    def __and__(self, other: Places) -> Places:
        mine, others, found = 0, 0, []
        while mine < len(self.runs) and others < len(other.runs):
            one, two = self.runs[mine], other.runs[others]
            if both := range(max(one.start, two.start), min(one.stop, two.stop)):
                found.append(both)
            if one.stop < two.stop:
                mine += 1
            else:
                others += 1
        return Places(tuple(found))

    def __sub__(self, other: Places) -> Places:
        if not self.runs or not other.runs:
            return self
        ends = [0, *(end for run in other.runs for end in (run.start, run.stop)), self.runs[-1].stop]
        gaps = (range(start, stop) for start, stop in zip(ends[::2], ends[1::2], strict=True))
        return self & Places(tuple(gap for gap in gaps if gap))

    @property
    def first(self) -> int:
        return self.runs[0].start

    def without_first(self) -> Places:
        rest = self.runs[0][1:]
        return Places((rest, *self.runs[1:]) if rest else self.runs[1:])

    def dump(self) -> str:
        return ",".join(f"{run.start}-{run.stop - 1}" for run in self.runs)

    @classmethod
    def load(cls, text: object) -> Places:
        """As `dump` wrote it. Raises ValueError for what it didn't write."""
        if not isinstance(text, str):
            raise ValueError(f"{text!r:.80} are no places")
        runs = []
        for part in text.split(",") if text else ():
            first, last = map(int, part.split("-"))
            runs.append(range(first, last + 1))
        places = cls(tuple(runs))
        if not all(runs) or _joined(runs) != places.runs:
            raise ValueError(f"{text:.80} are no places")
        return places


def _start(run: range) -> int:
    return run.start


def _joined(runs: Iterable[range]) -> tuple[range, ...]:
    """Those that touch or overlap as one; they come in order of their starts."""
    found: list[range] = []
    for run in runs:
        if found and run.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, run.stop))
        else:
            found.append(run)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Indices:
    """The numbers of an array's tasks, in the order in which these start: the first is that of place 0."""

    ranges: tuple[range, ...]

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    def __str__(self) -> str:
        return ",".join(map(_text, self.ranges))

    @property
    def all(self) -> Places:
        return Places((range(len(self)),))

    @property
    def lowest(self) -> int:
        return min(each[0] for each in self.ranges)

    @property
    def highest(self) -> int:
        return max(each[-1] for each in self.ranges)

    @property
    def step(self) -> int:
        """From one to the next, where that is the same for all; else 1."""
        return self.ranges[0].step if len(self.ranges) == 1 else 1

    def at(self, place: int) -> int:
        """The number of the task at this place."""
        for each in self.ranges:
            if place < len(each):
                return each[place]
            place -= len(each)
        raise IndexError(place)

    def place(self, index: int) -> int | None:
        """Where the task of this number stands; None: there is none."""
        before = 0
        for each in self.ranges:
            if index in each:
                return before + each.index(index)
            before += len(each)
        return None

    def places(self, wanted: Indices) -> Places:
        """Where those stand of the wanted ones that there are."""
        found: list[range] = []
        before = 0
        for each in self.ranges:
            near = [asked for asked in wanted.ranges if asked.start < each.stop and each.start < asked.stop]
            for asked in near:
                if not (both := _common(each, asked)):
                    continue
                first, last = before + each.index(both[0]), before + each.index(both[-1])
                here = range(first, last + 1, both.step // each.step)
                found += [here] if here.step == 1 else [range(place, place + 1) for place in here]
            before += len(each)
        return Places(_joined(sorted(found, key=_start)))

    def some(self, places: Places) -> Indices:
        """Those at these places."""
        stops = [*accumulate(map(len, self.ranges))]
        own = Places(tuple(map(range, [0, *stops], stops)))
        found = []
        for run in (places & own).runs:
            which = bisect_right(stops, run.start)
            before = own.runs[which].start
            found.append(self.ranges[which][run.start - before : run.stop - before])
        return Indices(tuple(found))


def _common(one: range, other: range) -> range:
    """The numbers that are in both: however many these are, it takes no longer."""
    start, stop = max(one.start, other.start), min(one.stop, other.stop)
    if one.step == other.step == 1:
        return range(start, stop)
    shared = gcd(one.step, other.step)
    apart, off = divmod(other.start - one.start, shared)
    if off:
        return range(0)
    steps = other.step // shared
    step = one.step * steps
    meet = one.start + one.step * (apart * pow(one.step // shared, -1, steps) % steps)
    return range(start + (meet - start) % step, stop, step)


def _text(numbers: range) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    step = f":{numbers.step}" if numbers.step > 1 else ""
    return f"{numbers[0]}-{numbers[-1]}{step}"


def parse_indices(text: str) -> Indices | None:
    """'0-9', '1,3,7-20:2'; None for what isn't one. Numbers may be named more than once."""
    parts = [_PART.fullmatch(part.strip()) for part in text.split(",")]
    if len(parts) > MAX_RANGES:
        return None
    found = []
    for match in parts:
        if match is None:
            return None
        first, step = int(match[1]), int(match[3] or 1)
        last = int(match[2] or first)
        if last < first or not step:
            return None
        numbers = range(first, last + 1, step)
        found.append(numbers if len(numbers) > 1 else range(first, first + 1))
    return Indices(tuple(found))


def parse_array(text: str) -> tuple[Indices | None, int | None]:
    """'0-99%10': the numbers of its tasks, and how many run at a time at most; '%10' is the latter alone.

    Raises Refused.
    """
    numbers, percent, most = text.strip().partition("%")
    limit = int(most) if most.isascii() and most.isdecimal() and len(most) < 10 else 0
    indices = parse_indices(numbers) if numbers else None
    if (percent and not limit) or (numbers and indices is None) or not text.strip():
        raise Refused(
            f"--array {text!r:.80} is no list of tasks.",
            "Give numbers and ranges, and after a % how many may run at a time: 0-99%10, 1,5,20-40:2.",
            code="bad-array",
        )
    if indices is not None:
        _check(text, indices)
    return indices, limit or None


def _check(text: str, indices: Indices) -> None:
    if len(indices) > MAX_TASKS:
        raise Refused(
            f"--array {text!r:.80} has {len(indices):,} tasks; {MAX_TASKS:,} are taken.",
            "Submit it in parts.",
            code="too-many",
        )
    stop = 0
    for each in sorted(indices.ranges, key=_start):
        # Those that lie apart can't have any in common.
        if each.start < stop and len(set(chain(*indices.ranges))) < len(indices):
            raise Refused(f"--array {text!r:.80} names a task twice.", "Name each once.", code="bad-array")
        stop = max(stop, each.stop)
