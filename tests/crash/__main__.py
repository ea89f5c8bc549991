"""Runs on a node, as root.

python3 -m tests.crash sweep COUNT SEED   daemons die at so many points; figures as JSON
python3 -m tests.crash serve              one order a line (JSON) on stdin, one answer each on stdout
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

from sysjobs.client import Client
from sysjobs.config import SYSTEM, Settings
from sysjobs.engine.bus import Bus
from tests.crash.load import Load
from tests.crash.orders import Orders
from tests.crash.rig import LOG, Rig
from tests.crash.scenes import ALICE, AT_A_START, SCENES, Act, Scene, as_root, become_alice

MOST_OF_A_RESTART = 20
"""Effects after which a daemon that was started again has taken up where its predecessor was."""


class Sweep:
    """The daemon that a scene leaves is there for the next one: to start one costs more than to play."""

    def __init__(self) -> None:
        self._rig = Rig(Settings(keep_failed=0))
        self._systemd = Bus(SYSTEM.systemd, "sysjobs-")
        self._rig.start()

    def stop(self) -> None:
        with as_root():
            self._rig.stop()

    def play(self, act: Act, first: int, second: int = 0) -> int:
        """One scene with a daemon that dies before its `first` effect, its successor before its `second`.

        How many died.
        """
        if act in AT_A_START:
            self.stop()
        self._rig.fuse.set(first, second)
        if act in AT_A_START:
            with as_root():
                self._rig.start()
        try:
            with tempfile.TemporaryDirectory(dir=ALICE.pw_dir) as path, Client() as client:
                scene = Scene(client, self._systemd, Path(path))
                act(scene)
                scene.end()
        except BaseException:
            where = f"effect {first}" + (f", and the next one before {second}" if second else "")
            print(f"{act.__name__}, with a daemon that dies before {where}:", file=sys.stderr)
            raise
        deaths = self._rig.fuse.deaths
        self._rig.fuse.set(0)
        return deaths


def sweep(count: int, seed: int) -> None:
    """Each point of each scene once, then random pairs of points until there were `count` crashes."""
    sweep = Sweep()
    chance = random.Random(seed)
    began = time.monotonic()
    become_alice()
    # Whoever loses the daemon asks again at once: the rig's socket is always there, for the next one.
    mock.patch("sysjobs.connection.sleep", return_value=None).start()
    points = dict.fromkeys(SCENES, 0)
    for act in SCENES:
        while sweep.play(act, points[act] + 1):
            points[act] += 1
    crashes = sum(points.values())
    while crashes < count:
        act = chance.choice(SCENES)
        crashes += sweep.play(act, chance.randint(1, points[act]), chance.randint(1, MOST_OF_A_RESTART))
    sweep.stop()
    figures = {
        "crashes": crashes,
        "points": {act.__name__: number for act, number in points.items()},
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(figures))


def main(arguments: list[str]) -> None:
    match arguments:
        case ["sweep", count, seed]:
            sweep(int(count), int(seed))
        case ["serve"]:
            Orders(Rig(Settings(keep_failed=0)), Bus(SYSTEM.systemd, "sysjobs-")).serve()
        case ["load", count, seed]:
            Load(int(count), int(seed)).run()
            return
        case ["account"]:
            print(json.dumps(Load(0, 0).account()))
            return
        case _:
            sys.exit(__doc__)
    with as_root():
        log = LOG.read_text()
    assert "Traceback" not in log, log


main(sys.argv[1:])
