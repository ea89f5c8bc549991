"""The framing, and byte strings within it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs import wire
from sysjobs.errors import Refused
from sysjobs.wire import WireError, decode, encode, from_wire, to_wire


@given(st.binary())
def test_bytes_survive(data: bytes) -> None:
    frame = encode({"x": to_wire(data)})
    assert frame.endswith(b"\0")
    assert frame.count(b"\0") == 1
    assert from_wire(decode(frame[:-1])["x"]) == data


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"plain", "plain"),
        ("\u00e4", "\u00e4"),
        (b"\xc3\xa4", "\u00e4"),
        (b"\xff", {"b64": "/w=="}),
        ("\udcff", {"b64": "/w=="}),
        (b"\xed\xa0\x80", {"b64": "7aCA"}),
        (b"", ""),
    ],
)
def test_to_wire(value: bytes | str, expected: object) -> None:
    assert to_wire(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        [],
        {},
        {"b64": 1},
        {"b64": "!"},
        {"b64": "/w"},
        {"b64": "\u00e4"},
        {"b64": "", "x": 1},
        "\ud800",
    ],
)
def test_from_wire_refuses(value: object) -> None:
    with pytest.raises(WireError):
        from_wire(value)


@pytest.mark.parametrize(
    "frame", [b"", b"{", b"[]", b"1", b'"x"', b"\xff", b"{}{}", b'{"a":NaN}', b"[" * 100_000, b"1" * 10_000]
)
def test_decode_refuses(frame: bytes) -> None:
    with pytest.raises(WireError):
        decode(frame)


def test_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_MESSAGE", 10)
    assert decode(encode({"a": "1234"[:2]})[:-1]) == {"a": "12"}
    with pytest.raises(Refused) as caught:
        encode({"a": "12345"})
    assert caught.value.code == "too-big"
    with pytest.raises(WireError):
        decode(b'{"a":"12345"}')
