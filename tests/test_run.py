"""sysjobs run: a job with its log and its exit code, in the foreground."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.admin_on_node import Place, place
from tests.node import Node


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (["--", "printf", "no newline"], 0, b"no newline"),
        (["-c", "echo one; exit 3"], 3, b"one\n"),
        (["-c", "kill -SEGV $$"], 139, b""),
        (["--setup", "echo 6 >n", "-c", "echo $(($(cat n) * 7))"], 0, b"42\n"),
        (["--setup", "echo set up; exit 4", "--", "true"], 100, b""),
        (["--time", "0.3", "--", "sleep", "100"], 143, b""),
    ],
)
def test_run_ends_as_the_job_does(alice: Place, arguments: list[str], code: int, output: bytes) -> None:
    done = alice.run("run", "--cpus", "0", "-C", alice.path, *arguments, check=False)
    assert (done.returncode, done.stdout) == (code, output), done.stderr


def test_run_refuses_what_submit_refuses(alice: Place) -> None:
    done = alice.run("run", "--cpus", "-1", "--", "true", check=False)
    assert done.returncode == 2
    assert b"--cpus '-1' is not a number of CPUs." in done.stderr
    assert alice.run("run", check=False).returncode == 2


def test_ctrl_c_cancels_the_job(node: Node, alice: Place) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo hi; echo up >up; while :; do sleep 0.05; done"
    with node.spawn(["sysjobs", "run", "-C", alice.path, "-c", script], user="alice") as process:
        alice.until("[ -s up ]")
        node.signal(process, signal.SIGINT)
        output, _ = process.communicate(timeout=30)
        # What it prints on its way out is shown too.
        assert output.startswith(b"hi\n")
        assert output.endswith(b"bye\n")
        assert process.returncode == 103
    job = max(alice.jobs("--status", "cancelled"))
    assert "Ctrl-C" in alice.show(job)["reason"]
    assert b"bye\n" in alice.log(job)


def test_a_killed_run_leaves_its_job(node: Node, alice: Place) -> None:
    with node.spawn(
        ["sysjobs", "run", "-C", alice.path, "-c", "echo up >up; sleep 1000"], user="alice"
    ) as process:
        alice.until("[ -s up ]")
        node.signal(process, signal.SIGKILL)
        process.wait(30)
    (job,) = alice.jobs("-s")
    assert alice.show(job)["status"] == "RUNNING"
