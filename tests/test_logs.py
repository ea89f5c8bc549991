"""Logs: what a job wrote, byte for byte, when it has ended and while it is followed."""

from __future__ import annotations

import hashlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.node import Node
from tests.queue_on_node import QueueOnNode

LINES = b"".join(b"%d\n" % number for number in range(1, 2_000_001))
LATE = 15.0
"""Seconds that a write may take to be shown: a second is promised, the rest is for busy machines."""

# What a job writes with this Python text, as bytes to `out`.
OUTPUTS = {
    "nothing": ("pass", b""),
    "every byte": ("out(bytes(range(256)) * 1000)", bytes(range(256)) * 1000),
    "NULs": ("out(bytes(3_000_000))", bytes(3_000_000)),
    "lines of 1 MB": (r"out((b'x' * 999_999 + b'\n') * 20)", (b"x" * 999_999 + b"\n") * 20),
    "no newline at the end": (r"out(b'one\ntwo')", b"one\ntwo"),
    "bytes that are no UTF-8": (r"out(b'\xff\xfe\xe2\x82\n\xc3')", b"\xff\xfe\xe2\x82\n\xc3"),
    "terminal controls": (r"out(b'\x1b[2J\r\n\x07\x1b]0;t\x07')", b"\x1b[2J\r\n\x07\x1b]0;t\x07"),
    "many lines": (r"out(b''.join(b'%d\n' % n for n in range(1, 2_000_001)))", LINES),
}


@pytest.fixture
def queue(node: Node) -> QueueOnNode:
    return QueueOnNode(node)


def writes(text: str) -> list[str]:
    """The command of a job that runs a Python text."""
    return ["/usr/bin/python3", "-c", f"import os\nout = open(1, 'wb').write\n{text}"]


@pytest.fixture(scope="module")
def written(node: Node) -> dict[str, int]:
    """A job for each of OUTPUTS, ended."""
    queue = QueueOnNode(node)
    jobs = {name: queue.submit(*writes(text)) for name, (text, _) in OUTPUTS.items()}
    assert queue.wait(*jobs.values()) == 0
    return jobs


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_log_is_what_the_job_wrote(queue: QueueOnNode, written: dict[str, int], name: str) -> None:
    expected = OUTPUTS[name][1]
    assert digest(queue.log(written[name])) == digest(expected)
    assert digest(queue.log(written[name], "--follow")) == digest(expected)


@pytest.mark.parametrize("lines", [0, 1, 2, 3, 1_000_000])
def test_tail(queue: QueueOnNode, written: dict[str, int], lines: int) -> None:
    def last(data: bytes) -> bytes:
        return b"".join(data.splitlines(keepends=True)[-lines:]) if lines else b""

    assert queue.log(written["no newline at the end"], "--tail", str(lines)) == last(b"one\ntwo")
    assert queue.log(written["lines of 1 MB"], "--tail", str(lines)) == last(OUTPUTS["lines of 1 MB"][1])
    assert digest(queue.log(written["many lines"], "--tail", str(lines))) == digest(last(LINES))


def test_150_mb_of_a_progress_bar(queue: QueueOnNode) -> None:
    text = r"out(b'begin\n'); [out(b'%9d%%|###|\r' % n * 1000) for n in range(9375)]; out(b'\nend\n')"
    job = queue.submit(*writes(text))
    assert queue.wait(job) == 0
    assert queue.log(job, "--tail", "1") == b"end\n"
    counted = queue.node.sh(f"sysjobs logs {job} | wc -c; sysjobs logs --tail 2 {job} | wc -c", user="alice")
    size = 9375 * 16_000
    assert counted.split() == [str(len("begin\n\nend\n") + size), str(len("\nend\n") + size)]


