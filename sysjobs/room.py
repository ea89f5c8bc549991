"""Whether the file systems that jobs need have room for more of them.

Where one is short, no job is accepted or started, so that those that were can log, end, and be recorded.
"""

from __future__ import annotations

import os
from pathlib import Path

from sysjobs.resources import format_memory

LEAST = 4 << 20
"""Bytes that have to be free."""

LEAST_FILES = 100
"""Files that can still be made, where a file system counts them."""


class FileSystems:
    """See `ports.Room`: the directories of the database, the logs and the start scripts."""

    def __init__(self, database: Path, logs: Path, scripts: Path) -> None:
        self._database = database
        self._all = (database, logs, scripts)

    def to_submit(self) -> str | None:
        return shortage(self._database)

    def to_start(self) -> str | None:
        return next(filter(None, map(shortage, self._all)), None)


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
