"""What a version of sysjobs leaves on a machine, with jobs in every state, for later versions to take up.

    python3 -m tests.kept

(as root) makes tests/data/vN.tar.gz with the package of this working tree, N being its schema: the database,
the scripts and units of the jobs that live, the logs, the settings, and what `sysjobs show` said of each job.
A file is made once, in the commit that brings the schema, and has to load for ever.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from sysjobs.store.database import SCHEMA_VERSION
from tests.admin_on_node import DAEMON, SETTINGS
from tests.node import Node
from tests.queue_on_node import QueueOnNode

DATA = Path(__file__).parent / "data"
DATABASE = "var/lib/sysjobs/sysjobs.db"
SHOWN = "tmp/shown.json"
HOME = "/home/alice/kept"

_BEGIN = "echo >>begun.$SYSJOBS_JOB_NAME; touch up.$SYSJOBS_JOB_NAME; "
_UNTIL = "until [ -e {} ]; do sleep 0.05; done; "
_DEAF = "trap '' TERM; "

# Jobs that live when the old daemon is stopped, by name: options, and how each is to end under the new one.
LIVE: dict[str, tuple[list[str], tuple[str, int | None, int | None]]] = {
    "running": (
        ["--cpus", "1", "--memory", "1G", "--time", "1h", "-c", _BEGIN + _UNTIL.format("go") + "exit 3"],
        ("FAILED", 3, None),
    ),
    "setting-up": (
        ["--cpus", "0", "--setup", _BEGIN + _UNTIL.format("go"), "--", "sh", "-c", "exit 4"],
        ("FAILED", 4, None),
    ),
    "ends-meanwhile": (
        ["--cpus", "0", "-c", _BEGIN + _UNTIL.format("go.ends-meanwhile") + "exit 5"],
        ("FAILED", 5, None),
    ),
    "cancelled": (
        ["--cpus", "0", "--grace", "1h", "-c", _DEAF + _BEGIN + "sleep 1000"],
        ("CANCELLED", None, 9),
    ),
    "cancelled-in-setup": (
        ["--cpus", "0", "--grace", "1h", "--setup", _DEAF + _BEGIN + "sleep 1000", "--", "true"],
        ("CANCELLED", None, None),
    ),
    "over-time": (
        ["--cpus", "0", "--grace", "1h", "--time", "0.1s", "-c", _DEAF + _BEGIN + "sleep 1000"],
        ("FAILED", None, 9),
    ),
}
ENDED: dict[str, list[str]] = {
    "succeeded": ["--", "true"],
    "failed": ["-c", "exit 6"],
    "failed-by-signal": ["--setup", "true", "-c", "kill -SEGV $$"],
    "failed-setup": ["--setup", "exit 7", "--", "true"],
    "failed-driver": ["--", "no-such-command"],
    "killed": ["-c", "kill -KILL $$"],
}
PENDING: dict[str, list[str]] = {
    "pending": ["--cpus", "1", "--env", "WHAT=kept", "-c", _BEGIN + 'echo "$WHAT"'],
    "pending-with-setup": ["--cpus", "0.5", "--setup", _BEGIN, "--", "true"],
    "cancelled-pending": ["--", "true"],
    # Since version 5.
    "array": ["--cpus", "1", "--array", "5", "-c", _BEGIN],
}
SETTINGS_TEXT = b"[node]\ncpus = 1\n"


def record() -> bytes:
    with Node() as node:
        node.put(SETTINGS, SETTINGS_TEXT)
        node.run(["systemctl", "reload", DAEMON])
        node.run(["mkdir", HOME], user="alice")
        queue = QueueOnNode(node)

        def submit(name: str, options: list[str]) -> int:
            return queue.submit("-C", HOME, "-n", name, *options)

        ended = [submit(name, options) for name, options in ENDED.items()]
        queue.wait(*ended)
        live = {name: submit(name, options) for name, (options, _) in LIVE.items()}
        pending = {name: submit(name, options) for name, options in PENDING.items()}
        node.wait_for(f"[ $(ls {HOME} | grep -c ^up) = {len(LIVE)} ]")
        queue.run(
            "cancel", "--reason", "to be kept", *(name for name in [*live, *pending] if "cancelled" in name)
        )
        node.wait_for("sysjobs show over-time | grep -q '^Reason'", user="alice")
        jobs = [*ended, *live.values(), *pending.values()]
        node.put(f"/{SHOWN}", json.dumps([queue.show(job) for job in jobs], indent=1).encode())
        node.run(["systemctl", "stop", "sysjobsd.socket", DAEMON])
        units = [f"run/systemd/transient/sysjobs-{job}.service" for job in live.values()]
        parts = [DATABASE, "var/log/sysjobs", "run/sysjobs/jobs", SETTINGS[1:], SHOWN, *units]
        return node.run(["tar", "--create", "--gzip", "--acls", "--directory", "/", *parts]).stdout


class Kept:
    """A file that was recorded."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()

    def read(self, name: str) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(self.data)) as tar:
            file = tar.extractfile(name)
            assert file is not None
            return file.read()

    @property
    def shown(self) -> dict[str, dict[str, Any]]:
        """What `sysjobs show --json` said of each job, by the job's name."""
        return {job["name"]: job for job in json.loads(self.read(SHOWN))}


def kept() -> dict[int, Kept]:
    """By version of the schema."""
    return {int(path.name[1:].partition(".")[0]): Kept(path) for path in DATA.glob("v*.tar.gz")}


if __name__ == "__main__":
    (DATA / f"v{SCHEMA_VERSION}.tar.gz").write_bytes(record())
