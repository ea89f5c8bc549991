"""A rig that is driven from elsewhere, one order after the other, and over reboots of its node."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sysjobs.client import Client
from sysjobs.engine.bus import Bus
from tests.crash.model import KINDS, End
from tests.crash.rig import Rig
from tests.crash.scenes import ALICE, Watcher, as_root, become_alice, is_clean
from tests.waiting import wait_until

PLACE = Path(ALICE.pw_dir, "crash")


class Orders:
    def __init__(self, rig: Rig, systemd: Bus) -> None:
        self._rig = rig
        self._systemd = systemd
        self._client = Client()
        self._watcher = Watcher(self._client, PLACE)

    def serve(self) -> None:
        """Until stdin ends, or the node does."""
        self._rig.start()
        become_alice()
        PLACE.mkdir(exist_ok=True)
        for line in sys.stdin:
            order = json.loads(line)
            answer = getattr(self, order.pop("do"))(**order)
            print(json.dumps(answer), flush=True)
        with as_root():
            self._rig.stop()

    def crash(self, first: int, second: int) -> None:
        self._rig.fuse.set(first, second)

    def submit(self, kind: str, cpus: int) -> int:
        return self._client.submit(workdir=PLACE, cpus=cpus, **KINDS[kind].spec)

    def cancel(self, job: int, grace: float) -> str:
        return self._client.cancel([job], grace=grace).results[0].outcome

    def go(self, job: int) -> None:
        (PLACE / f"go.{job}").touch()

    def look(self, jobs: list[int]) -> dict[int, tuple[str | None, End]]:
        """The reason's code of each, and how it ended, or how far it is."""
        return {
            view.id: (
                view.reason_code,
                End(view.status, view.exit_code, view.signal, self._watcher.begun(view.id)),
            )
            for view in self._watcher.look(jobs)
        }

    def settle(self, jobs: list[int]) -> dict[int, tuple[str | None, End]]:
        """The same once all have ended and nothing of them is left."""
        self._rig.fuse.set(0)
        self._watcher.watch(jobs)
        with as_root():
            wait_until(lambda: is_clean(self._systemd))
        return self.look(jobs)
