"""What `sysjobs doctor` finds of records, and that it does it piece by piece. More is in test_doctor.py."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sysjobs.doctor import AT_ONCE, Checkup
from sysjobs.engine import Swept
from sysjobs.jobs import Status
from sysjobs.store import Store
from tests.models import new_job
from tests.test_repair import change
from tests.test_store import FAILED, states


def checked(store: Store, *swept: Swept, online: bool = True) -> tuple[int, list[str]]:
    """How many pieces it took, and what was found."""
    queue: Any = SimpleNamespace(online=online, sweep=lambda tell: [*map(tell, swept)])
    missed = replace(states(store.add(new_job()))[FAILED], id=77)
    checkup = Checkup(queue, store, lambda tell: tell(missed), Path("/run/x"))
    checkup.begin()
    pieces = 0
    while checkup.goes_on():
        pieces += 1
    return pieces, [f"{each['level']} {each['subject']}: {each['text']}" for each in checkup.findings()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of jobs that wait, but for the third, which has failed."""
    path = tmp_path / "sysjobs.db"
    with closing(Store(path)) as store:
        jobs = [store.add(new_job()) for _ in range(AT_ONCE * 2)]
        store.save(states(jobs[2])[FAILED])
        store.commit()
    return path


MISSED = f"mended jobs: Job 77 is {Status.FAILED}, which no signal had told; now it is recorded."
WHOLE = "ok database: The database is whole."


def test_all_is_well(path: Path) -> None:
    with closing(Store(path)) as store:
        pieces, found = checked(store, Swept())
        assert found == [MISSED, "ok leftovers: Nothing is left of jobs that are gone.", WHOLE]
        # One for the ids, and the last one for the job that was added.
        assert pieces == 1 + 2 + 1


def test_not_all_records_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysjobs.doctor.RECORDS", 50)
    change(path, 5, "environment_id = 999")
    with closing(Store(path)) as store:
        pieces, found = checked(store, Swept())
        assert found[-1] == f"{WHOLE} Of its records the oldest {AT_ONCE * 2 + 1 - 50} were not read."
        assert pieces == 1 + 1


def test_damaged_records(path: Path) -> None:
    change(path, 5, "grace = NULL")
    change(path, AT_ONCE + 7, "environment_id = 999")
    # It has ended: what it ran is of no use to anybody but whoever asks for it.
    change(path, 3, "environment_id = 999")
    with closing(Store(path)) as store:
        found = checked(store, Swept())[1]
        assert f"problem database: The records of jobs 5, {AT_ONCE + 7} are damaged" in found[-1]


@pytest.mark.parametrize(
    ("swept", "found"),
    [
        ([Swept((1, 2))], ["mended leftovers: What was left of jobs 1-2 in /run/x was removed."]),
        (
            [Swept((), (4,))],
            ["warning leftovers: What is left of jobs 4 in /run/x can't be removed by sysjobsd."],
        ),
        ([], ["warning leftovers: Not looked at: sysjobsd couldn't."]),
    ],
)
def test_what_was_left(path: Path, swept: list[Swept], found: list[str]) -> None:
    with closing(Store(path)) as store:
        assert checked(store, *swept)[1] == [MISSED, *found, WHOLE]
