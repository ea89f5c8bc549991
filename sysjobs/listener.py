"""Takes in connections as long as there are file descriptors to spare: the rest of the daemon needs some."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable
from contextlib import suppress

from sysjobs.errors import Unavailable
from sysjobs.protocol import error_reply
from sysjobs.wire import encode

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Connections between two looks at everything else."""

PAUSE = 1.0
"""Seconds until the next try, when the whole machine has no descriptor left."""

_FULL = encode(
    error_reply(
        Unavailable(
            "sysjobsd has as many connections open as its LimitNOFILE= allows.",
            "Try again; `systemctl edit sysjobsd` can raise the limit.",
            code="too-many-connections",
        )
    )
)


class Listener:
    """Gives each new connection of a listening socket a protocol of its own."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._protocol = protocol
        self._tasks: set[asyncio.Task[object]] = set()
        sock.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._socket.fileno())

    def _accept(self) -> None:
        # The kernel gives the lowest number that is free: from this one on, less than a third are left.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 2 // 3
        for _ in range(AT_ONCE):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    raise
                log.error("no connection can be taken in for now: %s", error.strerror)
                self.close()
                self._loop.call_later(PAUSE, self._listen)
                return
            connection.setblocking(False)
            if connection.fileno() > most:
                with connection, suppress(OSError):
                    connection.send(_FULL)
                continue
            task = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, connection))
            # The loop itself keeps no task alive.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