def test_a_reader_that_leaves(queue: QueueOnNode, written: dict[str, int]) -> None:
    script = f"sysjobs logs {written['many lines']} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = queue.node.run(["bash", "-c", script], user="alice")
    assert (done.stdout, done.stderr) == (b"1\n141\n", b"")
    job = queue.submit("-c", "while :; do echo y; done")
    done = queue.node.run(["bash", "-c", f"sysjobs logs -f {job} | head -n 1"], user="alice")
    assert (done.stdout, done.stderr) == (b"y\n", b"")
    queue.run("cancel", str(job))
    assert queue.wait(job) == 103


def test_the_log_of_setup(queue: QueueOnNode) -> None:
    job = queue.submit("--setup", "echo setting up; echo and >&2", "-c", "echo running")
    assert queue.wait(job) == 0
    assert queue.log(job, "--setup") == b"setting up\nand\n"
    assert queue.log(job) == b"running\n"
    failed = queue.submit("--setup", "echo no; exit 7", "-c", "echo running")
    done = queue.run("logs", "-f", str(failed), check=False)
    assert (done.returncode, done.stdout) == (100, b"")
    assert f"sysjobs logs --setup {failed} has its output" in done.stderr.decode()
    assert queue.log(failed, "--setup") == b"no\n"


def test_why_it_ended_is_told_with_its_log(queue: QueueOnNode) -> None:
    job = queue.submit("--name", "killed", "-c", "echo up; kill -KILL $$")
    assert queue.wait(job) == 100
    why = "Killed by SIGKILL, not by sysjobs; sender unknown"
    done = queue.run("logs", str(job))
    assert done.stdout == b"up\n"
    assert done.stderr.decode().startswith(f"sysjobs: Job {job} FAILED_DRIVER: {why}")
    assert why in queue.run("queue", str(job)).stdout.decode()


def test_status(queue: QueueOnNode) -> None:
    """Its exit codes are those of SkyPilot."""
    kinds = {"true": 0, "false": 100, "sleep infinity": 101, "exit 0": 103}
    busy = ["--cpus", queue.node.sh("nproc").strip()]
    jobs = [queue.submit("--cpus", "0.01", "-c", text) for text in list(kinds)[:3]]
    jobs.append(queue.submit(*busy, "-c", "exit 0"))
    queue.run("cancel", str(jobs[3]))
    assert queue.wait(jobs[0], jobs[1], jobs[3]) == 100
    codes = [queue.run("logs", "--status", str(job), check=False).returncode for job in jobs]
    assert codes == list(kinds.values())
    assert queue.run("logs", "--status", "999999999", check=False).returncode == 102
    queue.run("cancel", str(jobs[2]))
    assert queue.wait(jobs[2]) == 103


# While it is followed.


class Follower:
    """A `sysjobs logs -f`, whose output is read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.output = b""

    def until(self, end: bytes, seconds: float = 30) -> None:
        """Read until the output ends with this."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        fd = self.process.stdout.fileno()
        while not self.output.endswith(end):
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(fd, 65536) if ready else b""
            assert data, f"after {seconds:g} s or at its end, instead of {end!r}: {self.output[-200:]!r}"
            self.output += data

    def rest(self) -> tuple[int, bytes, bytes]:
        """Exit code, all output, all of stderr."""
        stdout, stderr = self.process.communicate(timeout=30)
        return self.process.returncode, self.output + stdout, stderr


@contextmanager
def following(queue: QueueOnNode, job: int) -> Iterator[Follower]:
    with queue.node.spawn(["sysjobs", "logs", "-f", str(job)], user=queue.user) as process:
        try:
            yield Follower(process)
        finally:
            process.kill()


class Writer:
    """A job that writes what it is told to, when it is told to."""

    def __init__(self, queue: QueueOnNode, *options: str) -> None:
        self.queue = queue
        self.pipe = f"/tmp/writer-{os.urandom(4).hex()}"
        queue.node.run(["mkfifo", self.pipe], user="alice")
        # Opened for reading and writing, so that it doesn't end with the first that writes into it.
        self.job = queue.submit(
            *options, "-c", f'exec 3<>{self.pipe}; while read -r line <&3; do eval "$line"; done'
        )

    def do(self, line: str) -> None:
        self.queue.node.sh(f"cat >{self.pipe}", user="alice", input=f"{line}\n".encode())


