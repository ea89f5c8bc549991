"""The one error of this package: what went wrong, with the value, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

TAIL_BYTES = 4000


class NodeError(Exception):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\n{hint}" if hint else message)


def show_command(command: Sequence[str | bytes]) -> str:
    return shlex.join(arg if isinstance(arg, str) else arg.decode(errors="replace") for arg in command)


def show_output(stdout: bytes | None, stderr: bytes | None) -> str:
    parts = []
    for name, data in (("stdout", stdout), ("stderr", stderr)):
        if data:
            text = data[-TAIL_BYTES:].decode(errors="backslashreplace").rstrip("\n")
            parts.append(f"--- {name}{', its end' if len(data) > TAIL_BYTES else ''} ---\n{text}")
    return "\n".join(parts)
