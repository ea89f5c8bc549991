"""What a job asks for holds it, or it is said that it can't be held."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admin_on_node import Place, cgroup, place
from tests.node import Node

SENTENCE = "This node can't enforce --memory: its cgroups have no memory controller. It is only counted."


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


def test_memory_is_limited_or_it_is_said_that_it_is_not(node: Node, alice: Place) -> None:
    holds = "memory" in node.sh("cat /sys/fs/cgroup/cgroup.controllers").split()
    done = alice.run("submit", "--parsable", "--memory", "64M", "sleep", "1000")
    job = int(done.stdout)
    alice.until(f"sysjobs show {job} | grep -q RUNNING")
    shown = alice.run("show", str(job)).stdout.decode()
    if holds:
        assert done.stderr == b""
        assert alice.show(job)["warnings"] == []
        assert "Beware" not in shown
        assert node.sh(f"cat {cgroup(node, job)}/memory.max") == f"{64 << 20}\n"
    else:
        assert done.stderr.decode() == f"sysjobs: {SENTENCE}\n"
        assert alice.show(job)["warnings"] == [SENTENCE]
        assert f"Beware {SENTENCE}" in " ".join(shown.split())
    said = "jobs can't be held to --memory" in node.journal("sysjobsd")
    assert said is not holds


def test_who_asks_for_no_memory_is_told_nothing(alice: Place) -> None:
    done = alice.run("submit", "--parsable", "true")
    assert done.stderr == b""
    assert alice.show(int(done.stdout))["warnings"] == []
