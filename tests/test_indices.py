"""Which tasks an array has, and sets of them, against Python's own sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.errors import Refused
from sysjobs.indices import MAX_TASKS, Indices, Places, parse_array, parse_indices

sets = st.sets(st.integers(0, 40))


@given(sets, sets)
def test_places_are_sets(one: set[int], other: set[int]) -> None:
    mine, others = Places.of(one), Places.of(other)
    assert [*mine] == sorted(one)
    assert len(mine) == len(one)
    assert [*(mine | others)] == sorted(one | other)
    assert [*(mine & others)] == sorted(one & other)
    assert [*(mine - others)] == sorted(one - other)
    assert [place in mine for place in range(42)] == [place in one for place in range(42)]
    assert Places.load(mine.dump()) == mine
    assert mine | others == Places.of(one | other), "equal ones are the same"
    if one:
        assert mine.first == min(one)
        assert mine.without_first() == Places.of(one - {min(one)})


@pytest.mark.parametrize("text", ["x", "3-1", "1-3,3-4", "1-2,3-4", "5-6,1-2", "1", None, 7, "-1-2"])
def test_what_are_no_places(text: object) -> None:
    with pytest.raises(ValueError, match=r"no places|invalid literal|not enough|too many"):
        Places.load(text)


def test_however_many_parts_and_tasks_there_are() -> None:
    # Their products are of 10⁹ and 10¹⁴.
    woven = Indices(tuple(range(start, 1_000_000, 1000) for start in range(1000)))
    assert woven.places(woven) == woven.all
    assert woven.some(woven.all) == woven
    wide, sparse = range(0, 1_000_000_000, 1000), range(500, 1_000_000_000, 9_999_500)
    common = [number // 1000 for number in sparse if number in wide]
    assert [*Indices((wide,)).places(Indices((sparse,)))] == common
    assert len(common) == 50


def test_a_million_take_no_room() -> None:
    indices, _ = parse_array(f"0-{2 * MAX_TASKS - 2}:2")
    assert indices is not None
    waiting = indices.all.without_first() - Places.of([7, 500_000])
    assert len(waiting) == MAX_TASKS - 3
    assert waiting.dump() == "1-6,8-499999,500001-999999"
    assert str(indices.some(waiting)) == "2-12:2,16-999998:2,1000002-1999998:2"


ranges = st.builds(
    lambda start, count, step: range(start, start + count * step, step if count > 1 else 1),
    st.integers(0, 60), st.integers(1, 8), st.integers(1, 5),
)  # fmt: skip


@st.composite
def some_indices(draw: st.DrawFn) -> Indices:
    found: list[range] = []
    for each in draw(st.lists(ranges, min_size=1, max_size=4)):
        each = each if len(each) > 1 else range(each.start, each.start + 1)
        if not any(number in other for other in found for number in each):
            found.append(each)
    return Indices(tuple(found))


@given(some_indices(), some_indices(), sets)
def test_numbers_and_places(indices: Indices, wanted: Indices, some: set[int]) -> None:
    numbers = [number for each in indices.ranges for number in each]
    asked = {number for each in wanted.ranges for number in each}
    assert len(indices) == len(numbers)
    assert [indices.at(place) for place in range(len(numbers))] == numbers
    assert [indices.place(number) for number in numbers] == [*range(len(numbers))]
    assert indices.place(1000) is None
    with pytest.raises(IndexError):
        indices.at(len(numbers))
    assert {*indices.places(wanted)} == {place for place, number in enumerate(numbers) if number in asked}
    places = Places.of(some) & indices.all
    assert [number for each in indices.some(places).ranges for number in each] == [
        numbers[place] for place in places
    ]
    assert (indices.lowest, indices.highest) == (min(numbers), max(numbers))
    assert parse_indices(str(indices)) == indices


ARRAYS: list[tuple[str, str | None, int | None]] = [
    ("0-9", "0-9", None),
    ("7", "7", None),
    (" 1, 3 ,5-9 ", "1,3,5-9", None),
    ("0-99%10", "0-99", 10),
    ("0-20:5%1", "0-20:5", 1),
    ("%10", None, 10),
    ("9,3", "9,3", None),
    ("0-10:2,1-11:2", "0-10:2,1-11:2", None),
    ("5-5", "5", None),
    ("999999999", "999999999", None),
]


@pytest.mark.parametrize(("text", "numbers", "limit"), ARRAYS)
def test_parse_array(text: str, numbers: str | None, limit: int | None) -> None:
    indices, most = parse_array(text)
    assert (None if indices is None else str(indices), most) == (numbers, limit)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "bad-array"),
        (" ", "bad-array"),
        ("a", "bad-array"),
        ("9-0", "bad-array"),
        ("0-9:0", "bad-array"),
        ("-1", "bad-array"),
        ("0-9%", "bad-array"),
        ("0-9%0", "bad-array"),
        ("0-9%-1", "bad-array"),
        ("0-9%x", "bad-array"),
        ("0-9%10%10", "bad-array"),
        ("%", "bad-array"),
        ("1,,2", "bad-array"),
        ("1,2,1", "bad-array"),
        ("0-9,5", "bad-array"),
        ("0-90:3,9-10", "bad-array"),
        ("0-100,5-6,90", "bad-array"),
        ("1000000000", "bad-array"),
        ("٣", "bad-array"),
        (",".join(map(str, range(1001))), "bad-array"),
        (f"0-{MAX_TASKS}", "too-many"),
        ("0-600000,700000-1300000", "too-many"),
    ],
)
def test_what_is_no_array(text: str, code: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_array(text)
    assert caught.value.code == code
    assert caught.value.hint
