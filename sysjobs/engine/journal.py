"""Looking into the journal for who ended a job, without waiting: one look at a time, for all who asked."""

from __future__ import annotations

import logging
import os
import select
import subprocess
from contextlib import suppress
from dataclasses import dataclass

from sysjobs.engine import requests
from sysjobs.engine.evidence import Victim
from sysjobs.engine.outcome import Found, look_up

log = logging.getLogger(__name__)

PATIENCE = 10
"""Seconds that a look may take, be journald stopped, gone, or behind."""

# Who wrote a line is journald's word; that of the program itself counts only for a service of the system.
_LINES = (
    "_TRANSPORT=kernel",
    "+",
    "SYSLOG_IDENTIFIER=systemd",
    "_PID=1",
    "+",
    "SYSLOG_IDENTIFIER=systemd-oomd",
    "_SYSTEMD_UNIT=systemd-oomd.service",
    "+",
    "SYSLOG_IDENTIFIER=earlyoom",
    "_SYSTEMD_SLICE=system.slice",
)
_MATTER = f"oom-kill:|Killed |systemd-oomd killed |sending SIG|{requests.MATTER}"
_FIELDS = "MESSAGE,SYSLOG_IDENTIFIER,_TRANSPORT,INVOCATION_ID,_SOURCE_REALTIME_TIMESTAMP"
# What was said before the job's end is in the journal once that has taken in what has come to it so far.
_LOOK = 'journalctl --sync; exec journalctl --boot --quiet --no-pager --output=json "$@"'

_CHUNK = 1 << 16
_MOST = 1 << 22


@dataclass(slots=True)
class _Look:
    process: subprocess.Popen[bytes]
    victims: dict[int, Victim]
    again: bool
    output: bytes = b""


class Journal:
    """Searches, each under a key of the caller's, whose ends make `epoll` readable."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._look: _Look | None = None
        self._waiting: dict[int, Victim] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._waiting or (self._look is not None and key in self._look.victims)

    def search(self, key: int, victim: Victim) -> bool:
        """Have it looked for who ended this one; False if that can't be done now."""
        self._waiting[key] = victim
        if self._look is not None:
            # It may have read past the lines about this one.
            return True
        return self._begin()

    def _begin(self, *, again: bool = False) -> bool:
        """Look for all that wait, some of them for the last time."""
        victims, self._waiting = self._waiting, {}
        since = min(victim.since for victim in victims.values()) // 1_000_000
        arguments = (f"--since=@{since}", f"--grep={_MATTER}", f"--output-fields={_FIELDS}", *_LINES)
        try:
            process = subprocess.Popen(
                # It is bounded from outside, so that it ends whatever becomes of us.
                ["timeout", "--kill-after=1", str(PATIENCE), "sh", "-c", _LOOK, "sh", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            log.warning("the journal can't be looked into: %s", error)
            return False
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._epoll.register(process.stdout.fileno(), select.EPOLLIN)
        self._look = _Look(process, victims, again)
        return True

    def found(self) -> dict[int, Found]:
        """What came of the searches that have ended since the last call."""
        look = self._look
        if look is None or not self._read(look):
            return {}
        assert look.process.stdout is not None
        self._epoll.unregister(look.process.stdout.fileno())
        with look.process:
            self._look = None
        # `timeout` ends by the signal that ended what it ran, if that came from elsewhere: whoever stops the
        # daemon may mean all of its processes. The next daemon asks again, or this one does, once.
        killed = (look.process.returncode or 0) < 0 and not look.again
        if killed:
            self._waiting = look.victims | self._waiting
        found = {} if killed else look_up(look.output, look.victims)
        waiting = list(self._waiting)
        if waiting and not self._begin(again=killed):
            found |= dict.fromkeys(waiting, Found())
        return found

    @staticmethod
    def _read(look: _Look) -> bool:
        """Take in what there is; whether that was the last of it."""
        assert look.process.stdout is not None
        with suppress(BlockingIOError):
            while chunk := os.read(look.process.stdout.fileno(), _CHUNK):
                look.output = (look.output + chunk)[-_MOST:]
            return True
        return False
