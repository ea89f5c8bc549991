"""The clock of an emulated machine is set by a day: nothing ends early or hangs, nothing untrue is said."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.admin_on_node import DAEMON, Place, place
from tests.node import Vm
from tests.test_vm import EAT

# Says that it was told to end, and ends when it may.
WAITS = "until [ -e go ]; do sleep 0.1; done"
TRAPS = f"trap 'touch told; {WAITS}; exit 0' TERM; touch up2; while :; do sleep 0.1; done"


@pytest.fixture
def alice(vm: Vm) -> Iterator[Place]:
    with place(vm) as alice:
        yield alice


def test_the_clock_is_set_by_a_day(vm: Vm, alice: Place) -> None:
    """Back, and forward again while jobs run."""
    running = alice.start("--cpus", "0", "-c", f"touch up1; {WAITS}")
    told = alice.start("--cpus", "0", "--grace", "1h", "-c", TRAPS, count=2)
    limited = alice.start("--cpus", "0", "-t", "30s", "-c", "touch up3; exec sleep 1000", count=3)
    eats = f"touch up4; until [ -e eat ]; do sleep 0.1; done; exec {EAT}"
    hungry = alice.start("--cpus", "0", "--memory", "100M", "-c", eats, count=4)
    asked_after = alice.start("--cpus", "0", "-c", "touch up5; exec sleep 1000", count=5)
    alice.run("cancel", str(told))
    alice.until("[ -e told ]")
    vm.run(["date", "-s", "-1 day"])
    try:
        for job in (running, told, hungry, asked_after):
            assert alice.show(job)["status"] == "RUNNING", alice.show(job)
        alice.run("cancel", str(asked_after))
        alice.shell("touch go eat")
        assert alice.wait(told, asked_after) == 103
        assert alice.wait(running) == 0
        assert alice.wait(limited, timeout=120) == 100
        assert alice.show(limited)["reason_code"] == "time-limit"
        assert alice.wait(hungry, timeout=120) == 100
        assert "the kernel killed 'python3'" in alice.show(hungry)["reason"], alice.show(hungry)
        for view in alice.jobs(f"{running}-{asked_after}").values():
            assert view["submitted_at"] <= view["ended_at"], view
        assert not re.search(r"\s-\d", alice.run("queue").stdout.decode())
        # A daemon that comes now finds all as it is.
        vm.run(["systemctl", "restart", DAEMON])
        stays = alice.start("--cpus", "0", "-t", "1h", "-c", "touch up6; exec sleep 1000", count=6)
    finally:
        vm.run(["date", "-s", "+1 day"])
    assert alice.output("echo", "ran") == b"ran\n"
    assert alice.show(stays)["status"] == "RUNNING"
    alice.run("cancel", str(stays))
    assert alice.wait(stays) == 103


def test_the_machine_stands_still_for_a_while(vm: Vm, alice: Place) -> None:
    """As a paused or migrated machine does: its emulator is stopped."""
    limited = alice.start("--cpus", "0", "-t", "25s", "-c", "touch up1; exec sleep 1000")
    ends = alice.start("--cpus", "0", "-c", "touch up2; sleep 5; exit 3", count=2)
    os.kill(vm.state.init, signal.SIGSTOP)
    with alice.node.spawn(["true"]) as done:
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                done.wait(10)
        finally:
            os.kill(vm.state.init, signal.SIGCONT)
        assert done.wait(60) == 0
    assert alice.wait(ends) == 100
    assert alice.show(ends)["exit_code"] == 3
    assert alice.wait(limited, timeout=150) == 100
    assert alice.show(limited)["reason_code"] == "time-limit"
