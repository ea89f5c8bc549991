"""One connection to the daemon: calls go out, replies come in, and what fails there is said for people."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Mapping
from time import monotonic, sleep

from sysjobs.errors import WIRE_ERRORS, Denied, Refused, SysjobsError, Unreachable
from sysjobs.wire import END, MAX_MESSAGE, WireError, decode, encode

_CHUNK = 1 << 18


class Lost(Exception):
    """The connection ended before the answer did; the call can be made again."""


class Unknown(Exception):
    """One side doesn't know what the other says, as happens when they are of different versions."""


class NotListening(Unreachable):
    """Nobody listens at the socket; a daemon that is being restarted looks like this for a moment."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(
            f"sysjobsd isn't running: {path}: {error.strerror}.",
            "Start it, systemctl start sysjobsd.socket, or check --socket and SYSJOBS_SOCKET.",
            code="not-running",
        )


class Connection:
    """A connected socket. `receive()` returns one message after the other."""

    def __init__(self, path: str, timeout: float) -> None:
        self.path = path
        self._timeout = timeout
        self._buffer = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            # With settimeout() a full backlog would fail at once; this way the kernel queues us.
            limit = struct.pack("@ll", int(timeout), 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self._socket.connect(path)
        except OSError as error:
            self.close()
            raise self._connect_error(error) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(data)
        except TimeoutError:
            raise self.silent() from None
        except OSError as error:
            raise Lost(error.strerror) from None

    def receive(self, timeout: float | None = None) -> dict[str, object] | None:
        """The next message. None if it isn't there in `timeout` seconds; without one, silence is an error."""
        deadline = monotonic() + (self._timeout if timeout is None else timeout)
        searched = 0
        while (end := self._buffer.find(END, searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_MESSAGE:
                raise self.stranger()
            try:
                # A timeout of 0 would make the socket non-blocking, which fails in another way.
                self._socket.settimeout(max(deadline - monotonic(), 0.001))
                data = self._socket.recv(_CHUNK)
            except TimeoutError:
                if timeout is None:
                    raise self.silent() from None
                return None
            except OSError as error:
                raise Lost(error.strerror) from None
            if not data:
                raise Lost("closed by the other side")
            self._buffer += data
            if not self._buffer.startswith(b"{"):
                raise self.stranger()
        frame = self._buffer[:end]
        del self._buffer[: end + 1]
        try:
            return decode(frame)
        except WireError:
            raise self.stranger() from None

    def silent(self) -> Unreachable:
        return Unreachable(
            f"sysjobsd at {self.path} hasn't answered for {self._timeout:g} seconds; it may still do so.",
            "See what holds it up, journalctl -u sysjobsd, or check --socket and SYSJOBS_SOCKET.",
            code="no-answer",
        )

    def stranger(self) -> Unreachable:
        return _stranger(self.path)

    def _connect_error(self, error: OSError) -> Unreachable:
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
            return NotListening(self.path, error)
        if error.errno in (errno.EACCES, errno.EPERM):
            return Unreachable(
                f"You may not use sysjobs here: {self.path}: {error.strerror}.",
                f"Ask the administrator for access; ls -l {self.path} shows who has it.",
                code="no-access",
            )
        if error.errno == errno.EPROTOTYPE:
            return _stranger(self.path)
        if error.errno == errno.EAGAIN:
            return self.silent()
        return Unreachable(
            f"{self.path} can't be used as the daemon's socket: {error.strerror or error}.",
            "Check --socket and SYSJOBS_SOCKET.",
            code="bad-socket",
        )


class Patience:
    """How long to go on trying: growing pauses within a bounded time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = monotonic() + seconds
        self._pause = 0.05

    def at_least(self, seconds: float) -> Patience:
        """After what deserves more patience than was set out with. Only the first such time counts."""
        if self._seconds < seconds:
            return Patience(seconds)
        return self

    def next_pause(self) -> float | None:
        """How long to pause before the next try, or None when it is time to give up."""
        left = self._until - monotonic()
        if left <= 0:
            return None
        pause, self._pause = min(self._pause, left), min(self._pause * 2, 1.0)
        return pause

    def wait(self) -> bool:
        """Pauses; False when it is time to give up."""
        pause = self.next_pause()
        if pause is None:
            return False
        sleep(pause)
        return True


def parameters(message: dict[str, object], method: str, path: str) -> dict[str, object]:
    """The parameters of a reply; an error reply is raised."""
    values = message.get("parameters", {})
    if not isinstance(values, dict):
        raise _stranger(path)
    name = message.get("error")
    if name is None:
        return values
    raise _error(str(name), {str(key): str(value) for key, value in values.items()}, method, path)


def _error(name: str, values: dict[str, str], method: str, path: str) -> SysjobsError | Unknown:
    if name in WIRE_ERRORS or (name.startswith("io.sysjobs.") and "message" in values):
        # A newer daemon's own kind of error has at least a sentence for people.
        kind = WIRE_ERRORS.get(name, Refused)
        return kind(values.get("message", name), values.get("hint", ""), code=values.get("code", "refused"))
    match name.removeprefix("org.varlink.service."):
        case "InterfaceNotFound":
            return _stranger(path)
        case "PermissionDenied":
            return Denied(f"sysjobsd doesn't let you call {method}.", code="denied")
        case "InvalidParameter":
            return Unknown(f"refuses the parameter {values.get('parameter')!r} of {method}")
        case "MethodNotFound" | "MethodNotImplemented":
            return Unknown(f"doesn't know {method}")
    return Unknown(f"answers {method} with {name}")


def _stranger(path: str) -> Unreachable:
    return Unreachable(
        f"What answers at {path} is not sysjobsd.", "Check --socket and SYSJOBS_SOCKET.", code="not-sysjobsd"
    )


def request(method: str, values: Mapping[str, object], *, more: bool) -> bytes:
    given = {name: value for name, value in values.items() if value is not None}
    call: dict[str, object] = {"method": f"io.sysjobs.{method}", "parameters": given}
    if more:
        call["more"] = True
    return encode(call)
