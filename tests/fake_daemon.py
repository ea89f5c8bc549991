"""Answers as sysjobsd would give them, about jobs that a test makes up."""

from __future__ import annotations

from typing import Any

from tests.fake_server import Answer, Peer
from tests.jobs import job


class Daemon:
    """A daemon that knows the jobs in `jobs` and remembers the last call."""

    def __init__(self) -> None:
        self.jobs = {42: job(id=42)}
        self.reply: dict[str, Any] = {}
        self.watch: Answer | None = None
        self.call: dict[str, Any] = {}

    def __call__(self, peer: Peer, call: dict[str, Any]) -> None:
        self.call = call
        parameters = call["parameters"]
        match call["method"].removeprefix("io.sysjobs."):
            case "Submit":
                peer.reply(id=42)
            case "List":
                peer.reply(jobs=[*self.jobs.values()], **self.reply)
            case "Show" if int(parameters["id"]) in self.jobs:
                details = {"job": self.jobs[int(parameters["id"])], "grace": 30.0}
                peer.reply(details=details | self.reply)
            case "Cancel":
                peer.reply(**self.reply)
            case "Watch" if self.watch is not None:
                self.watch(peer, call)
            case "Watch" if all(int(job_id) in self.jobs for job_id in parameters["ids"]):
                shown = [self.jobs[int(job_id)] for job_id in parameters["ids"]]
                for each in shown:
                    last = each is shown[-1] and all("ended_at" in one for one in shown)
                    peer.reply(continues=not last, job=each)
            case _:
                peer.error("io.sysjobs.NotFound", code="not-found", message="There is no such job.", hint="h")

    @property
    def parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = self.call["parameters"]
        return parameters
