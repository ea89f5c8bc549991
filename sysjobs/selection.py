"""Which jobs a caller means by ids, ranges, tasks, names and @: looked up together, however many there are.

Nobody else is served meanwhile, so the work grows with what is asked for plus what there is, not with their
product.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sysjobs.errors import NotFound, Refused
from sysjobs.indices import MAX_RUNS, Indices, Places
from sysjobs.jobs import Job, Key
from sysjobs.peer import Peer
from sysjobs.queue import Queue
from sysjobs.selectors import ById, ByName, ByTask, Recent, Selector, nothing_found, parse_selector
from sysjobs.store import Filter, Kind, Store
from sysjobs.tasks import without_turn

MAX_IDS = 10_000
"""Ids, ranges and names in one call: nobody else is served while they are looked up."""


@dataclass(slots=True)
class Meant:
    """What a text stands for: ids, and tasks of arrays that have none yet."""

    ids: list[range] = field(default_factory=list)
    tasks: dict[int, Places] = field(default_factory=dict)


@dataclass(slots=True)
class Selection:
    """Ids of jobs that there are, tasks of arrays that have none yet, and the texts that mean nothing."""

    ids: list[int]
    tasks: dict[int, Places]
    missing: list[str]

    def __len__(self) -> int:
        return len(self.ids) + sum(map(len, self.tasks.values()))


def meant_by(peer: Peer, texts: Sequence[str], queue: Queue, store: Store, *, expand: bool = False) -> Meant:
    """All that is meant, of jobs that there may be or not; with `expand` tasks in the place of arrays."""
    found = Meant()
    for each in _meant(peer, texts, queue, store).values():
        found.ids += each.ids
        _add(found.tasks, each.tasks)
    arrays = store.find_ids(Filter(ids=found.ids, kind=Kind.ARRAYS))[0] if expand else ()
    for array_id in arrays:
        array = job_of(array_id, queue)
        tasks = _tasks(array_id, array.array.indices, queue, store) if array.array else Meant()
        found.ids += tasks.ids
        _add(found.tasks, tasks.tasks)
    if arrays:
        rest = store.find_ids(Filter(ids=found.ids, kind=Kind.UNITS))[0]
        found.ids = [_only(job_id) for job_id in rest]
    return found


def _add(tasks: dict[int, Places], more: Mapping[int, Places]) -> None:
    for array_id, places in more.items():
        tasks[array_id] = tasks.get(array_id, Places()) | places


def select(peer: Peer, texts: Sequence[str], queue: Queue, store: Store) -> Selection:
    """The jobs that there are of those that are meant. Of a range, the caller's own, and no single tasks."""
    meant = _meant(peer, texts, queue, store)
    single = [each.ids[0] for each in meant.values() if len(each.ids) == 1 and len(each.ids[0]) == 1]
    there = set(store.find_ids(Filter(ids=single))[0])
    several = [ids for each in meant.values() for ids in each.ids if len(ids) > 1]
    own = store.find_ids(Filter(ids=several, uid=None if peer.is_root else peer.uid, kind=Kind.JOBS))[0]
    found: dict[int, None] = {}
    tasks: dict[int, Places] = {}
    missing = []
    for text, each in meant.items():
        _add(tasks, each.tasks)
        if any(len(ids) > 1 for ids in each.ids):
            is_missing = all(bisect_left(own, ids.start) == bisect_left(own, ids.stop) for ids in each.ids)
        else:
            ids_there = [ids.start for ids in each.ids if len(each.ids) > 1 or ids.start in there]
            found |= dict.fromkeys(ids_there)
            is_missing = not ids_there and not each.tasks
        if is_missing:
            missing.append(text)
    found |= dict.fromkeys(own)
    if not found and not tasks:
        raise not_found(texts)
    return Selection(list(found), tasks, missing)


_LIST = re.compile(r"[\d@~_:,-]*,[\d@~_:,-]*", re.ASCII)


def bounded(ids: list[str] | None) -> list[str] | None:
    """Ids, ranges and names; '41,42' is two."""
    if ids is not None:
        parts = [text.split(",") if _LIST.fullmatch(text) else [text] for text in ids]
        ids = [text for each in parts for text in each]
    if ids is not None and len(ids) > MAX_IDS:
        raise Refused(
            f"{len(ids):,} ids are too many for one call; {MAX_IDS:,} are taken.",
            "Give ranges such as 3-9.",
            code="too-many",
        )
    return ids


