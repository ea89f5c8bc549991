"""Which jobs are meant, with a database that has some, and that the time for it doesn't multiply."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from sysjobs.errors import NotFound
from sysjobs.jobs import Job, Status
from sysjobs.peer import Peer
from sysjobs.queue import Queue
from sysjobs.selection import Selection, bounded, meant_by, select
from sysjobs.store import Store
from tests.models import new_job

ALICE, BOB, ROOT = Peer(1000, 1000, "alice"), Peer(1001, 1001, "bob"), Peer(0, 0, "root")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Jobs 1 to 9: of alice, but for 3, 6 and 9, which are bob's."""
    with closing(Store(tmp_path_factory.mktemp("selection") / "sysjobs.db")) as store:
        for number in range(1, 10):
            store.add(new_job(uid=1001 if number % 3 == 0 else 1000, name=f"n{number % 2}"))
        yield store


@pytest.fixture(scope="module")
def live(store: Store) -> Queue:
    """All but 1 and 2 are live; 4 has ended and is not yet let go of."""
    jobs = {job.id: job for job in store.get_all(range(3, 10))[0]}
    jobs[4] = replace(jobs[4], status=Status.SUCCEEDED)
    return queue_of(jobs, store)


def queue_of(jobs: dict[int, Job], store: Store) -> Queue:
    """What selection needs of a queue."""
    queue = SimpleNamespace(jobs=jobs, find=lambda key: jobs.get(key) or store.get(key))
    return cast(Queue, queue)


SELECTED: list[tuple[Peer, list[str], list[int], list[str]]] = [
    (ALICE, ["5", "2"], [5, 2], []),
    (ALICE, ["3"], [3], []),
    (ALICE, ["5", "77", "5"], [5], ["77"]),
    (ALICE, ["1-4"], [1, 2, 4], []),
    (ALICE, ["7", "1-4", "2-5"], [7, 1, 2, 4, 5], []),
    (ALICE, ["1-4", "10-20"], [1, 2, 4], ["10-20"]),
    (ALICE, ["3-3", "6-6"], [3, 6], []),
    (ROOT, ["2-4"], [2, 3, 4], []),
    (ALICE, ["@"], [8], []),
    (ALICE, ["@~1", "@~5", "@~6"], [7, 1], ["@~6"]),
    (BOB, ["@", "@~2"], [9, 3], []),
    (ALICE, ["n0"], [8], []),
    (ALICE, ["n1", "n0", "n2"], [5, 7, 8], ["n2"]),
    (BOB, ["n1"], [3, 9], []),
    (ALICE, ["n1", "7", "6-9"], [5, 7, 8], []),
]


@pytest.mark.parametrize(("peer", "texts", "ids", "missing"), SELECTED)
def test_select(
    store: Store, live: Queue, peer: Peer, texts: list[str], ids: list[int], missing: list[str]
) -> None:
    assert select(peer, texts, live, store) == Selection(ids, {}, missing)


@pytest.mark.parametrize("texts", [["77"], ["10-20"], ["nobody"], ["@~50"], ["3-3", "77"][1:]])
def test_nothing_is_meant(store: Store, live: Queue, texts: list[str]) -> None:
    with pytest.raises(NotFound):
        select(ALICE, texts, live, store)


def test_ranges(store: Store, live: Queue) -> None:
    meant = meant_by(ALICE, ["3", "1-5", "@", "n1", "nobody"], live, store)
    assert meant.ids == [range(3, 4), range(1, 6), range(8, 9), range(5, 6), range(7, 8)]


class Counting:
    """A store and a queue that count how often they are asked."""

    def __init__(self, store: Store) -> None:
        self.store, self.asked = store, 0

    def __getattr__(self, name: str) -> object:
        self.asked += 1
        return getattr(self.store, name)


@pytest.mark.parametrize("kind", ["{}", "1-{}", "@~{}", "name{}"])
def test_the_database_is_asked_a_few_times_whatever_is_asked_for(
    store: Store, live: Queue, kind: str
) -> None:
    counting = Counting(store)
    select(ALICE, ["1", *(kind.format(number) for number in range(1, 5000))], live, counting)  # type: ignore[arg-type]
    assert counting.asked <= 3


LISTS = [
    (["41,42"], ["41", "42"]),
    (["3-5,9", "@,@~1"], ["3-5", "9", "@", "@~1"]),
    (["a,b", "1,a"], ["a,b", "1,a"]),
    (["1,", ""], ["1", "", ""]),
]


@pytest.mark.parametrize(("texts", "meant"), LISTS)
def test_lists(texts: list[str], meant: list[str]) -> None:
    """Of numbers; a comma may be in a name."""
    assert bounded(texts) == meant
