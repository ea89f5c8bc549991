"""The pure parts of the command line, by tables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sysjobs.cli.envfile import parse_env
from sysjobs.cli.logfile import tail_offset
from sysjobs.cli.output import ago, duration, iso, printable
from sysjobs.cli.queue import table
from sysjobs.cli.show import command_text, describe, exit_text
from sysjobs.errors import Refused
from tests.jobs import details, view

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("data", "env"),
    [
        (b"", {}),
        (b"\n# comment\n  # another\n", {}),
        (b"A=1", {"A": b"1"}),
        (b"A=1\r\nB=2\r\n", {"A": b"1", "B": b"2"}),
        (b"\xef\xbb\xbfA=1\n", {"A": b"1"}),
        (b"export A=1\n", {"A": b"1"}),
        (b"  A =  x y  # why\n", {"A": b"x y"}),
        (b"A=a#b\n", {"A": b"a#b"}),
        (b"A=#b\n", {"A": b""}),
        (b"A=\n", {"A": b""}),
        (b"A=b=c\n", {"A": b"b=c"}),
        (b"A=$HOME\n", {"A": b"$HOME"}),
        (b"A=' x # \\' # why\n", {"A": b" x # \\"}),
        (b'A="x \\"y\\" \\\\ \\n"\n', {"A": b'x "y" \\ \\n'}),
        (b"A=\xff\n", {"A": b"\xff"}),
        (b"A=1\nA=2\n", {"A": b"2"}),
    ],
)
def test_env_file(data: bytes, env: dict[str, bytes]) -> None:
    assert parse_env(data, "f") == env


@pytest.mark.parametrize("line", [b"A", b"=1", b"A B=1", b"A='x", b'A="x\\"', b"A='x' y", b"A=\0", b"\xff=1"])
def test_env_file_refuses(line: bytes) -> None:
    with pytest.raises(Refused, match=r"^f:2: "):
        parse_env(b"# one\n" + line + b"\nB=1\n", "f")


@pytest.mark.parametrize("block_size", [1, 2, 3, 1 << 20])
@pytest.mark.parametrize(
    ("data", "lines", "tail"),
    [
        (b"", 3, b""),
        (b"a\nb\nc\n", 0, b""),
        (b"a\nb\nc\n", 1, b"c\n"),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc\n", 3, b"a\nb\nc\n"),
        (b"a\nb\nc\n", 9, b"a\nb\nc\n"),
        (b"a\nb\nc", 1, b"c"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"\n\n\n", 1, b"\n"),
        (b"\n\n\n", 2, b"\n\n"),
        (b"\n", 1, b"\n"),
        (b"x", 1, b"x"),
        (b"a\n1\r2\r3\r", 1, b"1\r2\r3\r"),
    ],
)
def test_tail(tmp_path: Path, data: bytes, lines: int, tail: bytes, block_size: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert data[tail_offset(fd, lines, block_size) :] == tail
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "just now"), (0, "just now"), (1, "1 sec ago"), (59, "59 secs ago"), (60, "1 min ago"),
        (150, "2 mins ago"), (3600, "1 hour ago"), (7200, "2 hours ago"), (86400, "1 day ago"),
        (8 * 86400, "1 week ago"), (61 * 86400, "2 months ago"), (800 * 86400, "2 years ago"),
    ],
)  # fmt: skip
def test_ago(seconds: int, text: str) -> None:
    assert ago(NOW - seconds * SECOND, NOW) == text


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [(None, None, "-"), (0, 63, "1m 3s"), (0, None, "10s"), (5, 3, "0s"), (0, 90061, "1d 1h")],
)
def test_duration(start: int | None, end: int | None, text: str) -> None:
    first, last = (None if each is None else NOW + each * SECOND for each in (start, end))
    assert duration(first, last, NOW + 10 * SECOND) == text


def test_iso(monkeypatch: pytest.MonkeyPatch) -> None:
    assert iso(None) is None
    moment = iso(1_700_000_000_123_456)
    assert moment is not None
    assert moment.startswith("2023-11-1")
    assert ".123456" in moment
    assert moment[-6] in "+-"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00e4\u20ac", "plain \u00e4\u20ac"),
        ("a\nb\t\x1b[2J\x7f", "a\\nb\\t\\x1b[2J\\x7f"),
        ("\u202eevil", "\\u202eevil"),
        ("\udcff", "\\xff"),
        ("\ud800", "\\ud800"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_table() -> None:
    """As users see it."""
    rows = [
        view(id=7, submitted_at=NOW - 130 * SECOND, name="1e5"),
        view(
            id=8, submitted_at=NOW - 4000 * SECOND, started_at=NOW - 3000 * SECOND,
            ended_at=NOW - 2937 * SECOND, status="FAILED", reason="exit code 3", memory=512 << 20, log=None,
        ),
    ]  # fmt: skip
    assert table(rows, NOW).splitlines() == [
        "ID    NAME    USER    SUBMITTED    STARTED      DURATION    RESOURCES             STATUS    LOG"
        "                            REASON",
        "7     1e5     alice   2 mins ago   -            -           cpus=0.5              PENDING   "
        "/var/log/sysjobs/alice/42.log",
        "8     train   alice   1 hour ago   50 mins ago  1m 3s       cpus=0.5,memory=512M  FAILED    -"
        "                              exit code 3",
    ]
    assert "REASON" not in table(rows[:1], NOW)
    assert f" {'y' * 59}… " in table([view(name="y" * 200)], NOW)
    assert table([], NOW).split()[-1] == "LOG"


@pytest.mark.parametrize(
    ("code", "signal", "dumped", "text"),
    [
        (None, None, False, ""),
        (0, None, False, "exit code 0"),
        (None, 11, True, "SIGSEGV, core dumped"),
        (None, 15, False, "SIGTERM"),
    ],
)
def test_exit_text(code: int | None, signal: int | None, dumped: bool, text: str) -> None:
    assert exit_text(code, signal, dumped) == text


def test_command_text() -> None:
    assert command_text({"command": ["a b", "c"]}) == "'a b' c"
    assert command_text({"shell": "a | b"}) == "bash -c 'a | b'"
    assert command_text({}) == ""


def test_describe() -> None:
    shown = dict(
        describe(
            details(
                {"status": "FAILED_SETUP", "reason": "setup: exit code 2"},
                spec={"command": ["true"], "setup": "make"}, setup_exit_code=2, time_limit=5400.0,
                cancelled_by="bob", cancel_reason="full",
            ),
            NOW,
        )
    )  # fmt: skip
    assert shown["Setup's exit"] == "exit code 2"
    assert shown["Time limit"] == "1h 30m"
    assert (shown["Cancelled by"], shown["Cancelled for"]) == ("bob", "full")
    assert shown["Started"] == ""