def job_of(key: Key, queue: Queue) -> Job:
    """One that there is. Raises RowDamaged."""
    # The queue's memory may be ahead of the last commit.
    job = queue.find(key)
    assert job is not None
    return job


def jobs_of(ids: Sequence[int], queue: Queue, store: Store) -> tuple[list[Job], list[int]]:
    """The jobs, and the ids of those whose records are damaged; for one alone that is an error."""
    if len(ids) == 1:
        return [job_of(ids[0], queue)], []
    known = {job_id: job for job_id in ids if (job := queue.jobs.get(job_id))}
    jobs, damaged = store.get_all(job_id for job_id in ids if job_id not in known)
    stored = {job.id: job for job in jobs}
    return [job for job_id in ids if (job := known.get(job_id) or stored.get(job_id))], damaged


def all_of(selection: Selection, queue: Queue, store: Store) -> tuple[list[Job], list[int]]:
    """The same of all that were selected; a task without an id is one that waits, or was given up."""
    jobs, damaged = jobs_of(selection.ids, queue, store) if selection.ids else ([], [])
    for array_id, places in selection.tasks.items():
        array = job_of(array_id, queue)
        jobs += [without_turn(array, place) for place in places]
    return jobs, damaged


def not_found(texts: Sequence[str]) -> NotFound:
    return NotFound(
        " ".join(nothing_found(text) for text in texts[:5]) + (" …" if len(texts) > 5 else ""),
        "`sysjobs queue -a` lists the jobs there are; one that has ended goes by its id.",
        code="not-found",
    )


def _meant(peer: Peer, texts: Sequence[str], queue: Queue, store: Store) -> dict[str, Meant]:
    """What each text stands for; more than one range only for names and tasks, each of one job."""
    selectors = {text: parse_selector(text) for text in texts}
    live = queue.jobs
    names = _live_names(peer, live) if any(isinstance(each, ByName) for each in selectors.values()) else {}
    backs = [each.back for each in selectors.values() if isinstance(each, Recent)]
    newest = Filter(uid=peer.uid, kind=Kind.JOBS, limit=max(backs, default=0) + 1)
    recent = store.find_ids(newest)[0] if backs else ()

    def meant(selector: Selector) -> Meant:
        match selector:
            case ById(ids=ids):
                return Meant([ids])
            case Recent(back=back):
                return Meant([_only(recent[-1 - back])] if back < len(recent) else [])
            case ByName(name=name):
                return Meant([_only(job_id) for job_id in sorted(names.get(name, ()))])
            case ByTask(array_id=array_id, indices=indices):
                return _tasks(array_id, indices, queue, store)

    return {text: meant(selector) for text, selector in selectors.items()}


def _tasks(array_id: int, wanted: Indices, queue: Queue, store: Store) -> Meant:
    job = queue.find(array_id)
    if job is None or job.array is None:
        return Meant()
    indices = job.array.indices
    places = indices.places(wanted)
    refuse_scattered(len(places.runs))
    ids = store.find_tasks(array_id, indices.some(places)) if places else {}
    rest = places - Places.of(place for index in ids if (place := indices.place(index)) is not None)
    return Meant([_only(job_id) for job_id in ids.values()], {array_id: rest} if rest else {})


def refuse_scattered(runs: int) -> None:
    """Raise Refused for so many runs of tasks: nobody else is served while they are gone through."""
    if runs > MAX_RUNS:
        raise Refused(
            f"These tasks would leave their array in up to {runs:,} pieces; {MAX_RUNS:,} are taken.",
            "Give longer ranges without gaps, or the whole array.",
            code="too-many",
        )


def _only(job_id: int) -> range:
    return range(job_id, job_id + 1)


def _live_names(peer: Peer, live: Mapping[int, Job]) -> dict[str, list[int]]:
    """Unfinished jobs of the caller, by name; for its tasks an array stands."""
    names: defaultdict[str, list[int]] = defaultdict(list)
    for job in live.values():
        if job.uid == peer.uid and not job.status.terminal and job.task is None:
            names[job.name].append(job.id)
    return names
