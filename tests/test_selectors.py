"""Which jobs a person means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.errors import Refused
from sysjobs.selectors import MAX_ID, MAX_RANGE, ById, ByName, Recent, Selector, nothing_found, parse_selector

MEANT: list[tuple[str, Selector]] = [
    ("42", ById(range(42, 43))),
    ("0", ById(range(1))),
    ("007", ById(range(7, 8))),
    ("3-9", ById(range(3, 10))),
    ("3-3", ById(range(3, 4))),
    (f"1-{MAX_RANGE}", ById(range(1, MAX_RANGE + 1))),
    (str(MAX_ID), ById(range(MAX_ID, MAX_ID + 1))),
    ("@", Recent(0)),
    ("@~0", Recent(0)),
    ("@~12", Recent(12)),
    ("train", ByName("train")),
    ("-3", ByName("-3")),
    ("3-", ByName("3-")),
    ("3-9-12", ByName("3-9-12")),
    ("1.5", ByName("1.5")),
    ("a@b", ByName("a@b")),
    ("\u0664\u0662", ByName("\u0664\u0662")),
    ("9" * 20, ByName("9" * 20)),
]
REFUSED = [
    ("", "bad-id"),
    ("@x", "bad-id"),
    ("@~", "bad-id"),
    ("@~-1", "bad-id"),
    ("@~1234567890", "bad-id"),
    ("9-3", "bad-range"),
    (f"1-{MAX_RANGE + 1}", "bad-range"),
    (str(MAX_ID + 1), "bad-range"),
    (f"1-{'9' * 19}", "bad-range"),
]


@pytest.mark.parametrize(("text", "selector"), MEANT)
def test_meant(text: str, selector: Selector) -> None:
    assert parse_selector(text) == selector


@pytest.mark.parametrize(("text", "code"), REFUSED)
def test_refused(text: str, code: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_selector(text)
    assert caught.value.code == code
    assert text in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("42", "There is no job 42."),
        ("3-3", "There is no job 3-3."),
        ("3-9", "None of your jobs is in 3-9."),
        ("@", "You have no job @."),
        ("@~7", "You have no job @~7."),
        ("train", "None of your jobs that haven't ended is called train."),
        ("x" * 200, f"None of your jobs that haven't ended is called {'x' * 80}…."),
    ],
)
def test_nothing_found(text: str, sentence: str) -> None:
    assert nothing_found(text) == sentence


@given(st.integers(0, MAX_ID), st.integers(0, MAX_RANGE - 1))
def test_ranges(first: int, more: int) -> None:
    last = min(first + more, MAX_ID)
    assert parse_selector(f"{first}-{last}") == ById(range(first, last + 1))
