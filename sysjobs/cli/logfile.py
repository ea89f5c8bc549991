"""A job's log, read by its own user or by root, byte for byte, while it grows.

Its directory belongs to the job's user, who may put anything in the log's place: root must not be led to
somebody else's file.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from typing import TextIO

from sysjobs.errors import Refused

_BLOCK = 1 << 20


class LogFile:
    """A log that may not exist yet. `copy()` writes to stdout, or `out`, what has come since the last one."""

    def __init__(self, path: str, tail: int | None = None, out: TextIO | None = None) -> None:
        self.path = path
        self._out = out or sys.stdout
        self.copied = 0
        self._tail = tail
        self._fd = -1
        self._position = 0

    def copy(self) -> bool:
        """False if the log doesn't exist yet."""
        if self._fd < 0 and not self._open():
            return False
        if os.fstat(self._fd).st_size < self._position:
            # The job has truncated its log: what is there now is new.
            self._position = 0
        while block := os.pread(self._fd, _BLOCK, self._position):
            self._position += len(block)
            self.copied += len(block)
            if self._out is not None:
                self._out.buffer.write(block)
        if self._out is not None:
            self._out.buffer.flush()
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> bool:
        try:
            self._fd = os.open(
                self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW
            )
        except FileNotFoundError:
            # All that comes from now on is new.
            self._tail = None
            return False
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._no_log() from None
            raise Refused(
                f"The log {self.path} can't be read: {error.strerror}.",
                "Look at the permissions of the file and of the directories above it.",
                code="log-unreadable",
            ) from None
        info = os.fstat(self._fd)
        # Not pathlib, whose import takes longer than all of this.
        directory = os.stat(os.path.dirname(self.path))  # noqa: PTH116, PTH120
        if not stat.S_ISREG(info.st_mode) or info.st_uid != directory.st_uid:
            raise self._no_log()
        if self._tail is not None:
            self._position = tail_offset(self._fd, self._tail)
        return True

    def _no_log(self) -> Refused:
        return Refused(
            f"The log {self.path} is not a file of the job's user.",
            "Something was put in its place; look at it with ls -l.",
            code="log-unreadable",
        )


def tail_offset(fd: int, lines: int, block_size: int = _BLOCK) -> int:
    """Where the last `lines` lines begin. Only \\n ends a line: a progress bar's \\r doesn't."""
    size = os.fstat(fd).st_size
    if lines == 0:
        return size
    # The newline that ends the file begins no line.
    position = size - 1
    while position > 0:
        start = max(0, position - block_size)
        block = os.pread(fd, position - start, start)
        count = block.count(b"\n")
        if count < lines:
            lines -= count
        else:
            at = len(block)
            for _ in range(lines):
                at = block.rindex(b"\n", 0, at)
            return start + at + 1
        position = start
    return 0


def reader_gone() -> bool:
    """Whether stdout is a pipe that nobody reads any more: a silent log would never tell."""
    if sys.stdout is None:
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))
