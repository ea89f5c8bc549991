"""A true login session in a node: through PAM, known to logind, with its own user manager."""

from __future__ import annotations

import os
import secrets
import select
import time
from types import TracebackType
from typing import TYPE_CHECKING

from tests.node.errors import NodeError, show_output

if TYPE_CHECKING:
    from tests.node.machine import Machine


class Login:
    """`with node.login("alice") as session: session.run("loginctl show-session self")`"""

    def __init__(self, node: Machine, user: str) -> None:
        self.node = node
        self.user = user
        # su opens the session; the shell under it reads what run() writes.
        self.shell = node.spawn(["su", "-l", user, "-s", "/bin/bash"])
        self.id = self.run('echo "$XDG_SESSION_ID"').strip()
        if not self.id:
            self.end()
            raise NodeError(f"logind gave user {user!r} no session", node.journal("systemd-logind"))

    def __enter__(self) -> Login:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def run(self, script: str, *, timeout: float = 60, check: bool = True) -> str:
        """Run a bash script in the session; its output, stdout and stderr together."""
        mark = secrets.token_hex(8)
        text = f"{{ {script}\n}} </dev/null 2>&1\nprintf '%s%d\\n' {mark} $?\n"
        assert self.shell.stdin is not None
        self.shell.stdin.write(text.encode())
        self.shell.stdin.flush()
        output, status = self._read_until(mark.encode(), timeout)
        if check and status != 0:
            title = f"in a session of {self.user}, exit status {status}: {script}"
            raise NodeError(title, show_output(output, None))
        return output.decode(errors="surrogateescape")

    def end(self) -> None:
        """Log out. PAM has closed the session then; logind keeps it as closing while processes of it live."""
        if self.shell.stdin is not None and not self.shell.stdin.closed:
            self.shell.stdin.close()
        self.shell.wait(timeout=60)
        for stream in (self.shell.stdout, self.shell.stderr):
            if stream is not None:
                stream.close()

    def _read_until(self, mark: bytes, timeout: float) -> tuple[bytes, int]:
        assert self.shell.stdout is not None
        fd = self.shell.stdout.fileno()
        deadline = time.monotonic() + timeout
        data = b""
        while True:
            head, found, tail = data.rpartition(mark)
            if found and tail.endswith(b"\n"):
                return head, int(tail)
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(fd, 65536) if ready else b""
            if not chunk:
                why = "the shell ended" if ready else f"no end after {timeout:g} s"
                self.shell.kill()
                self.end()
                raise NodeError(f"in a session of {self.user}: {why}", show_output(data, None))
            data += chunk
