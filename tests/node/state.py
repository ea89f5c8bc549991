"""What a node leaves on this machine's disk while it exists: its folder, and who uses it."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tests.node.cache import cache_root, locked, remove_tree
from tests.node.cgroup import Cgroup
from tests.node.errors import NodeError


class NodeState:
    """A folder with the node's disk. Its lock is held by whoever runs the node and by the node itself, so a
    folder whose lock is free is a leftover, whatever happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self.console = folder / "console.log"
        self.lock_fd = -1

    @classmethod
    def create(cls, suite: str) -> NodeState:
        with _changing_nodes():
            for leftover in cls.existing():
                if leftover.take_lock():
                    leftover._delete()
            state = cls(_nodes() / f"{suite}-{secrets.token_hex(3)}")
            state.folder.mkdir(mode=0o700)
            state.take_lock()
        for name in ("upper", "work", "root", "upper/etc"):
            (state.folder / name).mkdir()
        state.console.touch()
        files = {
            "machine-id": f"{secrets.token_hex(16)}\n",
            "hostname": f"{state.name}\n",
            "hosts": f"127.0.0.1 localhost {state.name}\n::1 localhost {state.name}\n",
        }
        etc = state.folder / "upper" / "etc"
        for name, text in files.items():
            (etc / name).write_text(text)
            # Users in the node read these, whatever our umask is.
            (etc / name).chmod(0o644)
        for shown in (etc, etc.parent):
            shown.chmod(0o755)
        return state

    @classmethod
    def existing(cls) -> Iterator[NodeState]:
        yield from (cls(folder) for folder in sorted(_nodes().iterdir()))

    @classmethod
    def named(cls, name: str) -> NodeState:
        """A node that another process left running."""
        known = {state.name: state for state in cls.existing()}
        if name not in known:
            there = ", ".join(known) or "none"
            raise NodeError(f"there is no node {name!r}", f"Nodes on this machine: {there}.")
        return known[name]

    @property
    def init(self) -> int:
        """The process id of the node's systemd, 0 while it's off."""
        try:
            return int((self.folder / "init").read_text())
        except FileNotFoundError:
            return 0

    @init.setter
    def init(self, pid: int) -> None:
        (self.folder / "init").write_text(str(pid))

    def notify_socket(self) -> socket.socket:
        """Where the node's systemd says that it's up."""
        path = self.folder / "notify"
        path.unlink(missing_ok=True)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # Bound through its folder: a socket's path may have 107 bytes only.
        folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY)
        try:
            notify.bind(f"/proc/self/fd/{folder}/notify")
        finally:
            os.close(folder)
        return notify

    def take_lock(self) -> bool:
        """Whether nobody else uses the node; if so, it's ours."""
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self.lock_fd = fd
        return True

    @property
    def kept(self) -> bool:
        """Whether the node was left running on purpose, by a process that is gone."""
        return (self.folder / "kept").exists()

    def release(self) -> None:
        """Leave the node to itself."""
        (self.folder / "kept").touch()
        os.close(self.lock_fd)

    def kill(self) -> None:
        """End a node that was kept, and wait until it's gone."""
        if self.take_lock():
            return
        if not self.kept:
            raise NodeError(f"node {self.name} is in use by the process that started it", "End that process.")
        os.kill(self.init, signal.SIGKILL)
        self.lock_fd = os.open(self.folder / "lock", os.O_RDWR)
        fcntl.flock(self.lock_fd, fcntl.LOCK_EX)

    def remove(self) -> None:
        with _changing_nodes():
            self._delete()

    def _delete(self) -> None:
        Cgroup.of_node(self.name).remove()
        remove_tree(self.folder)
        os.close(self.lock_fd)


def _changing_nodes() -> AbstractContextManager[None]:
    # A leftover is found by its free lock, which a folder that is just being made or removed has too.
    return locked(cache_root() / "nodes.lock")


def _nodes() -> Path:
    folder = cache_root() / "nodes"
    folder.mkdir(exist_ok=True)
    return folder
