"""How long the commands take beside a bare interpreter.

    packaging/node run -- python3 - < tests/bench/shell.py

Rounds are interleaved, so that whatever else the machine does hits all alike; medians and their ratios count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Sequence

COMMANDS: dict[str, Sequence[str]] = {
    "python3 -c pass": ["python3", "-c", "pass"],
    "python3 -c 'import click'": ["python3", "-c", "import click"],
    "sysjobs submit": ["sysjobs", "submit", "--parsable", "--cpus", "0", "--", "true"],
    "sysjobs queue": ["sysjobs", "queue", "--limit", "10"],
}
YARDSTICKS = ("python3 -c pass", "python3 -c 'import click'")


def milliseconds(command: Sequence[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 1000 * (time.perf_counter() - start)


def measure(rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():
        milliseconds(command)
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            times[name].append(milliseconds(command))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    times = measure(options.rounds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    if options.json:
        print(json.dumps({"load": os.getloadavg(), "milliseconds": times}))
        return
    print(f"{options.rounds} rounds, load {os.getloadavg()[0]:.1f}; milliseconds")
    print(f"{'':28}{'median':>8}{'min':>8}{'max':>8}" + "".join(f"{'/ ' + name:>30}" for name in YARDSTICKS))
    for name, values in times.items():
        ratios = "".join(f"{medians[name] / medians[yardstick]:>30.2f}" for yardstick in YARDSTICKS)
        print(f"{name:28}{medians[name]:8.1f}{min(values):8.1f}{max(values):8.1f}{ratios}")


if __name__ == "__main__":
    main()
