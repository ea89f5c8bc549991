"""Random jobs from a user who survives everything but the machine's end, and goes on after it.

What is asked for and what was answered is written to a ledger first and last, so that at the end each job can
be called to account.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

from sysjobs.answers import JobView
from sysjobs.client import Client
from sysjobs.errors import Unreachable
from tests.crash.model import KINDS, End, Model

T = TypeVar("T")

PLACE = Path.home() / "load"
LEDGER = PLACE / "ledger"
AT_ONCE = 50
"""One part in so many of the jobs may be unfinished before more are submitted."""


class Load:
    """As many jobs as there are to be in all, those before a reboot included."""

    def __init__(self, count: int, seed: int) -> None:
        self._count = count
        self._at_once = count // AT_ONCE + 1
        self._client = Client()
        PLACE.mkdir(exist_ok=True)
        os.chdir(PLACE)
        self._intended: dict[str, str] = {}
        self.models: dict[int, Model] = {}
        self._read()
        self._chance = random.Random(seed + self.boots)
        self._ledger: TextIO = LEDGER.open("a")

    def _read(self) -> None:
        boots = 0
        for entry in _entries():
            match entry:
                case {"intend": key, "kind": kind}:
                    self._intended[key] = kind
                case {"key": key, "job": job}:
                    self.models[job] = Model(self._intended.pop(key))
                case {"job": job, "cancel": None}:
                    self.models[job].asked()
                case {"job": job, "cancel": outcome}:
                    self.models[job].cancelled(outcome)
                case {"boot": _}:
                    boots += 1
                    for model in self.models.values():
                        model.cut = True
        self.boots = boots

    def _write(self, **entry: Any) -> None:
        self._ledger.write(json.dumps(entry) + "\n")
        self._ledger.flush()
        os.fsync(self._ledger.fileno())

    def run(self) -> None:
        self._write(boot=self.boots)
        for model in self.models.values():
            model.cut = True
        # Whether these were submitted before the machine went down, nobody knows but sysjobs.
        for key, kind in list(self._intended.items()):
            self._submit(key, kind).cut = True
        while len(self.models) < self._count:
            kind = self._chance.choice([kind for kind in KINDS if kind != "waits"])
            key = os.urandom(8).hex()
            self._write(intend=key, kind=kind)
            self._submit(key, kind)
            if self._chance.random() < 0.1:
                self._cancel()
            if len(self.models) % (self._at_once // 4 + 1) == 0:
                self._hold_back()

    def _submit(self, key: str, kind: str) -> Model:
        cpus = self._chance.choice([0, 0, 0.05, 0.1, 0.5, os.cpu_count()])
        job = _insist(lambda: self._client.submit(key=key, cpus=cpus, **KINDS[kind].spec))
        assert job not in self.models, f"{job} was given twice"
        self._intended.pop(key, None)
        self.models[job] = Model(kind)
        self._write(key=key, job=job)
        return self.models[job]

    def _cancel(self) -> None:
        job = self._chance.choice([*self.models][-50:])
        self.models[job].asked()
        self._write(job=job, cancel=None)
        grace = self._chance.choice([0, 1, 30])
        outcome = _insist(lambda: self._client.cancel([job], grace=grace)).results[0].outcome
        self.models[job].cancelled(outcome)
        self._write(job=job, cancel=outcome)

    def _hold_back(self) -> None:
        """Wait until less than so many are unfinished."""
        listed = _insist(lambda: self._client.list(unfinished=True, limit=0)).jobs
        self._wait([job.id for job in listed[: -self._at_once]])

    def _wait(self, jobs: Collection[int]) -> None:
        """Until all of them have ended."""
        if jobs:
            _insist(lambda: all(view is not None for view in self._client.watch(jobs)))

    def account(self) -> dict[str, object]:
        """Wait for all and check each; figures. What was not submitted can't be there."""
        self._wait(self.models)
        jobs = self._client.list(limit=0).jobs
        assert {job.id for job in jobs} == self.models.keys()
        for job in jobs:
            self.models[job.id].check(
                job.reason_code, End(job.status, job.exit_code, job.signal, _begun(job))
            )
        return {
            "jobs": len(jobs),
            "boots": self.boots,
            "statuses": Counter(job.status for job in jobs),
            "lost to a reboot": sum(job.reason_code == "reboot" for job in jobs),
            "lost to a power cut": sum(job.reason_code == "power-cut" for job in jobs),
            "began twice": sum(_begun(job) > 1 for job in jobs),
        }


def _insist(call: Callable[[], T]) -> T:
    """On a busy machine a daemon that is killed every second is away for longer than a client waits."""
    while True:
        with suppress(Unreachable):
            return call()


def _begun(job: JobView) -> int:
    told = PLACE / f"begun.{job.id}"
    return len(told.read_bytes()) if told.exists() else 0


def _entries() -> Iterator[dict[str, Any]]:
    """What was written; of a line that a power cut has torn nothing is kept."""
    if LEDGER.exists():
        whole, newline, _ = LEDGER.read_bytes().rpartition(b"\n")
        os.truncate(LEDGER, len(whole + newline))
        yield from map(json.loads, whole.splitlines())
