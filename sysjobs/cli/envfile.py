"""Files of NAME=VALUE lines, as --env-file reads them. Nothing is expanded: this is no shell."""

from __future__ import annotations

from pathlib import Path

from sysjobs.errors import Refused
from sysjobs.wire import MAX_MESSAGE

_BOM = b"\xef\xbb\xbf"


def read_env_file(name: str) -> dict[str, bytes]:
    """The variables in a file; errors name file and line."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(MAX_MESSAGE + 1)
    except OSError as error:
        raise Refused(
            f"--env-file {name} can't be read: {error.strerror}.",
            "Check its name and permissions.",
            code="bad-env-file",
        ) from None
    if len(data) > MAX_MESSAGE:
        raise Refused(f"--env-file {name} is too big.", "It may have 32 MiB at most.", code="bad-env-file")
    return parse_env(data, name)


def parse_env(data: bytes, name: str) -> dict[str, bytes]:
    """The variables in the bytes of a file called `name`."""
    env: dict[str, bytes] = {}
    for number, raw in enumerate(data.removeprefix(_BOM).split(b"\n"), 1):
        line = raw.strip()
        if not line or line.startswith(b"#"):
            continue
        try:
            variable, value = _parse_line(line.removeprefix(b"export "))
        except ValueError as error:
            raise Refused(
                f"{name}:{number}: {error}.",
                'Write NAME=VALUE, with quotes around a value that has spaces at its ends or " #" in it.',
                code="bad-env-file",
            ) from None
        env[variable] = value
    return env


def _parse_line(line: bytes) -> tuple[str, bytes]:
    raw_name, equals, raw_value = line.partition(b"=")
    raw_name = raw_name.strip()
    if not equals:
        raise ValueError("there is no =")
    try:
        name = raw_name.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("the name isn't UTF-8") from None
    if not name or not name.isprintable() or any(char in " '\"" for char in name):
        raise ValueError(f"{name!r} is no name of a variable")
    if b"\0" in raw_value:
        raise ValueError("there is a NUL byte")
    return name, _parse_value(raw_value.strip())


def _parse_value(text: bytes) -> bytes:
    quote = text[:1]
    if quote not in (b"'", b'"'):
        # At the start a # is a comment too: V is empty then.
        return (b" " + text).partition(b" #")[0].strip()
    value = bytearray()
    position = 1
    while position < len(text):
        char = text[position : position + 1]
        if char == quote:
            rest = text[position + 1 :].strip()
            if rest and not rest.startswith(b"#"):
                raise ValueError("there is something behind the closing quote")
            return bytes(value)
        if char == b"\\" and quote == b'"' and text[position + 1 : position + 2] in (b'"', b"\\"):
            position += 1
            char = text[position : position + 1]
        value += char
        position += 1
    raise ValueError("a quote isn't closed")
