"""The connection to systemd, and the only module that imports pystemd: its bytes and traps end here.

One private connection to the manager carries calls and signals. It receives every signal unasked and PID 1
queues what isn't read, so it is drained after each call and whenever it becomes readable.
"""

from __future__ import annotations

import errno
import functools
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from pystemd import dbuslib
from pystemd.dbusexc import DBusBaseError

from sysjobs.engine import ConnectionLost
from sysjobs.engine.signals import UNLOADED, Signal
from sysjobs.engine.units import Property

_DESTINATION = b"org.freedesktop.systemd1"
_MANAGER_PATH = b"/org/freedesktop/systemd1"
_UNIT_PREFIX = b"/org/freedesktop/systemd1/unit/"
_MANAGER = b"org.freedesktop.systemd1.Manager"
_PROPERTIES = b"org.freedesktop.DBus.Properties"

# After these nobody knows whether the call took effect, and what follows is the same for all.
_LOST = {
    -errno.ECONNRESET,
    -errno.ENOTCONN,
    -errno.EPIPE,
    -errno.ESHUTDOWN,
    -errno.ECONNREFUSED,
    -errno.EINTR,
    -errno.ETIMEDOUT,
}
# Those that the daemon has handlers for: no other one can interrupt a call and leave the daemon alive.
_SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))


class CallFailed(Exception):
    """systemd refused; `number` is the negative errno that it said."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number
        self.text = text


class Knock:
    """A connection by which systemd shows that it's there, before one is opened that everybody waits for.

    Opening one waits for the answer, up to 90 s: SYSTEMD_BUS_TIMEOUT isn't for that part.
    """

    def __init__(self, address: str) -> None:
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            raise ConnectionLost(f"there is no socket for systemd: {error.strerror}") from None
        try:
            self._socket.connect(address)
            # As D-Bus connections begin, in the name of root.
            self._socket.send(b"\0AUTH EXTERNAL 30\r\n")
        except OSError as error:
            self._socket.close()
            raise ConnectionLost(f"systemd can't be reached at {address}: {error.strerror}") from None

    def fileno(self) -> int:
        """Readable once it has answered, or has closed the connection, as it does when it restarts itself."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class Bus:
    """Calls of the manager, and signals of units whose names begin with `prefix`."""

    def __init__(self, address: str, prefix: str) -> None:
        self._prefix = _unit_path(prefix)
        self._muted: set[bytes] = set()
        self._signals: list[Signal] = []
        self._seen = 0
        self._bus = dbuslib.DBusAddress(f"unix:path={address}".encode(), peer_to_peer=True)
        try:
            self._bus.open()
        except DBusBaseError as error:
            raise ConnectionLost(f"systemd can't be reached at {address}: {error}") from None
        # pystemd keeps no reference to a callback, and takes plain functions only.
        self._callbacks = (self._make_changed(), self._make_removed())
        self._bus.match_signal(None, None, _PROPERTIES, b"PropertiesChanged", self._callbacks[0])
        self._bus.match_signal(None, _MANAGER_PATH, _MANAGER, b"UnitRemoved", self._callbacks[1])
        # Of our own: a connection that breaks closes its descriptor, which is still waited for then.
        try:
            self._fd = os.dup(self._bus.get_fd())
        except OSError as error:
            self._bus.close()
            raise ConnectionLost(f"systemd can't be waited for: {error.strerror}") from None
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def _make_changed(self) -> Any:
        def changed(msg: Any, error: object = None, userdata: object = None) -> None:
            self._seen += 1
            path: bytes = msg.get_path()
            if path.startswith(self._prefix) and path not in self._muted:
                msg.process_reply(False)
                interface, values = msg.body[0], msg.body[1]
                # An empty dict reads as an empty list.
                self._signals.append((unescape(path), interface.decode(), decoded(values)))

        return changed

    def _make_removed(self) -> Any:
        def removed(msg: Any, error: object = None, userdata: object = None) -> None:
            self._seen += 1
            msg.process_reply(False)
            path: bytes = msg.body[1]
            if path.startswith(self._prefix):
                self._muted.discard(path)
                self._signals.append((unescape(path), UNLOADED, {}))

        return removed

    def close(self) -> None:
        os.close(self._fd)
        with suppress(DBusBaseError):
            self._bus.close()

    def fileno(self) -> int:
        return self._fd

    def mute(self, unit: str) -> None:
        """Leave this unit's changes unread, which is most of what a signal costs, until it is unloaded."""
        self._muted.add(_unit_path(unit))

    @property
    def pending(self) -> Sequence[Signal]:
        """Signals that came during calls, which no poll of the descriptor would show."""
        return self._signals

    def signals(self) -> list[Signal]:
        """What came since the last call."""
        with _blocked(), _translated():
            self._drain()
        signals, self._signals = self._signals, []
        return signals

    def _drain(self) -> None:
        # process() doesn't tell whether it did anything; three idle rounds with nothing to read are the end.
        idle = 0
        while idle < 3:
            before = self._seen
            self._bus.process()
            idle = 0 if self._seen != before or self._poll.poll(0) else idle + 1

    def call(self, method: str, signature: str = "", *values: object) -> Any:
        """A method of the manager. Raises CallFailed, ConnectionLost."""
        args = dbuslib.apply_signature(signature.encode(), [_plain(value) for value in values])
        sys.audit("sysjobs.call", method)
        return self._call(_MANAGER_PATH, _MANAGER, method, args)

    def start_transient(self, unit: str, properties: Sequence[Property]) -> None:
        args: list[tuple[int, Any]] = [(ord("s"), unit.encode()), (ord("s"), b"replace"), (ord("a"), b"(sv)")]
        for name, signature, value in properties:
            args += _property(name, signature, value)
        args += [_END, (ord("a"), b"(sa(sv))"), _END]
        sys.audit("sysjobs.call", "StartTransientUnit")
        self._call(_MANAGER_PATH, _MANAGER, "StartTransientUnit", args)

    def set_property(self, unit: str, wanted: Property) -> None:
        """Of a unit, until the next boot. Raises CallFailed, ConnectionLost."""
        args: list[tuple[int, Any]] = [(ord("s"), unit.encode()), (ord("b"), True), (ord("a"), b"(sv)")]
        args += [*_property(*wanted), _END]
        sys.audit("sysjobs.call", "SetUnitProperties")
        self._call(_MANAGER_PATH, _MANAGER, "SetUnitProperties", args)

    def get(self, unit: str, interface: str, name: str, signature: str) -> Any:
        """One property. A unit that isn't loaded answers with a default, not with an error."""
        with _blocked(), _translated():
            value = self._bus.get_property(
                _DESTINATION, _unit_path(unit), interface.encode(), name.encode(), signature.encode()
            )
            self._drain()
        return value

    def get_manager(self, name: str, signature: str) -> Any:
        with _blocked(), _translated():
            value = self._bus.get_property(
                _DESTINATION, _MANAGER_PATH, _MANAGER, name.encode(), signature.encode()
            )
            self._drain()
        return value

    def get_all(self, unit: str) -> dict[str, Any]:
        """The properties of all its interfaces, as they are at one moment."""
        return decoded(self._call(_unit_path(unit), _PROPERTIES, "GetAll", [(ord("s"), b"")]))

    def list_units(self, pattern: str) -> list[tuple[str, str, str]]:
        """Name, active state and sub-state of each unit that matches and is there."""
        rows = self.call("ListUnitsByPatterns", "asas", (), (pattern,)) or []
        # One that was reloaded without its file, which somebody removed, is "not-found" and runs on.
        there = [row for row in rows if row[2] == b"loaded" or row[3] != b"inactive"]
        return [(row[0].decode(), row[3].decode(), row[4].decode()) for row in there]

    def _call(self, path: bytes, interface: bytes, method: str, args: Sequence[tuple[int, Any]]) -> Any:
        # On systemd 252 a Unix signal makes a call fail that took effect.
        with _blocked(), _translated():
            reply = self._bus.call_method(_DESTINATION, path, interface, method.encode(), args)
            self._drain()
        return reply.body


