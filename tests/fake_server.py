"""A peer on a Unix socket that answers as a script says, for tests of the client; it can misbehave too."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sysjobs.wire import END, decode, encode

Answer = Callable[["Peer", dict[str, Any]], None]


class Peer:
    """The server's end of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()

    def receive(self) -> dict[str, Any] | None:
        """The next call; None when the client is gone."""
        while END not in self._buffer:
            try:
                data = self._socket.recv(1 << 16)
            except OSError:
                return None
            if not data:
                return None
            self._buffer += data
        frame, _, rest = self._buffer.partition(END)
        self._buffer = rest
        return decode(frame)

    def reply(self, *, continues: bool = False, **parameters: object) -> None:
        message: dict[str, object] = {"parameters": parameters}
        if continues:
            message["continues"] = True
        self.raw(encode(message))

    def error(self, name: str, **parameters: object) -> None:
        self.raw(encode({"error": name, "parameters": parameters}))

    def raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()

    def hang_up(self) -> None:
        """Wakes the thread that waits in recv(), too, which close() alone doesn't."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Server:
    """Calls `answer(peer, call)` for each call, each connection in a thread of its own.

    `calls` has all calls so far, `connections` counts the connections.
    """

    def __init__(self, path: Path, answer: Answer) -> None:
        self.path = str(path)
        self.calls: list[dict[str, Any]] = []
        self.connections = 0
        self._answer = answer
        self._peers: list[Peer] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._start(self._accept)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for peer in self._peers:
            peer.hang_up()
        for thread in self._threads:
            thread.join(5)
        self._listener.close()

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            peer = Peer(connection)
            self._peers.append(peer)
            self._start(partial(self._serve, peer))

    def _serve(self, peer: Peer) -> None:
        while (call := peer.receive()) is not None:
            self.calls.append(call)
            try:
                self._answer(peer, call)
            except OSError:
                break
        peer.close()
