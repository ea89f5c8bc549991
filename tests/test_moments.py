"""What happens to the installed daemon at one exact moment, which it is made to come to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.admin_on_node import DAEMON, Place, drop_in, place, stopped, unit
from tests.node import Node


@contextmanager
def daemon_that(node: Node, does: str) -> Iterator[None]:
    """The service's daemon with something of it replaced."""
    runs = "from sysjobs import sysjobsd\nsys.exit(sysjobsd.main([]))"
    node.put("/run/moment.py", f"import sys\n{does}\n{runs}".encode())
    with drop_in(node, "ExecStart=\nExecStart=/usr/bin/python3 -P /run/moment.py"):
        yield


@pytest.fixture
def alice(own_node: Node) -> Iterator[Place]:
    with place(own_node) as alice:
        yield alice


LOOKS_LATE = """
import time
from pathlib import Path
from sysjobs.engine.systemd import Systemd

def observe_all(self, jobs, look=Systemd.observe_all):
    while not Path("/run/look").exists():
        Path("/run/sysjobs/looks").touch()
        time.sleep(0.01)
    return look(self, jobs)

Systemd.observe_all = observe_all
"""


def test_a_unit_is_stopped_between_the_last_signals_and_a_look_at_all(own_node: Node, alice: Place) -> None:
    """The signals of that have come by the time of the look. Its exit code alone would tell of a failure."""
    own_node.sh("touch /run/look")
    with daemon_that(own_node, LOOKS_LATE):
        setup = "trap 'exit 5' TERM; touch up; sleep 1000 & wait"
        job = alice.start("--setup", setup, "true")
        own_node.sh("rm /run/look")
        doctor = own_node.spawn(["sysjobs", "doctor"])
        own_node.wait_for("[ -e /run/sysjobs/looks ]")
        own_node.sh(f"systemctl stop sysjobs-{job}; touch /run/look")
        doctor.communicate(timeout=60)
        alice.wait(job)
        shown = alice.show(job)
        assert (shown["status"], shown["reason_code"]) == ("CANCELLED", "stopped"), shown


OUT_OF_TOUCH = """
from sysjobs.engine import ConnectionLost
from sysjobs.engine.systemd import Systemd

def release(self, job, release=Systemd.release):
    if job.name == "first":
        Systemd.release = release
        raise ConnectionLost("as if systemd had restarted itself")
    return release(self, job)

Systemd.release = release
"""


def test_systemd_is_lost_just_before_leftovers_begin_to_be_watched(own_node: Node, alice: Place) -> None:
    with daemon_that(own_node, OUT_OF_TOUCH):
        first = alice.start(
            "-n", "first", "--cpus", "0", "-c", "touch up1; until [ -e go1 ]; do sleep 0.01; done"
        )
        child = "trap '' TERM; touch up3; until [ -e done ]; do sleep 0.01; done"
        text = f"bash -c {child!r} & trap ': >told' TERM; touch up2; until [ -e go2 ]; do sleep 0.01; done"
        cancelled = alice.start("--cpus", "1", "--grace", "1h", "-c", text, count=3)
        alice.run("cancel", str(cancelled))
        alice.until("[ -e told ]")
        with stopped(own_node):
            # So that it sees both ends at once, in this order.
            for number, job in enumerate((first, cancelled), 1):
                alice.shell(f"touch go{number}")
                own_node.wait_for(f"[ $(systemctl show -P ExecMainCode sysjobs-{job}) != 0 ]")
        own_node.wait_for(f"journalctl -q -u {DAEMON} | grep 'connected to systemd again'")
        assert alice.wait(first) == 0
        assert alice.wait(cancelled) == 103
        assert "populated 1" in own_node.sh(
            f"cat /sys/fs/cgroup{unit(own_node, cancelled, 'ControlGroup')}/cgroup.events"
        )
        alice.shell("touch done")
        # Not after the grace only.
        own_node.wait_for(f"! systemctl -q is-active sysjobs-{cancelled}")


NO_TURN_LEFT = """
from sysjobs.daemon import Daemon
from sysjobs.engine import StartPostponed
from sysjobs.engine.systemd import Systemd
from sysjobs.jobs import Reason

refused = []

def start(self, job, payload):
    refused.append(job)
    raise StartPostponed(Reason("going-down", "As if the machine was being shut down."))

def flush(self, flush=Daemon._flush):
    if not refused or self._stop.is_set():
        flush(self)

Systemd.start = start
Daemon._flush = flush
"""


def test_the_daemon_is_stopped_right_after_a_start_that_was_refused(own_node: Node) -> None:
    """By a shutdown: after it, an open start would count as a job that was lost."""
    alice = Place(own_node)
    with daemon_that(own_node, NO_TURN_LEFT):
        job = alice.submit("-C", alice.path, "-c", "echo ran")
        own_node.reboot()
        assert alice.wait(job) == 0, alice.show(job)
        assert alice.log(job) == b"ran\n"
