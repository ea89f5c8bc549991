"""What users have had lately, as it is counted while they have it and as it is recalled."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.scheduling.fairshare import AHEAD, FairShares, Use

HOUR = 3600.0


def test_half_of_it_counts_after_a_half_life() -> None:
    shares = FairShares(HOUR)
    shares.advance(100, {7: 2000})
    assert shares.of(7) == 2000 * AHEAD
    assert shares.of(7, 500) == 2500 * AHEAD
    shares.advance(100 + HOUR, {})
    had = shares.of(7)
    assert had == pytest.approx(2000 * HOUR / log(2) / 2)
    shares.advance(100 + 2 * HOUR, {})
    assert shares.of(7) == pytest.approx(had / 2)
    assert shares.of(8) == 0


def test_a_clock_that_stands_still_changes_nothing() -> None:
    shares = FairShares(HOUR)
    for _ in range(3):
        shares.advance(5, {7: 1000})
    assert shares.of(7) == 1000 * AHEAD


def test_who_had_next_to_nothing_is_forgotten() -> None:
    shares = FairShares(1)
    shares.advance(0, {7: 1000})
    shares.advance(1, {})
    shares.advance(60, {})
    assert shares.of(7) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2]), st.integers(1, 4), st.integers(0, 99), st.integers(0, 99)),
        max_size=6,
    )
)
def test_what_is_recalled_is_what_would_have_been_counted(rows: list[tuple[int, int, int, int]]) -> None:
    """Of so many jobs: user, CPUs, and two moments between which each ran."""
    uses = [Use(uid, 1000 * cpus, min(times), max(times)) for uid, cpus, *times in rows]
    counted, recalled = FairShares(30), FairShares(30)
    for now in range(101):
        held = {
            uid: sum(use.cpus for use in uses if use.uid == uid and use.since <= now < use.until)
            for uid in (1, 2)
        }
        counted.advance(now, held)
    recalled.recall(uses, 100)
    for uid in (1, 2):
        # Below 1 nothing is counted on.
        assert counted.of(uid) == pytest.approx(recalled.of(uid), abs=10)


def test_what_still_runs_counts_until_now() -> None:
    shares, same = FairShares(HOUR), FairShares(HOUR)
    shares.recall([Use(7, 1000, 0, 999)], 100)
    same.recall([Use(7, 1000, 0, 100)], 100)
    assert shares.of(7) == same.of(7) > 0


@pytest.mark.parametrize(("since", "until"), [(4e9, 5e9), (4e9, 50.0), (60.0, 50.0), (150.0, 160.0)])
def test_what_was_had_by_a_clock_that_was_set_back_since_counts_for_nothing(
    since: float, until: float
) -> None:
    shares = FairShares(HOUR)
    shares.recall([Use(7, 1000, since, until)], 100.0)
    assert shares.of(7) == 0
