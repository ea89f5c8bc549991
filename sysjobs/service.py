"""What a service of systemd has to do with it: its socket, sd_notify, its lines in the journal."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress

from sysjobs.config import Paths

_FIRST_FD = 3
_STDERR = 2
_JOURNAL = "/run/systemd/journal/stdout"


class Notifier:
    """Tells systemd about this service (sd_notify(3))."""

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address[:1] == "@" else address
        # For all messages: later there may be no descriptor left for one.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def tell(self, message: str, *, must: bool = False) -> None:
        """Without `must` it is left unsaid if systemd, which reads no more then, has too much unread."""
        if self._address:
            with suppress(OSError):
                self._socket.sendto(message.encode(), 0 if must else socket.MSG_DONTWAIT, self._address)


def listening_socket(paths: Paths) -> socket.socket:
    """The socket that systemd opened for this service, or one of our own where it was started by hand."""
    if os.environ.get("LISTEN_PID") == str(os.getpid()) and os.environ.get("LISTEN_FDS") == "1":
        os.set_inheritable(_FIRST_FD, False)
        return socket.socket(fileno=_FIRST_FD)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    paths.socket.unlink(missing_ok=True)
    sock.bind(str(paths.socket))
    paths.socket.chmod(0o666)
    sock.listen(socket.SOMAXCONN)
    return sock


class JournalHandler(logging.Handler):
    """Lines to the journal by stderr. Nothing waits for journald: what it doesn't take is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_JournalFormatter())
        os.set_blocking(_STDERR, False)

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record).encode("utf-8", "backslashreplace") + b"\n"
        try:
            os.write(_STDERR, line)
        except BrokenPipeError:
            # journald was stopped and started: it has forgotten what was connected to it.
            with suppress(OSError):
                self._connect()
                os.write(_STDERR, line)
        except OSError:
            pass

    def _connect(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(_JOURNAL)
            # Identifier, unit (which it knows), priority, that lines begin with theirs; no other place to go.
            sock.sendall(b"sysjobsd\n\n6\n1\n0\n0\n0\n")
            sock.setblocking(False)
            os.dup2(sock.fileno(), _STDERR, inheritable=True)


class _JournalFormatter(logging.Formatter):
    """Each line with the priority that journald reads from its beginning (sd-daemon(3))."""

    _PRIORITIES = {
        logging.DEBUG: 7,
        logging.INFO: 6,
        logging.WARNING: 4,
        logging.ERROR: 3,
        logging.CRITICAL: 2,
    }

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{self._PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def start_logging() -> None:
    handler: logging.Handler
    stderr = os.fstat(_STDERR)
    if os.environ.get("JOURNAL_STREAM") == f"{stderr.st_dev}:{stderr.st_ino}":
        handler = JournalHandler()
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("sysjobsd: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
