"""What every kind of node can: run commands, pass files, be switched on and off."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.node.build import build_deb
from tests.node.enter import ROOT, Account
from tests.node.errors import NodeError, show_command, show_output
from tests.node.host import default_suite, require_root
from tests.node.login import Login
from tests.node.state import NodeState


class Machine(ABC):
    """A Debian with this working tree's package installed, on from `with` to its end."""

    SHUTDOWN_SECONDS = 90.0

    def __init__(self, suite: str | None = None, *, keep: bool = False) -> None:
        require_root()
        self.suite = suite or default_suite()
        self.keep = keep
        self.deb = build_deb(self.suite)
        self.state = NodeState.create(self.suite)
        self.name = self.state.name
        self._accounts = {"root": ROOT}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
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
            self._leave()
        else:
            self.remove()

    def _leave(self) -> None:
        """Let it go on without us."""
        self.state.release()

    # Power

    @abstractmethod
    def boot(self) -> None:
        """Switch the node on and wait until systemd has started everything."""

    @abstractmethod
    def kill(self) -> None:
        """A power cut: every process is gone at once; the disk stays as it was. `boot()` starts it again."""

    @abstractmethod
    def _gone(self) -> None:
        """Put away what belonged to a node that is off."""

    def _ended(self, timeout: float) -> None:
        """Wait until it's off."""
        assert self._process is not None
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            title = f"node {self.name} was still on after {timeout:g} s"
            raise NodeError(title, self._console_tail()) from None
        self._process = None
        self.state.init = 0
        self._gone()

    def power_off(self) -> None:
        """Shut down cleanly and wait for the end."""
        self._shut_down("poweroff")

    def reboot(self) -> None:
        """Shut down cleanly and boot again from the same disk, under another boot id."""
        self._shut_down("reboot")
        self.boot()

    def _shut_down(self, verb: str) -> None:
        # Its own exit status says nothing: it may be killed by the shutdown that it asked for.
        self.run(["systemctl", verb], check=False)
        self._ended(90)

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
        return self._enter(command, self._account(user) if user else ROOT, env, cwd)

    @abstractmethod
    def _enter(
        self,
        command: Sequence[str | bytes],
        account: Account,
        env: Mapping[str, str] | None,
        cwd: str | None,
    ) -> list[str | bytes]:
        """The same, of a node that is on."""

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

    def _console_tail(self) -> str:
        return show_output(self.state.console.read_bytes(), None)
