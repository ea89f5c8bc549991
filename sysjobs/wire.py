"""One message of the Varlink wire: a JSON object, ended by NUL. Other strings than UTF-8 travel as base64."""

from __future__ import annotations

import binascii
import json

from sysjobs.errors import Refused

MAX_MESSAGE = 32 << 20
"""Bytes of one message, its NUL not counted; both sides refuse more."""

END = b"\0"

Wire = str | dict[str, str]
"""How a byte string looks in JSON: itself, or {"b64": ...} where it isn't UTF-8."""


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


class WireError(ValueError):
    """These bytes are no message of ours."""


def encode(message: dict[str, object]) -> bytes:
    """The bytes of a message, NUL included."""
    # ASCII alone, as the encoder writes it: JSON's escapes keep a NUL within a string off the wire.
    data = _ENCODER.encode(message).encode("ascii") + END
    if len(data) > MAX_MESSAGE + 1:
        raise Refused(
            f"The message has {len(data) >> 20} MiB, more than the {MAX_MESSAGE >> 20} MiB it may have.",
            "Pass large data in files rather than in arguments or the environment.",
            code="too-big",
        )
    return data


def decode(frame: bytes | bytearray) -> dict[str, object]:
    """The message in a frame, whose NUL is cut off already."""
    if len(frame) > MAX_MESSAGE:
        raise WireError("the message is too big")
    try:
        message = _DECODER.decode(frame.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise WireError(f"not a JSON message: {error}") from None
    if not isinstance(message, dict):
        raise WireError("the message isn't a JSON object")
    return message


def to_wire(value: bytes | str) -> Wire:
    """Bytes, or a string as Python decodes foreign bytes (surrogateescape), for use in a message."""
    try:
        if isinstance(value, bytes):
            return value.decode("utf-8")
        value.encode("utf-8")
        return value
    except UnicodeDecodeError:
        data = value
    except UnicodeEncodeError:
        assert isinstance(value, str)
        data = value.encode("utf-8", "surrogateescape")
    assert isinstance(data, bytes)
    return {"b64": binascii.b2a_base64(data, newline=False).decode("ascii")}


def from_wire(value: object) -> bytes:
    """The bytes behind a string of a message."""
    try:
        if isinstance(value, str):
            return value.encode("utf-8")
        if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str):
            return binascii.a2b_base64(value["b64"], strict_mode=True)
    except ValueError as error:
        raise WireError(f"not a string: {error}") from None
    raise WireError(f"expected a string, got {type(value).__name__}")
