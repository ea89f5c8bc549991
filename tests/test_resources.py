"""Amounts as people write and read them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.errors import Refused
from sysjobs.resources import (
    MAX_MEMORY,
    MAX_SECONDS,
    Amount,
    Total,
    format_cpus,
    format_duration,
    format_memory,
    parse_cpus,
    parse_duration,
    parse_memory,
)

CPUS = [
    ("0", 0),
    ("1", 1000),
    ("0.5", 500),
    ("0.001", 1),
    (" 2 ", 2000),
    ("1.50", 1500),
    ("1.5000", 1500),
    ("64", 64_000),
    ("007", 7000),
    ("999999.999", 999_999_999),
]
NOT_CPUS = [
    "",
    "-1",
    "+1",
    ".5",
    "1.",
    "1,5",
    "0.0001",
    "1e3",
    "4X",
    "two",
    "1 2",
    "inf",
    "nan",
    "\u0663",
    "1" * 5000,
]

MEMORY = [
    ("4G", 4 << 30),
    ("4g", 4 << 30),
    ("4GB", 4 << 30),
    ("4GiB", 4 << 30),
    ("4 G", 4 << 30),
    (" 512M ", 512 << 20),
    ("1536K", 1536 << 10),
    ("1.000001M", (1 << 20) + 1),
    ("1T", 1 << 40),
    ("2P", 2 << 50),
    ("1024P", MAX_MEMORY),
    ("1048576B", 1 << 20),
    ("1048576", 1 << 20),
]
NOT_MEMORY = [
    "",
    "0",
    "0G",
    "-1G",
    "4X",
    "4",
    "12B",
    "1023K",
    "4Gb/s",
    "G",
    "1e9",
    "1.G",
    ".5G",
    "0.1",
    "1025P",
    "1.1234567G",
    "\u0663G",
]
NOT_MEMORY += ["9" * 5000, "9" * 5000 + "G"]

DURATIONS = [
    ("0", 0.0),
    ("90", 90.0),
    ("1.5", 1.5),
    ("90s", 90.0),
    ("30m", 1800.0),
    ("1h", 3600.0),
    ("2d", 172_800.0),
    ("1w", 604_800.0),
    ("1h30m", 5400.0),
    ("1h 30m", 5400.0),
    (" 1 h 30 m ", 5400.0),
    ("1.5h", 5400.0),
    ("10sec", 10.0),
    ("10secs", 10.0),
    ("1min", 60.0),
    ("10 mins", 600.0),
    ("1hr", 3600.0),
    ("2hrs", 7200.0),
    ("1day", 86_400.0),
    ("2days", 172_800.0),
    ("1week", 604_800.0),
    ("2 weeks", 1_209_600.0),
    ("0-1:30", 5400.0),
    ("1:30:00", 5400.0),
    ("0:59:59", 3599.0),
    ("0:00:05", 5.0),
    ("100:00:00", 360_000.0),
    ("2-12:00:00", 216_000.0),
    ("0.000001", 0.000001),
]
NOT_DURATIONS = [
    "",
    " ",
    "-1",
    "1h30",
    "30 1h",
    "1x",
    "h",
    "1:60:00",
    "1:2:60",
    "1:",
    ":1",
    "1:2:3:4",
    "-1:00",
    "1-2",
]
NOT_DURATIONS += [
    "1e3",
    "inf",
    "nan",
    "1.1234567",
    "1month",
    "101000000m",
    "999999-00:00",
    "1" * 5000,
    "\u0663s",
]


@pytest.mark.parametrize(("text", "cpus"), CPUS)
def test_parse_cpus(text: str, cpus: int) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize(("text", "size"), MEMORY)
def test_parse_memory(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration(text, "--time") == seconds


Parser = Callable[[str, str], object]
REFUSED: list[tuple[Parser, str, str]] = [
    *((parse_cpus, "bad-cpus", text) for text in NOT_CPUS),
    *((parse_memory, "bad-memory", text) for text in NOT_MEMORY),
    *((parse_duration, "bad-duration", text) for text in NOT_DURATIONS),
]


@pytest.mark.parametrize(
    ("parse", "code", "text"), REFUSED, ids=[f"{row[1]} {row[2][:20]}" for row in REFUSED]
)
def test_refused(parse: Parser, code: str, text: str) -> None:
    with pytest.raises(Refused) as caught:
        parse(text, "--option")
    assert caught.value.code == code
    assert caught.value.message.startswith(f"--option {text!r} is ")
    assert caught.value.hint


@given(st.text(max_size=12) | st.from_regex(r"[0-9.:dhms-]{1,12}", fullmatch=True))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_cpus, parse_memory, parse_duration):
        try:
            value = parse(text, "--option")
        except Refused:
            continue
        assert 0 <= value <= max(MAX_MEMORY, MAX_SECONDS)


@given(st.integers(0, 999_999))
def test_cpus_survive(cpus: int) -> None:
    assert parse_cpus(format_cpus(cpus)) == cpus


FORMATS: list[tuple[Callable[[int], str], int, str]] = [
    (format_cpus, 500, "0.5"),
    (format_cpus, 4000, "4"),
    (format_cpus, 1, "0.001"),
    (format_cpus, 1_000_000, "1000"),
    (format_memory, 0, "0"),
    (format_memory, 1023, "1023"),
    (format_memory, 4 << 30, "4G"),
    (format_memory, 1536 << 20, "1.5G"),
    (format_memory, 512 << 20, "512M"),
    (format_memory, 2 << 40, "2T"),
    (format_memory, 1 << 60, "1048576T"),
    (format_duration, 0, "0s"),
    (format_duration, 59, "59s"),
    (format_duration, 60, "1m"),
    (format_duration, 5400, "1h 30m"),
    (format_duration, 3605, "1h 5s"),
    (format_duration, 90_061, "1d 1h"),
]


@pytest.mark.parametrize(("show", "value", "text"), FORMATS)
def test_formats(show: Callable[[int], str], value: int, text: str) -> None:
    assert show(value) == text


def test_format_of_less_than_a_second() -> None:
    assert format_duration(0.5) == "0.5s"


amounts = st.builds(Amount, cpus=st.integers(0, 9), memory=st.integers(0, 9), gpus=st.integers(0, 9))


@given(st.lists(amounts))
def test_totals(some: list[Amount]) -> None:
    total = Total()
    for one in some:
        total = total.plus(one)
    assert (total.cpus, total.gpus) == (sum(one.cpus for one in some), sum(one.gpus for one in some))
    for one in some:
        total = total.minus(one)
    assert total == Total()


@pytest.mark.parametrize("text", ["10:00", "1:30", "100:00"])
def test_what_could_be_hours_or_minutes(text: str) -> None:
    """Slurm takes it for minutes and seconds, at(1) and people for hours and minutes."""
    with pytest.raises(Refused) as caught:
        parse_duration(text, "--time")
    said = f"--time {text!r} could be hours and minutes, or minutes and seconds."
    assert (caught.value.message, caught.value.hint) == (said, "Say which: 1h30m, 90m, 1:30:00.")