_END: tuple[int, Any] = (-1, None)


@functools.lru_cache(maxsize=512)
def _property(name: str, signature: str, value: object) -> list[tuple[int, Any]]:
    """One (sv) of a transient unit, flat as pystemd wants it. Most are the same for every job."""
    return [
        (ord("r"), b"sv"), (ord("s"), name.encode()), (ord("v"), signature.encode()),
        *dbuslib.apply_signature(signature.encode(), [_plain(value)]), _END, _END,
    ]  # fmt: skip


def _plain(value: object) -> object:
    """Strings as bytes, sequences as lists, at any depth."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value


@contextmanager
def _blocked() -> Iterator[None]:
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DBusBaseError as error:
        number: int = error.errno
        message = error.err_message
        text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        if number in _LOST:
            raise ConnectionLost(text) from None
        raise CallFailed(number, text) from None


def decoded(values: object) -> dict[str, Any]:
    """A dict of properties with its names as str; an empty one reads as an empty list."""
    assert isinstance(values, dict | list)
    return {name.decode(): value for name, value in values.items()} if isinstance(values, dict) else {}


def _escape(name: str) -> bytes:
    return "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):02x}" for c in name).encode()


def _unit_path(unit: str) -> bytes:
    return _UNIT_PREFIX + _escape(unit)


@functools.lru_cache(maxsize=1024)
def unescape(path: bytes) -> str:
    """The unit that an object path names."""
    first, *rest = path[len(_UNIT_PREFIX) :].decode().split("_")
    return first + "".join(chr(int(part[:2], 16)) + part[2:] for part in rest)
