"""Taking turns: work for several users, of whom each gets the same time, however much they ask for."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)

SLICE = 0.005
"""Seconds of a user's turn. Work that has begun is finished, and what fits shares one commit."""


class Turns:
    def __init__(self) -> None:
        self._waiting: dict[int, deque[Callable[[], None]]] = {}
        self._called = False

    def add(self, uid: int, work: Callable[[], None]) -> None:
        """Have `work` done when it is this user's turn, after what they asked for before."""
        self._waiting.setdefault(uid, deque()).append(work)
        self._call()

    def _call(self) -> None:
        if self._waiting and not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        """One turn for everybody who waits; sockets and everything else have theirs before the next."""
        self._called = False
        for uid, works in list(self._waiting.items()):
            until = time.monotonic() + SLICE
            while works and time.monotonic() < until:
                self._do(works.popleft())
            if not works:
                del self._waiting[uid]
        self._call()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            # A fault of ours, and of this work alone.
            log.exception("a request failed")
