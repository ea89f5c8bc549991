"""A node: boots, runs commands, reboots, loses power, and leaves nothing."""

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
from types import TracebackType

from tests.node.build import ROOT_SCRIPT, build_deb, node_layers
from tests.node.cgroup import Cgroup
from tests.node.enter import ROOT, WITHOUT, Account, enter_command
from tests.node.errors import NodeError, show_command, show_output
from tests.node.host import default_suite, require_root
from tests.node.login import Login
from tests.node.state import NodeState

BOOT_SECONDS = 60.0


class Node:
    """`with Node("trixie") as node: node.run(["systemctl", "status"])`"""

    def __init__(self, suite: str | None = None, *, keep: bool = False) -> None:
        require_root()
        self.suite = suite or default_suite()
        self.keep = keep
        self.deb = build_deb(self.suite)
        self._layers = node_layers(self.suite, self.deb)
        self.state = NodeState.create(self.suite)
        self.name = self.state.name
        self._cgroup = Cgroup.of_node(self.name)
        self._accounts = {"root": ROOT}
        self._process: subprocess.Popen[bytes] | None = None
        self._notify: socket.socket | None = None

    def __enter__(self) -> Node:
        try:
            self.boot()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.keep and kind is None:
            self.state.release()
        else:
            self.remove()

    # Power

    def boot(self) -> None:
        """Switch the node on and wait until systemd has started everything."""
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

    def power_off(self) -> None:
        """Shut down cleanly and wait for the end."""
        self._shut_down("poweroff")

    def reboot(self) -> None:
        """Shut down cleanly and boot again from the same disk, under another boot id."""
        self._shut_down("reboot")
        self.boot()

    def kill(self) -> None:
        """A power cut: every process is gone at once; the disk stays as it was. `boot()` starts it again."""
        if self._process is not None:
            # PID 1 rather than unshare, which lives to reap it.
            children = _children(self._process.pid)
            for pid in children or [self._process.pid]:
                os.kill(pid, signal.SIGKILL)
            self._ended(10)

    def remove(self) -> None:
        self.kill()
        self.state.remove()

    # Commands

    def run(
        self,
        command: Sequence[str | bytes],
        *,
        user: str | None = None,
        input: bytes | None = None,  # noqa: A002 - named as in subprocess
        timeout: float = 60,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        words = self.command_line(command, user=user, env=env, cwd=cwd)
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                stdout, stderr = process.communicate(input, timeout)
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise NodeError(
                    f"on node {self.name}, not ended after {timeout:g} s: {show_command(command)}",
                    show_output(error.stdout, error.stderr),
                ) from None
            except BaseException:
                process.kill()
                raise
        if check and process.returncode != 0:
            raise NodeError(
                f"on node {self.name}, exit status {process.returncode}: {show_command(command)}",
                show_output(stdout, stderr),
            )
        return subprocess.CompletedProcess(list(command), process.returncode, stdout, stderr)

    def sh(
        self,
        script: str,
        *,
        user: str | None = None,
        input: bytes | None = None,  # noqa: A002 - named as in subprocess
        timeout: float = 60,
        check: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> str:
        """What a bash script prints; it stops at its first failing command."""
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = self.run(command, user=user, input=input, timeout=timeout, check=check, env=env)
        return done.stdout.decode(errors="surrogateescape")

    def spawn(
        self,
        command: Sequence[str | bytes],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a command, with pipes. Killing the Popen kills the command; other signals go by signal()."""
        pipe = subprocess.PIPE
        words = self.command_line(command, user=user, env=env, cwd=cwd)
        return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe)

    def signal(self, process: subprocess.Popen[bytes], signum: signal.Signals) -> None:
        """Signal the command of a spawn(); the Popen's own process is the nsenter that waits for it."""
        for pid in _children(process.pid):
            os.kill(pid, signum)

    def command_line(
        self,
        command: Sequence[str | bytes],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> list[str | bytes]:
        """The command line that runs a command in the node from this machine."""
        if self._process is None:
            raise NodeError(f"node {self.name} is off", "Call boot() first.")
        account = self._account(user) if user else ROOT
        return enter_command(self.state.init, self._cgroup.path, command, account=account, env=env, cwd=cwd)

    def wait_for(self, script: str, *, user: str | None = None, timeout: float = 30) -> None:
        """Wait until a bash condition holds, for what has no event to wait on."""
        loop = f"until {{ {script}\n}}; do sleep 0.02; done"
        self.run(["bash", "-c", loop], user=user, timeout=timeout)

    def login(self, user: str) -> Login:
        return Login(self, user)

    # Files and the journal

    def put(self, path: str, data: bytes | Path, mode: int = 0o644, owner: str | None = None) -> None:
        content = data.read_bytes() if isinstance(data, Path) else data
        ownership = ["-o", owner, "-g", str(self._account(owner).gid)] if owner else []
        self.run(["install", "-D", "-m", f"{mode:o}", *ownership, "/dev/stdin", path], input=content)

    def get(self, path: str) -> bytes:
        return self.run(["cat", "--", path]).stdout

    def journal(self, unit: str | None = None, *, since: float | None = None) -> str:
        command = ["journalctl", "--no-pager", "--quiet", "--output=short-precise"]
        command += [f"--unit={unit}"] if unit else []
        command += [f"--since=@{since:.6f}"] if since is not None else []
        return self.run(command).stdout.decode(errors="replace")

    # Inside

    def _account(self, user: str) -> Account:
        if user not in self._accounts:
            found = self.run(["getent", "passwd", "--", user], check=False)
            if found.returncode != 0:
                hint = "root, alice and bob are always there."
                raise NodeError(f"node {self.name} has no user {user!r}", hint)
            self._accounts[user] = Account.from_passwd(found.stdout.decode())
        return self._accounts[user]

    def _shut_down(self, verb: str) -> None:
        # Its own exit status says nothing: it may be killed by the shutdown that it asked for.
        self.run(["systemctl", verb], check=False)
        self._ended(90)

    def _ended(self, timeout: float) -> None:
        assert self._process is not None
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            title = f"node {self.name} was still on after {timeout:g} s"
            raise NodeError(title, self._console_tail()) from None
        self._process = None
        self.state.init = 0
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

    def _console_tail(self) -> str:
        return show_output(self.state.console.read_bytes(), None)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
