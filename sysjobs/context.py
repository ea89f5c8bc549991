"""Where the submitter stands, as a job takes it over: directory, umask, soft limits, environment."""

# pathlib can't hold bytes, and every submit would wait for its import.
# ruff: noqa: PTH109, PTH117, PTH118
from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

from sysjobs.environment import inherited
from sysjobs.errors import Refused
from sysjobs.wire import Wire, to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    Text = str | bytes

_LIMITS = ("nofile", "core", "cpu", "data", "fsize", "memlock", "stack", "as", "nproc", "rss", "rtprio")


def wire_text(value: Text) -> Wire:
    """For use in a message; a string that Python decoded from foreign bytes becomes those bytes again."""
    return to_wire(os.fsencode(value))


def wire_env(env: Mapping[str, Text]) -> dict[str, Wire]:
    """Variables for use in a message. Their names are JSON's keys, which have to be UTF-8."""
    for name in env:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise Refused(
                f"The variable {name!r} can't be set: its name is not UTF-8.",
                "Export it instead: what you have exported is passed on as it is.",
                code="bad-env",
            ) from None
    return {name: wire_text(value) for name, value in env.items()}


def capture(*, export: bool) -> dict[str, object]:
    """The `Context` of a submit; without `export` no environment is in it."""
    context: dict[str, object] = {"umask": _umask(), "limits": _limits()}
    if export:
        context["environment"] = [to_wire(pair) for pair in inherited(_environ())]
    return context


def _environ() -> Mapping[bytes, bytes]:
    """The environment, without what Python adds to it where the locale is C (PEP 538)."""
    if os.environb.get(b"LC_CTYPE") not in (b"C.UTF-8", b"C.utf8", b"UTF-8"):
        return os.environb
    with open("/proc/self/environ", "rb") as file:
        if b"\0LC_CTYPE=" in b"\0" + file.read():
            return os.environb
    return {name: value for name, value in os.environb.items() if name != b"LC_CTYPE"}


def resolve_workdir(workdir: Text | os.PathLike[str] | None) -> bytes:
    """An absolute path, as bytes, of a directory that this process could enter."""
    try:
        path = os.getcwdb()
    except OSError as error:
        # An absolute --workdir needs no current directory.
        path = b""
        if workdir is None or not os.path.isabs(workdir):
            raise Refused(
                f"The current directory can't be used: {error.strerror}.",
                "Name a directory with --workdir.",
                code="bad-workdir",
            ) from None
    if workdir is not None:
        path = os.path.join(path, os.fsencode(workdir))
    problem = _why_not(path)
    if problem is not None:
        raise Refused(
            f"The job can't run in {os.fsdecode(path)}: {problem}.",
            "Name a directory that you can enter with --workdir.",
            code="bad-workdir",
        )
    return path


def _why_not(path: bytes) -> str | None:
    try:
        os.close(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        return error.strerror
    return None if os.access(path, os.X_OK) else os.strerror(13)


def _umask() -> int:
    # Reading it with os.umask() means changing it, for every thread, for a moment.
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"Umask:"):
                return int(line[6:], 8)
    raise AssertionError("Linux tells the umask in /proc/self/status since 4.7")


def _limits() -> dict[str, int]:
    return {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[0] for name in _LIMITS}


def wire_time(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000_000)
