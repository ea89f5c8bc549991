"""Whether the file systems that jobs need have room for more of them, and whether our files are still there.

Where one is short, no job is accepted or started, so that those that were can log, end, and be recorded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sysjobs.resources import format_memory

LEAST = 4 << 20
"""Bytes that have to be free."""

LEAST_FILES = 100
"""Files that can still be made, where a file system counts them."""


class FileSystems:
    """See `ports.Room`: the directories of the database, the logs and the start scripts."""

    def __init__(self, database: Path, logs: Path, scripts: Path) -> None:
        """Once all of them are there."""
        self._database, self._logs = database.parent, logs
        self._all = (database.parent, logs, scripts)
        self._identities = {path: _identity(path) for path in (*self._all, database)}

    def findings(self) -> Iterator[dict[str, str]]:
        """For `sysjobs doctor`."""
        for directory in self._all:
            short = shortage(directory)
            if short is None:
                info = os.statvfs(directory)
                text = f"{directory} has {format_memory(info.f_bavail * info.f_frsize)} free."
                yield {"subject": "disk", "level": "ok", "text": text}
            else:
                advice = "Make it writable, with room for more; until then no job is started."
                yield {"subject": "disk", "level": "problem", "text": short, "advice": advice}

    def replaced(self) -> Path | None:
        """One that is gone, or isn't what it was: what is written there since would be lost."""
        return next((path for path, was in self._identities.items() if _identity(path) != was), None)

    def to_submit(self) -> str | None:
        return shortage(self._database)

    def to_start(self) -> str | None:
        # Where scripts are, a start makes room first, so that no user can keep the others' from beginning.
        return shortage(self._database) or shortage(self._logs)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


def shortage(directory: Path) -> str | None:
    try:
        info = os.statvfs(directory)
    except OSError as error:
        return f"{directory} can't be used: {error.strerror}."
    if info.f_flag & os.ST_RDONLY:
        return f"The file system of {directory} is read-only."
    free = info.f_bavail * info.f_frsize
    if free < LEAST:
        said = f"{format_memory(free) if free else 'nothing'} is free, {format_memory(LEAST)} is needed"
    elif info.f_files and info.f_favail < LEAST_FILES:
        said = f"{info.f_favail} more files can be made, {LEAST_FILES} are needed"
    else:
        return None
    return f"The file system of {directory} is full: {said}."
