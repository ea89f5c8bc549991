"""A connection to the daemon of a node that sends whatever bytes a test wants, as a user of that node."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from tests.node import Node

USERS = {"root": 0, "alice": 1000, "bob": 1001, "id 100000": 100_000, "id 100001": 100_001}
"""The last two have no account."""
PATIENCE = 30.0


class RawClient:
    def __init__(self, node: Node, user: str = "alice") -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self._received = bytearray()
        folder = os.open(f"/proc/{node.state.init}/root/run/sysjobs", os.O_PATH)
        try:
            with _as(USERS[user]):
                self.socket.connect(f"/proc/self/fd/{folder}/io.sysjobs")
        finally:
            os.close(folder)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> dict[str, Any] | None:
        """The next message; None if the daemon has closed the connection."""
        while (end := self._received.find(0)) < 0:
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                assert not self._received, "the daemon closed the connection within a message"
                return None
            self._received += data
        message: dict[str, Any] = json.loads(self._received[:end])
        del self._received[: end + 1]
        return message

    def call(
        self, method: str, parameters: Mapping[str, object] | None = None, **flags: bool
    ) -> dict[str, Any]:
        """The reply to a call, the last of several."""
        *_, last = self.replies(method, parameters, **flags)
        return last

    def replies(
        self, method: str, parameters: Mapping[str, object] | None = None, **flags: bool
    ) -> Iterator[dict[str, Any]]:
        self.send(request(method, parameters, **flags))
        while True:
            message = self.receive()
            assert message is not None, "the daemon closed the connection instead of replying"
            yield message
            if not message.get("continues"):
                return


def request(method: str, parameters: Mapping[str, object] | None = None, **flags: bool) -> bytes:
    """The bytes of a call; a method without an interface is one of ours."""
    name = method if "." in method else f"io.sysjobs.{method}"
    return json.dumps({"method": name, "parameters": parameters or {}, **flags}).encode() + b"\0"


@contextmanager
def _as(uid: int) -> Iterator[None]:
    """The kernel tells the daemon who we were when we connected."""
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