def test_each_write_is_shown_by_itself(queue: QueueOnNode) -> None:
    writer = Writer(queue)
    with following(queue, writer.job) as follower:
        for text in (b"first", b" of a line", b"\r50 %", b"\n", b"\xc3", b"\xa9\n"):
            writer.do("printf '{}'".format("".join(f"\\x{byte:02x}" for byte in text)))
            follower.until(text, LATE)
        writer.do("printf last; exit 3")
        code, output, stderr = follower.rest()
    assert (code, output) == (100, b"first of a line\r50 %\n\xc3\xa9\nlast")
    assert stderr.decode().startswith(f"sysjobs: Job {writer.job} FAILED: Ended with exit code 3")


def test_following_a_job_that_waits(queue: QueueOnNode) -> None:
    holder = queue.submit("--cpus", queue.node.sh("nproc").strip(), "sleep", "infinity")
    queue.node.wait_for(f"sysjobs show {holder} | grep -q RUNNING")
    job = queue.submit("--setup", "true", "-c", "printf 'begin\n'; printf end")
    with following(queue, job) as follower:
        assert follower.process.stderr is not None
        said = follower.process.stderr.readline().decode()
        assert said.startswith(f"sysjobs: Job {job} PENDING: Waits for CPUs: asks for 0.5; 0 of the node's ")
        assert said.endswith("Waiting for its log.\n")
        queue.run("cancel", str(holder))
        assert follower.rest() == (0, b"begin\nend", b"")


def test_following_ends_with_the_job_whoever_holds_its_log_open(queue: QueueOnNode) -> None:
    left = "(trap '' TERM; echo up; exec setsid sleep 4749)"
    until = "until pgrep -xf 'sleep 4749' >/dev/null; do :; done"
    job = queue.submit("--grace", "60s", "-c", f"{left} & {until}; exit 3")
    with following(queue, job) as follower:
        code, output, _ = follower.rest()
    assert (code, output) == (100, b"up\n")
    queue.node.run(["pgrep", "-xf", "sleep 4749"])
    queue.node.run(["systemctl", "kill", "--signal", "KILL", f"sysjobs-{job}"])


def test_following_over_a_restart_of_the_daemon(queue: QueueOnNode) -> None:
    writer = Writer(queue)
    with following(queue, writer.job) as follower:
        writer.do("echo before")
        follower.until(b"before\n")
        queue.node.sh("systemctl kill -s KILL sysjobsd && systemctl restart sysjobsd")
        writer.do("echo after")
        follower.until(b"after\n", LATE)
        queue.node.run(["systemctl", "stop", "sysjobsd.service", "sysjobsd.socket"])
        writer.do("printf 'the very last'; exit 0")
        follower.until(b"the very last", LATE)
        queue.node.run(["systemctl", "start", "sysjobsd.socket", "sysjobsd.service"])
        assert follower.rest() == (0, b"before\nafter\nthe very last", b"")


def test_the_last_bytes_are_shown(queue: QueueOnNode) -> None:
    """However the end of the job and the reading of its log interleave."""
    script = """
        for i in {1..12}; do
            job=$(sysjobs submit --parsable -c "printf %0100000d $i; echo; printf end")
            sysjobs logs -f $job | tail -c 4 | tr -d '\\n'
        done
    """
    assert queue.node.sh(script, user="alice") == "end" * 12


def test_interrupting_a_follower(node: Node, queue: QueueOnNode) -> None:
    writer = Writer(queue)
    with following(queue, writer.job) as follower:
        writer.do("echo up")
        follower.until(b"up\n")
        node.signal(follower.process, signal.SIGINT)
        code, _, stderr = follower.rest()
        assert code in (130, -signal.SIGINT)
        assert b"Traceback" not in stderr
    writer.do("exit 0")
    assert queue.wait(writer.job) == 0
