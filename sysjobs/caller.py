"""Calls to the daemon, over a connection that is made anew when it breaks."""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, Any

from sysjobs.connection import Connection, Lost, NotListening, Patience, Unknown, parameters, request
from sysjobs.errors import Refused, SysjobsError, Unreachable
from sysjobs.wire import WireError, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sysjobs.answers import View

    Replies = Sequence[dict[str, Any]]

DEFAULT_SOCKET = "/run/sysjobs/io.sysjobs"


_MOMENT = 2.0
"""Seconds after which somebody who waits should be told so."""


def tell_silence(socket: str) -> None:
    """Called once in each call whose answer takes longer than that. The command line has its own."""


class Caller:
    """A connection to sysjobsd, made at the first call and made anew when the daemon restarts.

    `socket` is the daemon's socket ($SYSJOBS_SOCKET, else the system's), `timeout` how many seconds an
    answer may take.
    """

    # One that restarts under socket activation keeps its socket: a refused connect is no restart for long.
    _CONNECT_PATIENCE = 1.0
    _LOST_PATIENCE = 10.0
    _VERSION_PATIENCE = 5.0

    def __init__(self, socket: str | None = None, *, timeout: float = 60.0) -> None:
        self.socket = socket or os.environ.get("SYSJOBS_SOCKET") or DEFAULT_SOCKET
        self.timeout = timeout
        self.warnings: list[str] = []
        self._connection: Connection | None = None
        # When the call was made that nobody was told to be taking its time.
        self._asked_at: float | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(self, method: str, values: Mapping[str, object], *, more: bool = False) -> Replies:
        """Makes a call, again if the connection breaks: each is safe to repeat."""
        message = request(method, values, more=more)
        patience = Patience(self._CONNECT_PATIENCE)
        self._asked_at = monotonic()
        while True:
            try:
                return [self._parameters(answer, method) for answer in self._exchange(message)]
            except NotListening as error:
                failure: Exception = error
            except Lost as error:
                patience = patience.at_least(self._LOST_PATIENCE)
                failure = error
            if not patience.wait():
                raise self._gone(failure)
            self._mention_silence()

    def _mention_silence(self) -> None:
        if self._asked_at is not None and monotonic() > self._asked_at + _MOMENT:
            self._asked_at = None
            tell_silence(self.socket)

    def _exchange(self, message: bytes) -> Replies:
        if self._connection is None:
            self._connection = Connection(self.socket, self.timeout)
        messages: list[dict[str, Any]] = []
        try:
            self._connection.send(message)
            while not messages or messages[-1].get("continues"):
                answer = self._connection.receive(min(_MOMENT, self.timeout))
                if answer is None:
                    self._mention_silence()
                    answer = self._connection.receive()
                assert answer is not None
                messages.append(answer)
        except BaseException:
            # The rest of this answer must not be taken for that of the next call.
            self.close()
            raise
        return messages

    def _view(self, kind: type[View], raw: object) -> View:
        try:
            return kind.from_wire(raw)
        except WireError as error:
            raise self._unexpected(str(error)) from None

    def _views(self, kind: type[View], raw: object) -> Iterator[View]:
        if not isinstance(raw, list):
            raise self._unexpected("an array is missing")
        return (self._view(kind, item) for item in raw)

    def _parameters(self, message: dict[str, object], method: str) -> dict[str, Any]:
        try:
            return parameters(message, method, self.socket)
        except Unknown as unknown:
            from sysjobs.versions import advice, described

            daemon = self._daemon_version()
            raise Refused(
                f"{described(daemon)} {unknown}.", advice(daemon), code="version-mismatch"
            ) from None

    def _unexpected(self, what: str) -> Unreachable:
        from sysjobs.versions import advice, described

        daemon = self._daemon_version()
        return Unreachable(
            f"The answer of {described(daemon)} makes no sense: {what}.", advice(daemon), code="bad-answer"
        )

    def _daemon_version(self) -> str:
        """What runs there, which need not be what is installed; empty if it doesn't say."""
        try:
            with Connection(self.socket, min(self.timeout, self._VERSION_PATIENCE)) as connection:
                connection.send(encode({"method": "org.varlink.service.GetInfo"}))
                info = parameters(connection.receive() or {}, "GetInfo", self.socket)
        except (SysjobsError, Lost, Unknown):
            return ""
        return str(info.get("version") or "")

    def _gone(self, failure: Exception) -> Unreachable:
        if isinstance(failure, Unreachable):
            return failure
        return Unreachable(
            f"sysjobsd at {self.socket} ended each time before it answered, or can't start: {failure}.",
            "See why: `sysjobs doctor`, `sysjobsd --check`, `systemctl status sysjobsd`; or check --socket.",
            code="broken-off",
        )
