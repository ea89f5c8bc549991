"""Pure: which jobs a person means by '42', '3-9', '@', '@~1' or a name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sysjobs.errors import Refused
from sysjobs.indices import Indices, parse_indices

MAX_RANGE = 1_000_000
MAX_ID = 2**63 - 1

_RANGE = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?", re.ASCII)
# As the queue shows them, too: 42_[3-99%10].
_TASKS = re.compile(r"(\d{1,19})_(?:([\d:-]+)|\[([\d,:-]+)(?:%\d+)?\])", re.ASCII)
_RECENT = re.compile(r"@(?:~(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ById:
    ids: range


@dataclass(frozen=True, slots=True)
class Recent:
    """The caller's newest job, or the one `back` before it."""

    back: int


@dataclass(frozen=True, slots=True)
class ByName:
    """The caller's unfinished jobs of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class ByTask:
    """Tasks of an array."""

    array_id: int
    indices: Indices


Selector = ById | Recent | ByName | ByTask


def ranges(ids: Sequence[int]) -> str:
    """[3, 4, 5, 9] -> '3-5, 9'."""
    found: list[list[int]] = []
    for job_id in sorted(ids):
        if found and job_id == found[-1][1] + 1:
            found[-1][1] = job_id
        else:
            found.append([job_id, job_id])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def damaged_records(ids: Sequence[int]) -> str:
    """What to say of jobs that the database has and that can't be read: the beginning of a sentence."""
    if len(ids) == 1:
        return f"The record of job {ids[0]} is damaged"
    return f"The records of jobs {ranges(ids)} are damaged"


def nothing_found(text: str) -> str:
    """The sentence for a text that `parse_selector` understands and that no job answers to."""
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    match parse_selector(text):
        case ByName():
            return f"None of your jobs that haven't ended is called {shown}."
        case ById(ids=ids) if len(ids) > 1:
            return f"None of your jobs is in {shown}."
        case Recent():
            return f"You have no job {shown}."
        case ByTask(array_id=array_id):
            return f"There is no task {shown}: job {array_id} isn't there, is no array, or has no such task."
    return f"There is no job {shown}."


def parse_selector(text: str) -> Selector:
    if match := _RANGE.fullmatch(text):
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last > MAX_ID:
            raise Refused(
                f"{text!r} is not a range of job ids.",
                "Write it from the lower id to the higher, as 3-9.",
                code="bad-range",
            )
        if last - first >= MAX_RANGE:
            raise Refused(
                f"The range {text} has more than {MAX_RANGE:,} ids.",
                "Give a smaller range.",
                code="bad-range",
            )
        return ById(range(first, last + 1))
    if match := _TASKS.fullmatch(text):
        indices = parse_indices(match[2] or match[3])
        if indices is None or int(match[1]) > MAX_ID:
            raise Refused(
                f"{text!r:.80} are no tasks of an array.",
                "Give one as 42_7, several as 42_3-9 or 42_[1,3-9].",
                code="bad-range",
            )
        return ByTask(int(match[1]), indices)
    if match := _RECENT.fullmatch(text):
        return Recent(int(match[1] or 0))
    if not text or text.startswith("@"):
        raise Refused(
            f"{text!r} is not a job.",
            "Give an id, a range such as 3-9, a task such as 42_7, @, @~1, or a name.",
            code="bad-id",
        )
    return ByName(text)
