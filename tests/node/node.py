"""A node in namespaces of this machine: boots in a moment, and leaves nothing."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.node.base import node_base
from tests.node.build import ROOT_SCRIPT, layers
from tests.node.cgroup import Cgroup
from tests.node.enter import WITHOUT, Account, enter_command
from tests.node.errors import NodeError, show_output
from tests.node.machine import Machine

BOOT_SECONDS = 60.0


class Node(Machine):
    """`with Node("trixie") as node: node.run(["systemctl", "status"])`"""

    def __init__(self, suite: str | None = None, *, keep: bool = False) -> None:
        super().__init__(suite, keep=keep)
        self._layers = layers(node_base(self.suite), self.deb)
        self._cgroup = Cgroup.of_node(self.name)
        self._notify: socket.socket | None = None

    def boot(self) -> None:
        if self._process is not None:
            raise NodeError(f"node {self.name} is on already")
        self._cgroup.create()
        self._notify = self.state.notify_socket()
        # Ends the node with us, even if we are killed.
        tied = [] if self.keep else ["--pdeathsig", "KILL"]
        namespaces = ["unshare", "-m", "-p", "-u", "-i", "-n", "-f", "--kill-child"]
        disk = [self._layers, str(self.state.folder)]
        boot = ["sh", str(ROOT_SCRIPT), "boot", *disk, str(self._cgroup.path), str(uuid.uuid4())]
        with self.state.console.open("ab") as console:
            self._process = subprocess.Popen(
                ["setpriv", *WITHOUT, *tied, *namespaces, *boot],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                # A Ctrl-C on our terminal is not for the node.
                start_new_session=True,
                # As long as the node is on, or we are there, its folder is in use.
                pass_fds=[self.state.lock_fd],
            )
        self.wait_ready()

    def wait_ready(self, timeout: float = BOOT_SECONDS) -> None:
        """Wait until systemd says that it has started all that it was to start."""
        process, notify = self._process, self._notify
        if process is None:
            raise NodeError(f"node {self.name} is off")
        if notify is None:
            return
        deadline = time.monotonic() + timeout
        pidfd = os.pidfd_open(process.pid)
        try:
            while True:
                fds = [notify.fileno(), pidfd]
                ready, _, _ = select.select(fds, [], [], max(0.0, deadline - time.monotonic()))
                if notify.fileno() in ready:
                    if b"READY=1" in notify.recv(65536).split(b"\n"):
                        break
                elif pidfd in ready:
                    raise NodeError(f"node {self.name} did not boot", self._console_tail())
                else:
                    raise NodeError(f"node {self.name} was not up after {timeout:g} s", self._why_not_up())
        finally:
            os.close(pidfd)
        self._find_init()
        # With nobody to read what it says later, systemd would block once the socket is full.
        notify.close()
        self._notify = None

    def kill(self) -> None:
        if self._process is not None:
            # PID 1 rather than unshare, which lives to reap it.
            children = _children(self._process.pid)
            for pid in children or [self._process.pid]:
                os.kill(pid, signal.SIGKILL)
            self._ended(10)

    def signal(self, process: subprocess.Popen[bytes], signum: signal.Signals) -> None:
        """Signal the command of a spawn(); the Popen's own process is the nsenter that waits for it."""
        for pid in _children(process.pid):
            os.kill(pid, signum)

    def _enter(
        self,
        command: Sequence[str | bytes],
        account: Account,
        env: Mapping[str, str] | None,
        cwd: str | None,
    ) -> list[str | bytes]:
        return enter_command(self.state.init, self._cgroup.path, command, account=account, env=env, cwd=cwd)

    def _gone(self) -> None:
        if self._notify is not None:
            self._notify.close()
            self._notify = None
        self._cgroup.remove()

    def _find_init(self) -> None:
        children = _children(self._process.pid) if self._process else []
        if len(children) != 1:
            raise NodeError(f"node {self.name} ended while it booted", self._console_tail())
        self.state.init = children[0]

    def _why_not_up(self) -> str:
        self._find_init()
        script = "systemctl list-jobs; journalctl --no-pager --lines 40"
        done = self.run(["sh", "-c", script], check=False, timeout=10)
        return show_output(done.stdout, done.stderr)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
