"""Attempts on a node: retries after failures, requeues, and what is left of each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admin_on_node import Place, kill_daemon, place, unit
from tests.node import Node
from tests.queue_on_node import QueueOnNode


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


def said(alice: Place, *arguments: str) -> tuple[int, str]:
    done = alice.run(*arguments, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_a_job_that_fails_begins_again(node: Node, alice: Place) -> None:
    text = 'echo "$SYSJOBS_ATTEMPT after ${SLURM_RESTART_COUNT-none}"; exit $((SYSJOBS_ATTEMPT < 3 ? 75 : 0))'
    job = alice.submit("--retries", "5", "--retry-delay", "0.1", "--retry-on", "75,oom", "-c", text)
    assert alice.wait(job) == 0
    assert alice.log(job) == b"3 after 2\n"
    assert alice.log(job, "--attempt", "1") == b"1 after none\n"
    shown = alice.show(job)
    assert (shown["attempt"], shown["retry"]) == (3, "5 times after 75,oom, first in 0.1s")
    assert [(each["number"], each["status"], each["exit_code"]) for each in shown["attempts"]] == [
        (1, "FAILED", 75),
        (2, "FAILED", 75),
    ]
    assert all(each["cpu_time"] > 0 for each in shown["attempts"])
    code, text = said(alice, "logs", "--attempt", "7", str(job))
    assert (code, text.splitlines()[0]) == (1, f"sysjobs: Job {job} has had no attempt 7.")
    assert unit(node, job, "LoadState") == "not-found"
    # Another exit code isn't worth it.
    other = alice.submit("--retries", "5", "--retry-on", "75", "-c", "exit 1")
    assert alice.wait(other) == 100
    assert alice.show(other)["attempt"] == 1


def test_between_two_attempts(alice: Place) -> None:
    job = alice.submit("--retries", "1", "--retry-delay", "1h", "--", "false")
    alice.until(f"sysjobs show {job} | grep -q ^Reason.*Begins")
    shown = alice.show(job)
    assert (shown["status"], shown["attempt"], shown["reason_code"]) == ("INIT", 2, "retry")
    assert shown["reason"].endswith("; attempt 1 ended as FAILED: Ended with exit code 1.")
    assert said(alice, "cancel", str(job)) == (0, f"Job {job} (false) is cancelled; it had not started.\n")
    assert alice.show(job)["reason"] == "Cancelled by its owner."


def test_the_daemon_is_killed_between_two_attempts(node: Node, alice: Place) -> None:
    """What is kept of failed units is not in the way of the next attempt: another daemon knows of none."""
    options = ("-C", alice.path, "--cpus", "0", "--array", "0-4", "--retries", "1", "--retry-delay", "2s")
    job = alice.submit(*options, "-c", "echo >>begun$SYSJOBS_ARRAY_TASK_ID; exit 3")
    alice.until(f"[ $(sysjobs queue --tasks {job} --status init --format id | grep -c {job}_) = 5 ]")
    units = f"systemctl list-units --all --plain --no-legend 'sysjobs-[0-9]*' | grep -c 'task\\|{job}_' || :"
    assert node.sh(units).strip() == "0"
    kill_daemon(node)
    assert alice.wait(job) == 100
    assert alice.show(job)["array"]["ended"] == {"FAILED": 5}
    assert alice.shell("wc -l begun* | sed '$d'").split()[::2] == ["2"] * 5


def test_a_requeue(node: Node, alice: Place) -> None:
    text = "echo $SYSJOBS_ATTEMPT; touch up$SYSJOBS_ATTEMPT; exec sleep 1000"
    job = alice.start("-n", "again", "--cpus", "0", "-c", text)
    bob = QueueOnNode(node, "bob").run("requeue", str(job), check=False)
    assert (bob.returncode, b"belongs to somebody else" in bob.stdout) == (1, True)
    answer = f"Job {job} (again) is being ended; it begins again after that.\n"
    assert said(alice, "requeue", "again", "--reason", "new data") == (0, answer)
    alice.until("[ -e up2 ]")
    kill_daemon(node)
    assert said(alice, "requeue", str(job)) == (0, answer)
    alice.until("[ -e up3 ]")
    shown = alice.show(job)
    assert [(each["status"], each["reason"], each["signal"]) for each in shown["attempts"]] == [
        ("CANCELLED", "Requeued by its owner: new data.", 15),
        ("CANCELLED", "Requeued by its owner.", 15),
    ]
    assert alice.shell(f"sysjobs logs {job}").split() == ["3"]
    waits = alice.submit("--hold", "--", "true")
    assert said(alice, "requeue", str(waits))[0] == 1
    alice.run("cancel", str(job), str(waits))
    assert alice.wait(job) == 103
    code, text = said(alice, "requeue", str(job))
    assert (code, text) == (1, f"Job {job} (again) had ended before: CANCELLED.\n")


def test_tasks_of_an_array_are_tried_again_each(alice: Place) -> None:
    text = "echo >>begun$SYSJOBS_ARRAY_TASK_ID; exit $((SYSJOBS_ARRAY_TASK_ID % 2))"
    options = ("-C", alice.path, "--cpus", "0", "--array", "0-4%2", "--retries", "2", "--retry-delay", "0")
    job = alice.submit(*options, "-c", text)
    assert alice.wait(job) == 100
    assert alice.shell("wc -l begun* | sed '$d'").split()[::2] == ["1", "3", "1", "3", "1"]
    assert alice.show(job)["array"]["ended"] == {"SUCCEEDED": 3, "FAILED": 2}
