"""Whether processes are left in cgroups, and the kernel's word when the last one is gone."""

from __future__ import annotations

import errno
import os
import select

_GONE = (errno.ENOENT, errno.ENODEV)


def controllers(path: str) -> list[str]:
    """What the kernel can hold the cgroups below `path` to: cpu, memory, pids, ..."""
    try:
        with open(f"{path}/cgroup.controllers", encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def is_populated(path: str) -> bool:
    """Whether any process is left in or below the cgroup at `path`. systemd removes one that is empty."""
    try:
        fd = os.open(f"{path}/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        # Without descriptors, say, nobody knows; then it isn't taken for empty.
        return error.errno not in _GONE
    try:
        return _says_populated(fd)
    finally:
        os.close(fd)


def children(path: str) -> list[str]:
    """The names of the cgroups right below the one at `path`."""
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return []


class EmptyWatch:
    """Cgroups, by a number of the caller's, that are waited for to become empty."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._keys: dict[int, int] = {}
        self._early: list[int] = []

    @property
    def has_some(self) -> bool:
        """Whether `emptied` has something to say that no descriptor shows."""
        return bool(self._early)

    def add(self, key: int, path: str) -> None:
        if key in self._keys.values():
            return
        try:
            fd = os.open(f"{path}/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _GONE:
                # It became empty, and so was removed, since it was looked at.
                self._early.append(key)
            # Else it can't be watched now: its job's grace ends it.
            return
        self._keys[fd] = key
        # The kernel marks the file as urgent until what it says has been read through this descriptor.
        self._epoll.register(fd, select.EPOLLPRI)

    def emptied(self) -> list[int]:
        """Those that have become empty since the last call."""
        found, self._early = self._early, []
        for fd, _ in self._epoll.poll(0):
            if fd in self._keys and not _says_populated(fd):
                found.append(self._keys.pop(fd))
                self._epoll.unregister(fd)
                os.close(fd)
        return found


def _says_populated(fd: int) -> bool:
    """Whether an open cgroup.events knows of processes."""
    try:
        return b"populated 1" in os.pread(fd, 4096, 0)
    except OSError:
        # The cgroup is gone.
        return False
