"""The installed `sysjobs` on a booted node: submit, wait, and read what became of the jobs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from tests.node import Machine


class QueueOnNode:
    """What a user of a node does with the queue."""

    def __init__(self, node: Machine, user: str = "alice") -> None:
        self.node = node
        self.user = user

    def run(
        self,
        *arguments: str | bytes,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[bytes]:
        """`sysjobs ARGUMENTS`."""
        command = ["sysjobs", *arguments]
        return self.node.run(command, user=self.user, check=check, env=env, cwd=cwd, timeout=timeout)

    def submit(
        self, *arguments: str | bytes, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> int:
        return int(self.run("submit", "--parsable", *arguments, env=env, cwd=cwd).stdout)

    def wait(self, *jobs: int, timeout: float = 60) -> int:
        """The exit code of `sysjobs wait`, once all have ended."""
        return self.run("wait", *map(str, jobs), check=False, timeout=timeout).returncode

    def show(self, job: int) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.run("show", "--json", str(job)).stdout)
        return shown

    def log(self, job: int, *options: str) -> bytes:
        return self.run("logs", *options, str(job)).stdout

    def output(self, *arguments: str | bytes, env: Mapping[str, str] | None = None) -> bytes:
        """What a job prints that succeeds."""
        job = self.submit(*arguments, env=env)
        assert self.wait(job) == 0, self.show(job)
        return self.log(job)
