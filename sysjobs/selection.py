"""Which jobs a caller means by ids, ranges, names and @: looked up together, however many there are.

Nobody else is served meanwhile, so the work grows with what is asked for plus what there is, not with their
product.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence

from sysjobs.errors import NotFound, Refused
from sysjobs.jobs import Job
from sysjobs.peer import Peer
from sysjobs.selectors import ById, ByName, Recent, Selector, nothing_found, parse_selector
from sysjobs.store import Filter, Store

MAX_IDS = 10_000
"""Ids, ranges and names in one call: nobody else is served while they are looked up."""


def ranges_of(peer: Peer, texts: Sequence[str], live: Mapping[int, Job], store: Store) -> list[range]:
    """All ids that are meant, of jobs that there may be or not."""
    return [ids for those in _meant(peer, texts, live, store).values() for ids in those]


def select(
    peer: Peer, texts: Sequence[str], live: Mapping[int, Job], store: Store
) -> tuple[list[int], list[str]]:
    """Ids of jobs that there are, and those of `texts` that mean none. Of a range, the caller's own."""
    meant = _meant(peer, texts, live, store)
    single = [those[0] for those in meant.values() if len(those) == 1 and len(those[0]) == 1]
    there = set(store.find_ids(Filter(ids=single))[0])
    several = [ids for those in meant.values() for ids in those if len(ids) > 1]
    own = store.find_ids(Filter(ids=several, uid=None if peer.is_root else peer.uid))[0]
    found: dict[int, None] = {}
    missing = []
    for text, those in meant.items():
        if any(len(ids) > 1 for ids in those):
            is_missing = all(bisect_left(own, ids.start) == bisect_left(own, ids.stop) for ids in those)
        else:
            ids_there = [ids.start for ids in those if len(those) > 1 or ids.start in there]
            found |= dict.fromkeys(ids_there)
            is_missing = not ids_there
        if is_missing:
            missing.append(text)
    found |= dict.fromkeys(own)
    if not found:
        raise not_found(texts)
    return list(found), missing


_LIST = re.compile(r"[\d@~,-]*,[\d@~,-]*", re.ASCII)


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


def job_of(job_id: int, live: Mapping[int, Job], store: Store) -> Job:
    """One that there is. Raises RowDamaged."""
    # The queue's memory may be ahead of the last commit.
    job = live.get(job_id) or store.get(job_id)
    assert job is not None
    return job


def jobs_of(ids: Sequence[int], live: Mapping[int, Job], store: Store) -> tuple[list[Job], list[int]]:
    """The jobs, and the ids of those whose records are damaged; for one alone that is an error."""
    if len(ids) == 1:
        return [job_of(ids[0], live, store)], []
    known = {job_id: job for job_id in ids if (job := live.get(job_id))}
    jobs, damaged = store.get_all(job_id for job_id in ids if job_id not in known)
    stored = {job.id: job for job in jobs}
    return [job for job_id in ids if (job := known.get(job_id) or stored.get(job_id))], damaged


def not_found(texts: Sequence[str]) -> NotFound:
    return NotFound(
        " ".join(nothing_found(text) for text in texts[:5]) + (" …" if len(texts) > 5 else ""),
        "`sysjobs queue -a` lists the jobs there are; one that has ended goes by its id.",
        code="not-found",
    )


def _meant(peer: Peer, texts: Sequence[str], live: Mapping[int, Job], store: Store) -> dict[str, list[range]]:
    """Of each text the ids that it stands for; more than one range only for a name, each of one job."""
    selectors = {text: parse_selector(text) for text in texts}
    names = _live_names(peer, live) if any(isinstance(each, ByName) for each in selectors.values()) else {}
    backs = [each.back for each in selectors.values() if isinstance(each, Recent)]
    recent = store.find_ids(Filter(uid=peer.uid, limit=max(backs) + 1))[0] if backs else ()

    def ids_of(selector: Selector) -> list[range]:
        match selector:
            case ById(ids=ids):
                return [ids]
            case Recent(back=back):
                return [_only(recent[-1 - back])] if back < len(recent) else []
            case ByName(name=name):
                return [_only(job_id) for job_id in sorted(names.get(name, ()))]

    return {text: ids_of(selector) for text, selector in selectors.items()}


def _only(job_id: int) -> range:
    return range(job_id, job_id + 1)


def _live_names(peer: Peer, live: Mapping[int, Job]) -> dict[str, list[int]]:
    """Unfinished jobs of the caller, by name."""
    names: defaultdict[str, list[int]] = defaultdict(list)
    for job in live.values():
        if job.uid == peer.uid and not job.status.terminal:
            names[job.name].append(job.id)
    return names
