"""The clock of an emulated machine is set by a day, or it sleeps: nothing ends early, nothing is untrue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.admin_on_node import DAEMON, Place, place
from tests.node import NodeError, Vm
from tests.test_vm import EAT

# Says that it was told to end, and ends when it may.
WAITS = "until [ -e go ]; do sleep 0.1; done"
TRAPS = f"trap ': >told; {WAITS}; exit 0' TERM; touch up2; while :; do sleep 0.1; done"


@pytest.fixture
def alice(vm: Vm) -> Iterator[Place]:
    with place(vm) as alice:
        yield alice


def test_the_clock_is_set_by_a_day(vm: Vm, alice: Place) -> None:
    """Back, and forward again while jobs run."""
    eats = f"touch up3; until [ -e go ]; do sleep 0.1; done; exec {EAT}"
    specs: list[dict[str, object]] = [
        {"shell": f"touch up1; {WAITS}"},
        {"shell": TRAPS, "grace": 3600},
        {"shell": eats, "memory": 100 << 20},
        {"shell": "touch up4; exec sleep 1000"},
        {"shell": "touch up5; exec sleep 1000", "time": 30},
    ]
    jobs = alice.submit_many([{**spec, "cpus": 0} for spec in specs])
    running, told, hungry, asked_after, limited = jobs
    alice.until("[ -e up1 -a -e up2 -a -e up3 -a -e up4 -a -e up5 ]", timeout=60)
    alice.run("cancel", str(told))
    alice.until("[ -e told ]")
    vm.run(["date", "-s", "-1 day"])
    try:
        seen = alice.jobs("-s")
        # The last one's time may be up by now.
        assert {seen[job]["status"] for job in jobs[:-1]} == {"RUNNING"}, seen
        alice.run("cancel", str(asked_after))
        alice.shell("touch go")
        # The worst of them.
        assert alice.wait(*jobs, timeout=120) == 100
        ended = alice.jobs(f"{running}-{limited}")
        reasons = {job: (view["status"], view["reason_code"]) for job, view in ended.items()}
        assert reasons == {
            running: ("SUCCEEDED", None),
            told: ("CANCELLED", "cancelled"),
            hungry: ("FAILED_DRIVER", "oom"),
            asked_after: ("CANCELLED", "cancelled"),
            limited: ("FAILED", "time-limit"),
        }
        assert "the kernel killed 'python3'" in ended[hungry]["reason"], ended[hungry]
        assert all(view["submitted_at"] <= view["ended_at"] for view in ended.values()), ended
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


LIMIT, ASLEEP = 30, 10
SUSPEND = f"cd /sys/class/rtc/rtc0; echo 0 >wakealarm; echo +{ASLEEP} >wakealarm; echo mem >/sys/power/state"


def test_the_machine_is_suspended(vm: Vm, alice: Place) -> None:
    """To memory, and woken by its clock. That time counts for no limit; what runs goes on."""
    for _ in range(2):
        ends = alice.submit("--cpus", "0", "-c", "sleep 10; exit 3")
        # In one go: on a busy machine each command takes its time.
        submit = f"runuser -u alice -- sysjobs submit --parsable -C /tmp --cpus 0 -t {LIMIT}s -- sleep 1000"
        limited = int(vm.sh(f"{submit}; systemd-run --quiet --collect sh -c '{SUSPEND}'"))
        if woke_up(vm):
            break
        vm.boot()
    assert alice.wait(ends, limited, timeout=120) == 100
    ended = alice.jobs(f"{ends}-{limited}")
    assert (ended[ends]["status"], ended[ends]["exit_code"]) == ("FAILED", 3)
    assert ended[limited]["reason_code"] == "time-limit"
    # Its clock has full seconds.
    began, end = (datetime.fromisoformat(ended[limited][name]) for name in ("started_at", "ended_at"))
    assert (end - began).total_seconds() > LIMIT + ASLEEP - 2


def woke_up(vm: Vm) -> bool:
    """Wait until it has slept; whether its kernel survived that."""
    awake = "dmesg | grep 'PM: suspend exit'"
    try:
        try:
            vm.wait_for(awake, timeout=120)
        except NodeError:
            # The connection may not have survived.
            vm.reconnect()
            vm.wait_for(awake, timeout=120)
    except NodeError:
        if not vm.panicked:
            raise
        vm.kill()
        return False
    return True
