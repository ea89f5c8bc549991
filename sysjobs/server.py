"""The Varlink server: connections, frames, and the standard interface; methods come from `handlers`.

A connection's calls are answered one after the other, and users take turns, so that nobody waits for another
one's thousand calls. What a user can make the daemon keep is bounded: connections, and on each one message
being read, one call in progress, a limited backlog of replies; beyond that it is closed.
"""

from __future__ import annotations

import asyncio
import logging
import select
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from sysjobs.errors import Refused, SysjobsError, Unavailable
from sysjobs.peer import Peer, peer_of
from sysjobs.protocol import Call, ProtocolError, error_reply, reply
from sysjobs.turns import Turns
from sysjobs.wire import MAX_MESSAGE, WireError, decode, encode

log = logging.getLogger(__name__)

MAX_BACKLOG = 1 << 20
"""Bytes of replies that may wait for a client that doesn't read when the next one is sent."""

MAX_HELD = 64 << 20
"""Bytes that all connections of one user together may have the daemon keep for them."""

MAX_CONNECTIONS = 512
"""Connections of one user."""

AT_ONCE = 100
"""Replies to one client between two looks at the others."""

News = tuple[Mapping[str, object] | None, bool]
"""The next reply of several, or None for now, and whether it is the last."""

Handler = Callable[["Exchange", Call], None]
AfterCommit = Callable[[Callable[[SysjobsError | None], None]], None]


class Server:
    """Makes the protocol of each new connection."""

    def __init__(self, handlers: Mapping[str, Handler], after_commit: AfterCommit) -> None:
        self.handlers = handlers
        self.interfaces = {method.rpartition(".")[0] for method in handlers}
        self.after_commit = after_commit
        self.turns = Turns()
        self.connections: defaultdict[int, set[Connection]] = defaultdict(set)

    def __call__(self) -> Connection:
        return Connection(self)


class Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.Transport
        self._buffer = bytearray()
        self._searched = 0
        self._called = False
        self._exchange: Exchange | None = None
        self._full = False
        self._ended = False
        self.peer: Peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = peer_of(transport.get_extra_info("socket"))
        self._server.connections[self.peer.share].add(self)
        if len(self._server.connections[self.peer.share]) > MAX_CONNECTIONS:
            self.refuse(
                Unavailable(
                    f"User id {self.peer.uid} has {MAX_CONNECTIONS} connections open already.",
                    "Close some, or wait.",
                    code="too-many-connections",
                )
            )

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._called:
            self._forget()
        if self._exchange is not None:
            self._exchange.over()

    def _forget(self) -> None:
        """What is here counts no longer towards what its user may have kept."""
        self._server.connections[self.peer.share].discard(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()
        if len(self._buffer) > MAX_BACKLOG and self.user_holds_too_much():
            self.refuse(self.too_much())

    def user_holds_too_much(self) -> bool:
        return sum(connection.held for connection in self._server.connections[self.peer.share]) > MAX_HELD

    def too_much(self) -> Unavailable:
        return Unavailable(
            f"User id {self.peer.uid} has more than {MAX_HELD >> 20} MiB of requests on their way.",
            "Wait for the answers to some of them.",
            code="too-much",
        )

    @property
    def held(self) -> int:
        """Bytes that wait here, in either direction, and those that the call in progress needs."""
        needed = 0 if self._exchange is None else self._exchange.held
        return len(self._buffer) + self._transport.get_write_buffer_size() + needed

    def eof_received(self) -> bool:
        # Calls that came before the end are answered still, if there is somebody left to read that.
        self._ended = True
        return (self._exchange is not None or self._full or 0 in self._buffer) and not self._hung_up()

    def _hung_up(self) -> bool:
        """Whether the client is gone, rather than done with sending."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), 0)
        return bool(poll.poll(0))

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._exchange is not None:
            self._exchange.resumed()
        self._next()

    @property
    def _busy(self) -> bool:
        """Whether no other call can be taken now."""
        return self._called or self._exchange is not None or self._full

    def _next(self) -> None:
        """Have the next call taken in its turn, if there is one and nothing is in the way."""
        if not self._busy and not self._transport.is_closing():
            end = self._buffer.find(0, self._searched)
            self._searched = len(self._buffer) if end < 0 else end
            if end >= 0:
                self._called = True
                self.in_turn(self._take)
            elif self._searched > MAX_MESSAGE:
                self._too_big()
        if self._transport.is_closing():
            return
        if self._ended and not self._busy:
            self._transport.close()
            return
        # While a call is in progress, or replies aren't read, one more message may wait, and no more.
        if self._busy and len(self._buffer) > MAX_MESSAGE:
            self._transport.pause_reading()
        elif not self._transport.is_reading():
            self._transport.resume_reading()

    def in_turn(self, work: Callable[[], None]) -> None:
        self._server.turns.add(self.peer.share, work)

    def _take(self) -> None:
        self._called = False
        if self._transport.is_closing():
            self._forget()
        if not self._buffer:
            # It was refused meanwhile.
            return
        frame = self._buffer[: self._searched]
        del self._buffer[: self._searched + 1]
        self._searched = 0
        # Also where the client is gone by now: it had said all of it.
        self._call(frame)
        if self._transport.is_closing() and self._exchange is not None:
            self._exchange.over()
        self._next()

    def _too_big(self) -> None:
        limit = MAX_MESSAGE >> 20
        self.refuse(
            Refused(
                f"The message is larger than {limit} MiB.",
                "Pass large data in files, or in several calls.",
                code="too-big",
            )
        )

    def _call(self, frame: bytearray) -> None:
        try:
            call = Call.of(decode(frame))
        except WireError as error:
            # Not for the journal: anybody could fill it.
            log.debug("uid %d sent what is no call: %s", self.peer.uid, error)
            self._transport.close()
            return
        self._exchange = exchange = Exchange(self, call)
        try:
            self._handler(call)(exchange, call)
        except (SysjobsError, ProtocolError) as error:
            exchange.fail(error)
        except Exception:
            # One broken request must not take the daemon down.
            exchange.fail_as_bug()

    def _handler(self, call: Call) -> Handler:
        handler = self._server.handlers.get(call.method)
        if handler is not None:
            return handler
        if call.interface not in self._server.interfaces:
            raise ProtocolError("InterfaceNotFound", interface=call.interface)
        raise ProtocolError("MethodNotFound", method=call.method)

    def after_commit(self, then: Callable[[SysjobsError | None], None]) -> None:
        self._server.after_commit(then)

    def send(self, message: dict[str, object]) -> None:
        if self._transport.is_closing():
            return
        data = encode(message)
        waiting = self._transport.get_write_buffer_size()
        if waiting > MAX_BACKLOG or (waiting and self.user_holds_too_much()):
            log.debug("uid %d doesn't read its replies; its connection is closed", self.peer.uid)
            self._transport.abort()
            return
        sys.audit("sysjobs.reply")
        self._transport.write(data)

    def refuse(self, error: SysjobsError) -> None:
        self.send(error_reply(error))
        self._buffer.clear()
        self._transport.close()

    def done(self) -> None:
        self._exchange = None
        self._next()

    @property
    def full(self) -> bool:
        return self._full


class Exchange:
    """One call and its replies. It ends with `finish`, `fail`, the last of `stream`, or the connection."""

    def __init__(self, connection: Connection, call: Call) -> None:
        self._connection = connection
        self._call = call
        self._is_over = False
        self.held = 0
        self._when_over: list[Callable[[], None]] = []
        self._parts: Iterator[dict[str, object]] | None = None

    @property
    def peer(self) -> Peer:
        return self._connection.peer

    def hold(self, size: int) -> None:
        """Count bytes that are kept until the call is over. Raises Unavailable."""
        self.held = size
        if self._connection.user_holds_too_much():
            raise self._connection.too_much()

    def part(self, parameters: Mapping[str, object]) -> None:
        """One reply of several, sent at once."""
        if not self._is_over and not self._call.oneway:
            self._connection.send(reply(parameters, continues=True))

    def finish(self, parameters: Mapping[str, object]) -> None:
        """The last reply, or the only one; it is sent once what it says is on disk."""

        def committed(error: SysjobsError | None) -> None:
            if error is not None:
                self.fail(error)
            else:
                self._end(reply(parameters))

        self._connection.after_commit(committed)

    def fail(self, error: SysjobsError | ProtocolError) -> None:
        self._end(error_reply(error))

    def fail_as_bug(self) -> None:
        """The exception in hand is a fault of ours."""
        log.exception("%s failed", self._call.method)
        self.fail(
            Unavailable("sysjobsd failed at this request.", "`journalctl -u sysjobsd` says why.", code="bug")
        )

    def _end(self, message: dict[str, object]) -> None:
        if self._is_over:
            return
        if not self._call.oneway:
            try:
                self._connection.send(message)
            except Refused as error:
                self._connection.send(error_reply(error))
        self.over()
        self._connection.done()

    def stream(self, parts: Iterator[dict[str, object]]) -> None:
        """Send these replies as fast as the client reads them, others' requests in between."""
        self._parts = parts
        self._step(next(parts))

    def _step(self, current: dict[str, object]) -> None:
        assert self._parts is not None
        if self._is_over:
            return
        try:
            following = next(self._parts)
        except StopIteration:
            self._end(reply(current))
            return
        except Exception:
            self.fail_as_bug()
            return
        self.part(current)
        self._continue(following)

    def _continue(self, current: dict[str, object]) -> None:
        if self._connection.full:
            self._resume = lambda: self._step(current)
        else:
            self._connection.in_turn(lambda: self._step(current))

    def follow(self, news: Callable[[], News]) -> None:
        """Send what `news` has as fast as the client reads; what it has later, when `pump` is called."""
        self._news = news

        def committed(error: SysjobsError | None) -> None:
            if error is not None:
                self.fail(error)
            else:
                self._pump()

        self._connection.after_commit(committed)

    def pump(self) -> None:
        if not self._pumping and self._resume is None:
            self._pumping = True
            self._connection.in_turn(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        assert self._news is not None
        for _ in range(AT_ONCE):
            if self._is_over:
                return
            if self._connection.full:
                self._resume = self._pump
                return
            try:
                message, is_last = self._news()
            except SysjobsError as error:
                self.fail(error)
                return
            except Exception:
                self.fail_as_bug()
                return
            if message is None:
                return
            if is_last:
                self._end(reply(message))
            else:
                self.part(message)
        self.pump()

    _news: Callable[[], News] | None = None
    _pumping = False
    _resume: Callable[[], None] | None = None

    def resumed(self) -> None:
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    def when_over(self, callback: Callable[[], None]) -> None:
        self._when_over.append(callback)

    def over(self) -> None:
        self._is_over = True
        callbacks, self._when_over = self._when_over, []
        for callback in callbacks:
            with suppress(ValueError):
                callback()
