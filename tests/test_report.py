"""What jobs had and used, of each and in sums."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sysjobs.jobs import Status, Usage
from sysjobs.resources import Amount
from sysjobs.store import Store
from sysjobs.store.sums import Sums
from tests.admin_on_node import Place, place
from tests.models import BOOT, NOW, new_job
from tests.node import Node

SECOND = 1_000_000
HOUR = 3600 * SECOND


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "sysjobs.db")
    yield store
    store.close()


def add(store: Store, status: Status, ran: int | None, **fields: Any) -> None:
    """A job that waited for a second and ended after so many more; None: without having begun."""
    job = store.add(new_job(**fields))
    ended = replace(job, status=status, ended_at=NOW + SECOND + (ran or 0))
    if ran is not None:
        used = Usage(SECOND // 2, 1 << 20)
        ended = replace(ended, boot_id=BOOT, shard=0, started_at=NOW + SECOND, usage=used)
    store.save(ended)


def test_sums(store: Store) -> None:
    cancelled = Status.CANCELLED
    add(store, cancelled, 2 * HOUR, name="a", amount=Amount(2000, 0, 500))
    add(store, cancelled, HOUR, name="a", amount=Amount(500, 0, 2000))
    add(store, cancelled, None, name="b", uid=7, user="bob")
    store.add(new_job(name="b"))
    store.commit()
    two = Sums(2, 0, 0, 2, 1.0, 4.5 * 3600, 3.0 * 3600, 3.0 * 3600, 2.0, 1 << 20)
    one = Sums(1, 0, 0, 1, 0.0, 0.0, 0.0, 0.0, 1.0, None)
    everything = range(1, 100)
    assert dict(store.sums("user", everything, 0, None, None)) == {"alice": two, "bob": one}
    assert dict(store.sums("name", everything, 0, None, None)) == {"a": two, "b": one}
    assert dict(store.sums("name", everything, 0, None, 7)) == {"b": one}
    assert dict(store.sums("user", everything, NOW + HOUR, None, None)) == {"alice": two}
    assert dict(store.sums("user", everything, 0, NOW + HOUR, None)) == {"bob": one}
    assert dict(store.sums("user", range(3, 5), 0, None, None)) == {"bob": one}
    days = store.sums("day", everything, 0, None, None)
    assert all(re.fullmatch(r"2023-11-1[45]", day) for day, _ in days)
    assert functools.reduce(Sums.plus, (sums for _, sums in days)) == two.plus(one) == one.plus(two)


def test_what_a_job_used(node: Node, alice: Place) -> None:
    burns = "python3 -c 'import time\nwhile time.process_time() < 0.5: pass'"
    job = alice.submit("--name", "burns", "-c", burns)
    assert alice.wait(job) == 0
    shown = alice.show(job)
    assert 0.5 <= shown["cpu_time"] < 30
    listed = json.loads(alice.run("queue", "--json", str(job)).stdout)[0]
    assert listed["cpu_time"] == shown["cpu_time"]
    text = alice.run("show", str(job)).stdout.decode()
    assert re.search(r"^CPU time +(\d+s|0\.\d+s)$", text, re.MULTILINE)
    assert re.search(r"^Waited +", text, re.MULTILINE)
    # What nobody counts here isn't made up.
    controllers = node.sh("cat /sys/fs/cgroup/cgroup.controllers").split()
    assert (shown["io_read"] is None) == ("io" not in controllers)
    assert "memory" in controllers or shown["peak_memory"] is None


def test_chosen_columns(alice: Place) -> None:
    job = alice.submit("--name", "three", "-c", "exit 3")
    assert alice.wait(job) == 100
    text = alice.run("queue", "--format", "id, name,exit_code,io_read,status", str(job)).stdout.decode()
    heading, row = text.splitlines()
    assert heading.split() == ["ID", "NAME", "EXIT_CODE", "IO_READ", "STATUS"]
    assert row.split() == [str(job), "three", "3", "-", "FAILED"]
    refused = alice.run("queue", "--format", "id,colour", check=False)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert refused.stderr.startswith(
        b"sysjobs: --format: there is no column 'colour'.\n  There are id, name,"
    )
    assert alice.run("queue", "--format", "id", "--json", check=False).returncode == 2


def test_report(node: Node, alice: Place) -> None:
    since = node.sh("date '+%Y-%m-%d %H:%M:%S'").strip()
    jobs = alice.submit_many([{"shell": "exit 0", "name": "fine", "cpus": 0.1}] * 3)
    jobs += alice.submit_many([{"shell": "exit 1", "name": "wrong", "cpus": 0.1}])
    assert alice.wait(*jobs) == 100
    rows = json.loads(alice.run("report", "--by", "name", "--since", since, "--json").stdout)
    counts = {row["name"]: (row["jobs"], row["succeeded"], row["failed"]) for row in rows}
    assert counts == {"fine": (3, 3, 0), "wrong": (1, 0, 1)}
    assert all(row["cpu_time"] > 0 and row["ran"] * 0.1 == pytest.approx(row["cpu_held"]) for row in rows)
    text = alice.run("report", "--since", since).stdout.decode()
    heading, row = text.splitlines()
    assert heading.split()[:5] == ["USER", "JOBS", "SUCCEEDED", "FAILED", "CANCELLED"]
    assert row.split()[:5] == ["alice", "4", "3", "1", "0"]
    assert alice.run("report", "--until", "2001-01-01", "--json").stdout == b"[]\n"
    assert json.loads(node.run(["sysjobs", "report", "--since", since, "--json"]).stdout) == []
    everybodys = json.loads(node.run(["sysjobs", "report", "-a", "--since", since, "--json"]).stdout)
    assert [row["user"] for row in everybodys] == ["alice"]
    refused = alice.run("report", "--since", "1d", "--until", "2d", check=False)
    assert (refused.returncode, b"--until is before --since" in refused.stderr) == (2, True)
    refused = alice.run("report", "--since", "soon", check=False)
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        2,
        b"sysjobs: --since 'soon' is not a moment.",
    )
