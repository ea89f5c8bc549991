"""What every landed version left behind is taken up by this one: kept.py says what that is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sysjobs.jobs import UNFINISHED
from sysjobs.store import Filter, Store
from sysjobs.store.database import SCHEMA_VERSION
from tests.admin_on_node import DAEMON, unit
from tests.kept import DATABASE, ENDED, HOME, LIVE, PENDING, Kept, kept
from tests.node import Node
from tests.queue_on_node import QueueOnNode

KEPT = kept()


def test_each_version_is_kept() -> None:
    assert sorted(KEPT) == list(range(1, SCHEMA_VERSION + 1)), "python3 -m tests.kept makes the missing one"


@pytest.mark.parametrize("version", KEPT)
def test_a_kept_database_loads(version: int, tmp_path: Path) -> None:
    path, shown = tmp_path / "sysjobs.db", KEPT[version].shown
    path.write_bytes(KEPT[version].read(DATABASE))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (version,)
    with closing(Store(path)) as store:
        jobs, _ = store.find(Filter())
        assert {job.name: job.status.value for job in jobs} == {
            name: job["status"] for name, job in shown.items()
        }
        assert {job.name for job in jobs if job.status in UNFINISHED} == {
            *LIVE, *PENDING
        } & shown.keys() - {"cancelled-pending"}  # fmt: skip
        for job in jobs:
            assert store.payload(job.id).command


@pytest.fixture
def node(suite: str) -> Iterator[Node]:
    with Node(suite) as node:
        yield node


@pytest.mark.parametrize("version", KEPT)
def test_jobs_of_a_kept_version_go_on(node: Node, version: int) -> None:
    before = KEPT[version].shown
    live = {name: int(before[name]["id"]) for name in LIVE}
    queue = QueueOnNode(node)
    node.run(["mkdir", HOME], user="alice")
    node.run(["touch", f"{HOME}/go.ends-meanwhile"], user="alice")
    put_back(node, KEPT[version], live)
    invocations = {name: unit(node, job, "InvocationID") for name, job in live.items()}
    node.run(["systemctl", "start", "sysjobsd.socket", DAEMON])

    for name in (*ENDED, "cancelled-pending"):
        now = queue.show(int(before[name]["id"]))
        # There may be more that a job can ask for by now.
        now["resources"] = {key: now["resources"][key] for key in before[name]["resources"]}
        assert {key: now[key] for key in before[name]} == before[name]
    for name in ("running", "setting-up"):
        now = queue.show(live[name])
        assert (now["status"], now["invocation_id"]) == (before[name]["status"], invocations[name])
    pending = [name for name in PENDING if name in before and name != "cancelled-pending"]
    waiting = [int(before[name]["id"]) for name in pending]
    assert {queue.show(job)["status"] for job in waiting} == {"PENDING"}
    new = queue.submit("--cpus", "1", "--", "echo", "new")
    assert new == max(int(job["id"]) for job in before.values()) + 1
    node.run(["touch", f"{HOME}/go"], user="alice")
    assert queue.wait(*waiting, new) == 0
    assert queue.log(waiting[0]) == b"kept\n"
    queue.wait(*live.values())
    ends = {name: queue.show(job) for name, job in live.items()}
    assert {name: (end["status"], end["exit_code"], end["signal"]) for name, end in ends.items()} == {
        name: end for name, (_, end) in LIVE.items()
    }
    assert "time limit" in ends["over-time"]["reason"]
    assert ends["cancelled"]["cancel_reason"] == "to be kept"
    assert unit(node, live["running"], "LoadState") == "loaded", "the last failed ones are kept"
    begun = node.sh(f"cd {HOME}; wc -l begun.* | sed '$d'").split()
    assert sorted(begun) == sorted(word for name in (*LIVE, *pending) for word in ("1", f"begun.{name}"))


def put_back(node: Node, kept: Kept, live: dict[str, int]) -> None:
    """Has the node be as the old version left it: with the units that live started again, in this boot."""
    node.run(["systemctl", "stop", "sysjobsd.socket", DAEMON])
    node.run(["rm", "-rf", f"/{DATABASE}"])
    node.run(["tar", "--extract", "--gzip", "--acls", "--directory", "/"], input=kept.data)
    node.run(["systemctl", "daemon-reload"])
    node.sh("systemctl start --no-block " + " ".join(f"sysjobs-{job}" for job in live.values()))
    node.wait_for(f"[ $(ls {HOME} | grep -c ^up) = {len(live)} ]")
    node.wait_for(f"[ $(systemctl show -P SubState sysjobs-{live['ends-meanwhile']}) = failed ]")
    boot = node.get("/proc/sys/kernel/random/boot_id").decode().strip()
    # The time of their deadlines is that of the boot too. The graces are over in a second.
    uptime = int(float(node.get("/proc/uptime").split()[0]) * 1_000_000)
    changes = [
        f"UPDATE jobs SET boot_id = '{boot}' WHERE boot_id IS NOT NULL AND ended_at IS NULL",
        f"UPDATE jobs SET deadline = {uptime + 3_600_000_000} WHERE deadline IS NOT NULL",
        f"UPDATE jobs SET kill_at = {uptime + 1_000_000} WHERE kill_at IS NOT NULL",
    ]
    changes += [
        f"UPDATE jobs SET invocation_id = '{unit(node, job, 'InvocationID')}' WHERE id = {job}"
        for job in live.values()
    ]
    node.run(["sqlite3", f"/{DATABASE}", "; ".join(changes)])
