"""Long runs: thousands of random jobs while the daemon is killed, or the machine goes down, again and again.

    python3 -m tests.endurance node --jobs 10000           the daemon is killed every second
    python3 -m tests.endurance vm --jobs 500 --downs 20    reboots and power cuts, each after 15 s

Every job is called to account at the end: how it ended, and how often it began; nothing may be left over.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from contextlib import suppress

from tests.admin_on_node import DAEMON, UNITS
from tests.crash.sent import send
from tests.node import Machine, Node, Vm
from tests.node.host import SUITES, default_suite

UPTIME = 15.0
"""Seconds that a daemon has before its machine goes down."""

HOURS = 3600.0


class Run:
    def __init__(self, machine: Machine, jobs: int, seed: int) -> None:
        self._machine = machine
        self._jobs = jobs
        self._seed = seed

    def load(self, part: int) -> subprocess.Popen[bytes]:
        """Have the jobs submitted, or the rest of them."""
        command = ["python3", "-m", "tests.crash", "load", str(self._jobs), str(self._seed + part)]
        return self._machine.spawn(command, user="alice", cwd="/opt")

    def killing_the_daemon(self) -> dict[str, object]:
        loop = f"while sleep 1; do systemctl kill --signal KILL {DAEMON}; echo; done"
        killer = self._machine.spawn(["bash", "-c", loop])
        load = self.load(0)
        _, errors = load.communicate()
        assert load.returncode == 0, errors.decode()
        killer.kill()
        kills, _ = killer.communicate()
        return {"kills of the daemon": len(kills)}

    def going_down(self, downs: int) -> dict[str, object]:
        chance = random.Random(self._seed)
        cuts = 0
        for part in range(downs):
            load = self.load(part)
            with suppress(subprocess.TimeoutExpired):
                load.wait(UPTIME)
            if chance.random() < 0.5:
                self._machine.reboot()
            else:
                self._machine.kill()
                self._machine.boot()
                cuts += 1
            load.kill()
            load.communicate()
            print(f"{part + 1} of {downs}", file=sys.stderr)
        load = self.load(downs)
        _, errors = load.communicate()
        assert load.returncode == 0, errors.decode()
        return {"reboots": downs - cuts, "power cuts": cuts}

    def account(self) -> dict[str, object]:
        account = ["python3", "-m", "tests.crash", "account"]
        done = self._machine.run(account, user="alice", cwd="/opt", timeout=HOURS)
        figures: dict[str, object] = json.loads(done.stdout)
        self._machine.sh("systemctl reset-failed")
        self._machine.wait_for(f"! systemctl list-units --all --no-legend '{UNITS}' | grep .")
        self._machine.wait_for("! ls /run/sysjobs/jobs | grep .")
        self._machine.wait_for("[ ! -e /sys/fs/cgroup/sysjobs.slice/sysjobs-u1000.slice ]")
        return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("machine", choices=("node", "vm"))
    parser.add_argument("--suite", choices=SUITES, default=default_suite())
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--downs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    kind = Node if options.machine == "node" else Vm
    with kind(options.suite) as machine:
        send(machine)
        run = Run(machine, options.jobs, options.seed)
        began = time.monotonic()
        done = run.killing_the_daemon() if options.machine == "node" else run.going_down(options.downs)
        seconds = round(time.monotonic() - began)
        print(json.dumps({"seed": options.seed, "seconds": seconds, **done, **run.account()}))


main()
