"""Looking for a word of the kernel in the journal, without waiting: it may come a moment after the event."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from sysjobs.engine.oom import OomKill

PATIENCE = 3
"""Seconds that the kernel's line may take to the journal."""

_CHUNK = 1 << 16
_MOST = 1 << 22


@dataclass(slots=True)
class _Search:
    process: subprocess.Popen[bytes]
    find: Callable[[str], OomKill | None]
    text: bytes = b""


class KernelLog:
    """Searches, each under a key of the caller's, whose ends make `epoll` readable."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._searches: dict[int, _Search] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._searches

    def search(self, key: int, since: int, find: Callable[[str], OomKill | None]) -> None:
        """Have `find` look at the kernel's lines since then (microseconds) until it finds something."""
        command = ["journalctl", "--dmesg", "--boot", "--follow", "--quiet", "--output=cat", "--lines=all"]
        command.append(f"--since=@{since // 1_000_000}")
        # It is bounded from outside, so that it ends whatever becomes of us.
        process = subprocess.Popen(
            ["timeout", str(PATIENCE), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._epoll.register(process.stdout.fileno(), select.EPOLLIN)
        self._searches[key] = _Search(process, find)

    def found(self) -> Iterator[tuple[int, OomKill | None]]:
        """Searches that have ended since the last call: what was found."""
        for key, search in list(self._searches.items()):
            ended = self._read(search)
            kill = search.find(search.text.decode("utf-8", "replace"))
            if ended or kill is not None:
                self._end(key)
                yield key, kill

    def _read(self, search: _Search) -> bool:
        assert search.process.stdout is not None
        with suppress(BlockingIOError):
            while chunk := os.read(search.process.stdout.fileno(), _CHUNK):
                search.text = (search.text + chunk)[-_MOST:]
            return True
        return False

    def _end(self, key: int) -> None:
        process = self._searches.pop(key).process
        assert process.stdout is not None
        self._epoll.unregister(process.stdout.fileno())
        process.terminate()
        with process:
            pass
