"""Signals that users have sent to their jobs, and what is said of them afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.admin_on_node import Place, place
from tests.node import Node
from tests.queue_on_node import QueueOnNode

COUNTS = "trap 'echo main >>told' USR1; touch up; until [ -e go ]; do sleep 0.05; done"
CHILD = f"(trap 'echo child >>told' USR1; until [ -e go ]; do sleep 0.05; done) & {COUNTS}; wait"


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


def said(place: QueueOnNode, *arguments: str) -> tuple[int, str]:
    done = place.run("signal", *arguments, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_a_signal_to_the_main_process_and_to_all(alice: Place) -> None:
    job = alice.start("-n", "counts", "-c", CHILD)
    assert said(alice, "USR1", "counts") == (0, f"Job {job} (counts) was sent the signal.\n")
    alice.until('[ "$(cat told)" = main ]')
    assert said(alice, "--everybody", "sigusr1", str(job))[0] == 0
    alice.until("[ $(grep -c child told) = 1 ] && [ $(grep -c main told) = 2 ]")
    shown = alice.show(job)
    assert (shown["sent_signal"], shown["sent_by"]) == (10, "alice")
    assert re.search(
        r"^Was sent +SIGUSR1 by alice, ", alice.run("show", str(job)).stdout.decode(), re.MULTILINE
    )
    alice.shell("touch go")
    assert alice.wait(job) == 0
    assert said(alice, "USR1", str(job)) == (1, f"Job {job} (counts) had ended before: SUCCEEDED.\n")


@pytest.mark.parametrize("name", ["KILL", "INT"])
def test_whom_it_ends(node: Node, alice: Place, name: str) -> None:
    """Who sent it is known, so that it isn't called the doing of nobody."""
    job = alice.start("--", "sh", "-c", "touch up; exec sleep 1000")
    assert node.run(["sysjobs", "signal", name, str(job)]).stdout.endswith(b"was sent the signal.\n")
    assert alice.wait(job) == 100
    shown = alice.show(job)
    assert (shown["status"], shown["reason_code"]) == ("FAILED", "signal")
    assert re.fullmatch(rf"Ended by SIG{name}, which root had sent \S+s before\.", shown["reason"])


def test_what_gets_none(alice: Place) -> None:
    waits = alice.submit("--hold", "true")
    assert said(alice, "USR1", str(waits)) == (1, f"Job {waits} (true) hasn't started; nothing was sent.\n")
    sets_up = alice.start("--setup", "touch up; sleep 1000", "--", "true")
    code, text = said(alice, "USR1", str(sets_up))
    assert (code, "has no main process before its setup is over" in text) == (1, True)
    for name in ("USR9", "0", "65", "x y", ""):
        code, text = said(alice, name, str(sets_up))
        assert (code, text.partition("\n")[0]) == (2, f"sysjobs: {name!r} is no signal.")
    code, text = said(alice, "USR1", "99999")
    assert (code, "99999" in text) == (1, True)
    assert alice.show(sets_up)["status"] == "SETTING_UP"
    another = alice.start("--setup", "touch up2; exec sleep 1000", "--", "true", count=2)
    for job, name in ((sets_up, "KILL"), (another, "INT")):
        assert said(alice, "--everybody", name, str(job))[0] == 0
        assert alice.wait(job) == 100
        shown = alice.show(job)
        assert (shown["status"], shown["reason_code"]) == ("FAILED_SETUP", "signal")
        assert shown["reason"].startswith(f"Ended by SIG{name}, which alice had sent ")


def test_nobody_elses_job_gets_one(node: Node, alice: Place) -> None:
    job = alice.start("-c", "touch up; exec sleep 1000")
    with place(node, "bob") as bob:
        left_alone = f"Job {job} (touch) belongs to somebody else; it was left alone.\n"
        assert said(bob, "KILL", str(job)) == (1, left_alone)
        assert alice.show(job)["status"] == "RUNNING"
