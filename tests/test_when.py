"""Moments as people write them."""

from __future__ import annotations

from datetime import datetime

import pytest

from sysjobs.cli.when import parse_past, parse_when
from sysjobs.errors import Refused

NOW = datetime(2026, 11, 30, 17, 58, 30).astimezone()

MOMENTS = [
    ("+90", datetime(2026, 11, 30, 18, 0, 0)),
    ("+1h30m", datetime(2026, 11, 30, 19, 28, 30)),
    ("18:00", datetime(2026, 11, 30, 18, 0)),
    ("17:58:30", datetime(2026, 12, 1, 17, 58, 30)),
    ("17:58", datetime(2026, 12, 1, 17, 58)),
    ("17:58:31", datetime(2026, 11, 30, 17, 58, 31)),
    ("2026-12-24", datetime(2026, 12, 24)),
    ("2026-12-24 18:30", datetime(2026, 12, 24, 18, 30)),
    ("2026-12-24T18:30:05", datetime(2026, 12, 24, 18, 30, 5)),
    ("2020-01-01", datetime(2020, 1, 1)),
]


@pytest.mark.parametrize(("text", "moment"), MOMENTS)
def test_moments(text: str, moment: datetime) -> None:
    assert parse_when(text, "--begin", NOW) == moment.astimezone()


@pytest.mark.parametrize(
    "text",
    ["", "+", "+x", "soon", "25:00", "18", "2026-02-30", "2026-12-24 25:00", "1764525510", "0001-01-01"],
)
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_when(text, "--begin", NOW)
    assert caught.value.message.startswith("--begin ")


PAST = [
    ("7d", datetime(2026, 11, 23, 17, 58, 30)),
    ("90", datetime(2026, 11, 30, 17, 57, 0)),
    ("17:58", datetime(2026, 11, 30, 17, 58)),
    ("18:00", datetime(2026, 11, 29, 18, 0)),
    ("2026-11-01", datetime(2026, 11, 1)),
    ("2026-11-01 18:30", datetime(2026, 11, 1, 18, 30)),
]


@pytest.mark.parametrize(("text", "moment"), PAST)
def test_moments_in_the_past(text: str, moment: datetime) -> None:
    assert parse_past(text, "--since", NOW) == moment.astimezone()


@pytest.mark.parametrize("text", ["", "+1h", "soon", "25:99", "2026-02-30", "99999999999999d", "-1"])
def test_what_is_no_moment_in_the_past(text: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_past(text, "--since", NOW)
    assert caught.value.message == f"--since {text!r} is not a moment."
