"""The daemon dies at each step between two effects, and jobs, cancels and reboots come at random."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.crash.model import KINDS, End, Model
from tests.crash.sent import send
from tests.node import Node

RIG = ["python3", "-m", "tests.crash"]
POINTS = 500
"""Steps of the scenes at which the daemon can die: fewer would mean that the hook doesn't work."""


@contextmanager
def rig_node(suite: str) -> Iterator[Node]:
    """A node on which the rig takes the place of the service."""
    with Node(suite) as node:
        send(node)
        node.sh("systemctl -q disable --now sysjobsd.socket sysjobsd.service")
        yield node


def test_the_daemon_dies_at_every_step(
    suite: str, seed: int, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
) -> None:
    count = pytestconfig.getoption("--crashes")
    with rig_node(suite) as node:
        done = node.run([*RIG, "sweep", str(count), str(seed)], cwd="/opt", timeout=900 + count)
    figures = json.loads(done.stdout)
    record_property("figures", figures)
    assert figures["crashes"] >= max(count, POINTS), figures


FINAL = frozenset(("SUCCEEDED", "FAILED", "FAILED_SETUP", "FAILED_DRIVER", "CANCELLED"))


class Machine(RuleBasedStateMachine):
    """Random jobs, cancels, crashes, power cuts; at the end, each job's outcome against the model's."""

    node: Node

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, Model] = {}
        self.released: set[int] = set()
        self.was_cut = False
        self.rig = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        return self.node.spawn([*RIG, "serve"], cwd="/opt")

    def order(self, do: str, **arguments: object) -> Any:
        assert self.rig.stdin is not None
        assert self.rig.stdout is not None
        self.rig.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self.rig.stdin.flush()
        answer = self.rig.stdout.readline()
        if not answer:
            pytest.fail(self.rig.communicate()[1].decode())
        return json.loads(answer)

    @rule(kind=st.sampled_from([*KINDS]), cpus=st.sampled_from([0, 0, os.cpu_count()]))
    def submit(self, kind: str, cpus: int) -> None:
        job = self.order("submit", kind=kind, cpus=cpus)
        assert job not in self.jobs
        self.jobs[job] = Model(kind)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), grace=st.sampled_from([0, 0.05, 30]))
    def cancel(self, data: st.DataObject, grace: float) -> None:
        job = data.draw(st.sampled_from([*self.jobs]))
        self.jobs[job].asked()
        self.jobs[job].cancelled(self.order("cancel", job=job, grace=grace))

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.held()))
        self.order("go", job=job)
        self.released.add(job)

    def held(self) -> list[int]:
        """Jobs that wait for a file before they end."""
        return [job for job, model in self.jobs.items() if model.kind == "waits" and job not in self.released]

    @rule(first=st.integers(1, 40), second=st.integers(0, 20))
    def crash(self, first: int, second: int) -> None:
        self.order("crash", first=first, second=second)

    # Once a history: a boot takes longer than all the rest.
    @precondition(lambda self: self.jobs and not self.was_cut)
    @rule()
    def cut_power(self) -> None:
        self.was_cut = True
        for job, status in self.check("look").items():
            self.jobs[job].cut = status not in FINAL
            self.jobs[job].lost = status == "RUNNING" and job in self.held()
        self.node.kill()
        self.rig.communicate()
        self.node.boot()
        self.rig = self.start()

    @rule()
    def look(self) -> None:
        self.check("look")

    def check(self, do: str) -> dict[int, str]:
        """Their statuses; all that have ended did so in a way that they can have."""
        found = {}
        for job, (reason, end) in self.order(do, jobs=[*self.jobs]).items():
            found[int(job)] = end[0]
            if end[0] in FINAL:
                self.jobs[int(job)].check(reason, End(*end))
        return found

    def teardown(self) -> None:
        for job in self.held():
            self.order("go", job=job)
        assert set(self.check("settle").values()) <= FINAL
        _, errors = self.rig.communicate()
        assert self.rig.returncode == 0, errors.decode()


def test_random_histories(suite: str, request: pytest.FixtureRequest) -> None:
    examples = max(10, request.config.getoption("--crashes") // 50)
    with rig_node(suite) as node:
        machine = type("Machine", (Machine,), {"node": node, "TestCase": None})
        wanted = settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=[*HealthCheck],
        )
        run_state_machine_as_test(machine, settings=wanted)
