"""The installed daemon without its service, forked off so that a start takes milliseconds, and its fuse.

It dies by SIGKILL just before its n-th effect: a commit, a call of systemd, a reply, a change of a file.
sysjobs tells of the first three by audit events (PEP 578), Python of the last: that is the whole hook.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import NoReturn

from sysjobs.config import SYSTEM, Settings
from sysjobs.daemon import Daemon
from sysjobs.sysjobsd import make_directories

LOG = Path("/var/log/crash.log")

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = frozenset(
    f"os.{name}" for name in ("mkdir", "remove", "rmdir", "chown", "chmod", "setxattr", "truncate")
)


_KEPT = (signal.SIGTERM, signal.SIGCHLD)


def is_effect(event: str, arguments: tuple[object, ...]) -> bool:
    if event == "open":
        return isinstance(arguments[2], int) and bool(arguments[2] & _WRITING)
    return event.startswith("sysjobs.") or event in _CHANGES


class Fuse:
    """Memory that daemons and rig share: how many effects there were, and which are to be the last ones.

    Each field is written by one side while a daemon runs: what the other one writes meanwhile isn't undone.
    """

    _COUNT, _DEATHS, _FIRST, _SECOND = 0, 8, 16, 24

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 32)

    def _get(self, offset: int) -> int:
        value: int = struct.unpack_from("q", self._shared, offset)[0]
        return value

    def _set(self, offset: int, value: int) -> None:
        struct.pack_into("q", self._shared, offset, value)

    @property
    def deaths(self) -> int:
        """Daemons that died of it, since it was set."""
        return self._get(self._DEATHS)

    def set(self, first: int, second: int = 0) -> None:
        """Have the daemon die before its `first` effect from now, the one after it before its `second`."""
        self._set(self._FIRST, 0)
        self._set(self._SECOND, second)
        self._set(self._DEATHS, 0)
        self._set(self._FIRST, self._get(self._COUNT) + first if first else 0)

    def burn(self, event: str, arguments: tuple[object, ...]) -> None:
        """An audit hook of the daemon."""
        if is_effect(event, arguments):
            count, deaths = self._get(self._COUNT) + 1, self.deaths
            last = self._get((self._FIRST, self._SECOND)[deaths]) if deaths < 2 else 0
            if last and self._get(self._FIRST) and count >= last:
                self._set(self._COUNT, 0)
                self._set(self._DEATHS, deaths + 1)
                os.kill(os.getpid(), signal.SIGKILL)
            self._set(self._COUNT, count)


class Rig:
    """A daemon that is started again whenever it was killed. Its socket stays, as systemd's does."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.fuse = Fuse()
        make_directories(SYSTEM)
        LOG.touch()
        SYSTEM.socket.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(SYSTEM.socket))
        SYSTEM.socket.chmod(0o666)
        self._socket.listen(socket.SOMAXCONN)
        self._keeper = 0

    def start(self) -> None:
        # A SIGTERM that came before the keeper waits for it would end it, and nobody its daemon.
        signal.pthread_sigmask(signal.SIG_BLOCK, _KEPT)
        self._keeper = os.fork()
        if self._keeper == 0:
            _Keeper(self._socket, self._settings, self.fuse).run()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _KEPT)

    def stop(self) -> None:
        """End the daemon as `systemctl stop` does."""
        os.kill(self._keeper, signal.SIGTERM)
        _, status = os.waitpid(self._keeper, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code == 0, f"the daemon ended by itself, {code}: {LOG.read_text()[-4000:]}"


class _Keeper:
    """The process that starts daemons. Its own end, by SIGTERM, is the last one's.

    It has the signals blocked that it waits for: one that came between two daemons would be lost otherwise.
    """

    def __init__(self, sock: socket.socket, settings: Settings, fuse: Fuse) -> None:
        self._socket = sock
        self._settings = settings
        self._fuse = fuse

    def run(self) -> NoReturn:
        pid = self._fork()
        while True:
            if signal.sigwait(_KEPT) == signal.SIGTERM:
                os.kill(pid, signal.SIGTERM)
                status = os.waitpid(pid, 0)[1]
                # By SIGKILL where it had burned its fuse just before.
                os._exit(0 if status in (0, signal.SIGTERM, signal.SIGKILL) else status & 127 or 1)
            _, status = os.waitpid(pid, 0)
            if status != signal.SIGKILL:
                os._exit(1)
            pid = self._fork()

    def _fork(self) -> int:
        pid = os.fork()
        if pid == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _KEPT)
            self._serve()
        return pid

    def _serve(self) -> NoReturn:
        status = 1
        try:
            logging.basicConfig(filename=LOG, level=logging.INFO, force=True)
            sys.addaudithook(self._fuse.burn)
            loop = asyncio.new_event_loop()
            daemon = Daemon(SYSTEM, self._settings, loop)
            with contextlib.closing(daemon):
                loop.run_until_complete(daemon.run(self._socket.dup()))
            status = 0
        except BaseException:
            logging.exception("the daemon failed")
        os._exit(status)
