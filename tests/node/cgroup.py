"""The cgroup v2 subtree of one node, as this machine sees it."""

from __future__ import annotations

import os
import select
from dataclasses import dataclass
from pathlib import Path

from tests.node.errors import NodeError
from tests.node.host import cgroup2_mount

EMPTY_SECONDS = 10.0


@dataclass(frozen=True)
class Cgroup:
    path: Path

    @classmethod
    def of_node(cls, name: str) -> Cgroup:
        return cls(cgroup2_mount() / f"sysjobs-{name}")

    def create(self) -> None:
        # Commands that enter the node from outside live in a leaf of their own, no unit of its systemd.
        (self.path / "entered").mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """Kill what is left in it, wait until it's empty, remove it."""
        if not self.path.exists():
            return
        (self.path / "cgroup.kill").write_text("1")
        self._wait_empty()
        for folder, _, _ in os.walk(self.path, topdown=False):
            Path(folder).rmdir()

    def _wait_empty(self) -> None:
        poll = select.poll()
        with (self.path / "cgroup.events").open() as events:
            poll.register(events, select.POLLPRI)
            while "populated 1" in events.read():
                if not poll.poll(EMPTY_SECONDS * 1000):
                    raise NodeError(f"{self.path} still has processes {EMPTY_SECONDS:g} s after SIGKILL")
                events.seek(0)
