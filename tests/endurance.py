"""Long runs: thousands of random jobs while the daemon is killed, or the machine goes down, again and again.

    python3 -m tests.endurance node --jobs 10000           the daemon is killed every second
    python3 -m tests.endurance vm --jobs 500 --downs 20    reboots and power cuts, each after 15 s

Every job is called to account at the end: how it ended, and how often it began; nothing may be left over.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time

from tests.admin_on_node import DAEMON, UNITS
from tests.crash.sent import send
from tests.node import Machine, Node, Vm
from tests.node.host import SUITES, default_suite

UPTIME = 15
"""Seconds that a machine is up before it goes down."""

HOURS = 3600.0


# Goes on by itself when the machine comes up again, with the rest of the jobs.
LOAD = """
[Service]
User=alice
WorkingDirectory=/opt
ExecStart=/usr/bin/python3 -m tests.crash load {jobs} {seed}

[Install]
WantedBy=multi-user.target
"""


class Run:
    """Jobs of a user of the machine, and what happens meanwhile."""

    def __init__(self, machine: Machine, jobs: int, seed: int) -> None:
        self._machine = machine
        self._seed = seed
        machine.put("/etc/systemd/system/load.service", LOAD.format(jobs=jobs, seed=seed).encode())
        machine.sh("systemctl -q daemon-reload; systemctl -q enable --now load")

    def killing_the_daemon(self) -> dict[str, object]:
        loop = f"while sleep 1; do systemctl kill --signal KILL {DAEMON}; echo; done"
        killer = self._machine.spawn(["bash", "-c", loop])
        self._submitted()
        killer.kill()
        kills, _ = killer.communicate()
        return {"kills of the daemon": len(kills)}

    def going_down(self, downs: int) -> dict[str, object]:
        chance = random.Random(self._seed)
        cuts = 0
        for number in range(downs):
            self._machine.run(["sleep", str(UPTIME)])
            if chance.random() < 0.5:
                self._machine.reboot()
            else:
                self._machine.kill()
                self._machine.boot()
                cuts += 1
            print(f"down {number + 1} of {downs}", file=sys.stderr)
        self._submitted()
        return {"reboots": downs - cuts, "power cuts": cuts}

    def _submitted(self) -> None:
        """Wait until all are."""
        self._machine.wait_for("! systemctl -q is-active load", timeout=HOURS)
        result = self._machine.sh("systemctl show -P Result load").strip()
        assert result == "success", self._machine.journal("load")

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
