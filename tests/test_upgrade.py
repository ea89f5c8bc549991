"""Upgrades: jobs and clients go on, also where dpkg is killed meanwhile; a downgrade is refused."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import sysjobs
from tests.admin_on_node import DAEMON, Place, daemon, unit
from tests.newer import KILL, SCHEMA, VERSION, newer_deb
from tests.node import Node
from tests.node.build import build_deb
from tests.raw_client import RawClient

OLD, NEW = "/tmp/old.deb", "/tmp/new.deb"
APT = ["apt-get", "-o", "APT::Sandbox::User=root", "-y", "--allow-downgrades"]
DATABASE = "/var/lib/sysjobs/sysjobs.db"
PACKAGE = "/usr/lib/python3/dist-packages/sysjobs"

BEGIN = "echo >>begun.$SYSJOBS_JOB_ID; touch up.$SYSJOBS_JOB_ID; "
UNTIL_GO = "until [ -e go ]; do sleep 0.05; done; "
# What a user does for as long as an upgrade takes. 101: the job hasn't ended.
COMMANDS = f"""
until [ -e stop ]; do
    sysjobs submit --parsable --cpus 0 -c '{BEGIN}' >>submitted || touch failed
    sysjobs queue -s >listed || touch failed
    sysjobs logs --status $0 >said || [ $? = 101 ] || touch failed
done
"""


@pytest.fixture(scope="module")
def newer(suite: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("building the package needs root")
    return newer_deb(build_deb(suite), tmp_path_factory.mktemp("newer"))


@pytest.fixture
def node(suite: str, newer: Path) -> Iterator[Node]:
    with Node(suite) as node:
        node.put(OLD, node.deb)
        node.put(NEW, newer)
        yield node


@pytest.fixture
def alice(node: Node) -> Place:
    return Place(node)


def install(node: Node, deb: str, *, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return node.run([*APT, "install", deb], check=check)


def version(node: Node) -> str:
    """What the running daemon says that it is, whatever is installed."""
    with RawClient(node) as client:
        said: str = client.call("org.varlink.service.GetInfo")["parameters"]["version"]
        return said


def invocations(node: Node, jobs: Iterable[int]) -> list[str]:
    return [unit(node, job, "InvocationID") for job in jobs]


def finish(client: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Exit code and output of a command that ends by itself."""
    out, err = client.communicate(timeout=60)
    return client.returncode, out, err


def begun_once(alice: Place, jobs: Iterable[int]) -> None:
    begun = alice.shell("grep -c '' begun.* | sed 's/^begun[.]//'").split()
    assert sorted(begun) == sorted(f"{job}:1" for job in jobs)


def ended(alice: Place, jobs: Iterable[int]) -> list[tuple[str, int | None]]:
    views = alice.jobs(*map(str, jobs))
    return [(views[job]["status"], views[job]["exit_code"]) for job in jobs]


def test_jobs_and_clients_go_on(node: Node, alice: Place) -> None:
    lines = "for i in {1..5000}; do echo line $i; [ -e go ] && exit 3; sleep 0.02; done"
    # The new files are there, and the old daemon still.
    until_unpacked = f"until [ -e {PACKAGE}/cli/ponder.py ]; do sleep 0.01; done; "
    kinds = (
        (["-c", BEGIN + lines], ("FAILED", 3)),
        (["--setup", BEGIN + UNTIL_GO, "--", "sh", "-c", "exit 4"], ("FAILED", 4)),
        (["--grace", "1h", "-c", "trap ': >told' TERM; " + BEGIN + UNTIL_GO], ("CANCELLED", 0)),
        (["--grace", "3s", "-c", "trap '' TERM; " + BEGIN + "sleep 1000"], ("CANCELLED", None)),
        (["--time", "3s", "-c", BEGIN + "exec sleep 1000"], ("FAILED", None)),
        (["-c", BEGIN + until_unpacked + "exit 5"], ("FAILED", 5)),
    )
    jobs = [alice.start("--cpus", "0", *options, count=count) for count, (options, _) in enumerate(kinds, 1)]
    running, _, cancelled, deaf, _, ending = jobs
    alice.run("cancel", str(cancelled), str(deaf))
    alice.until("[ -e told ]")
    follower, waiter, runner = (
        node.spawn(["sysjobs", *command], user="alice", cwd=alice.path)
        for command in (
            ["logs", "-f", str(running)],
            ["wait", str(running), str(ending)],
            ["run", "--cpus", "0", "-c", BEGIN + UNTIL_GO + "echo done; exit 7"],
        )
    )
    alice.until(f"[ $(ls | grep -c ^up) = {len(jobs) + 1} ]")
    (ran,) = alice.jobs("@")
    one_by_one = alice.submit_many([{"shell": BEGIN + "sleep 0.3", "cpus": int(node.sh("nproc"))}] * 20)
    user = node.spawn(["bash", "-c", COMMANDS, str(running)], user="alice", cwd=alice.path)
    alice.until("[ -s said ]")
    kept = [*jobs[:3], ran]
    before, pid = invocations(node, kept), daemon(node, "MainPID")
    socket_since = node.sh("systemctl show -P ActiveEnterTimestampMonotonic sysjobsd.socket")

    install(node, NEW)

    assert version(node) == VERSION
    assert daemon(node, "MainPID") != pid
    assert node.sh("systemctl show -P ActiveEnterTimestampMonotonic sysjobsd.socket") == socket_since
    assert invocations(node, kept) == before
    assert node.sh(f"ls {DATABASE}.v*").split() == [f"{DATABASE}.v{SCHEMA - 1}"]
    alice.shell("touch stop")
    assert finish(user) == (0, b"", b"")
    alice.shell("touch go")
    assert alice.shell("ls failed 2>/dev/null || :") == ""
    submitted = [int(line) for line in alice.file("submitted").split()]
    alice.wait(*jobs, ran, *one_by_one, *submitted)
    assert ended(alice, jobs) == [end for _, end in kinds]
    assert set(ended(alice, one_by_one + submitted)) == {("SUCCEEDED", 0)}
    begun_once(alice, [*jobs, ran, *one_by_one, *submitted])
    assert finish(follower)[:2] == (100, alice.log(running))
    assert finish(runner)[:2] == (7, b"done\n")
    assert finish(waiter)[0] == 100


def test_a_downgrade_is_refused_without_damage(node: Node, alice: Place) -> None:
    cpus = node.sh("nproc").strip()
    running = alice.start("--cpus", cpus, "-c", BEGIN + UNTIL_GO + "exit 3")
    pending = alice.submit("-C", alice.path, "-c", BEGIN)
    before = invocations(node, [running])
    install(node, NEW)
    install(node, OLD)

    def refused() -> str:
        assert daemon(node, "ActiveState") == "failed"
        assert daemon(node, "ExecMainStatus") == "78"
        return node.sh(f"sha256sum {DATABASE}*")

    files = refused()
    assert (
        f"{DATABASE} was written by a newer sysjobs: its schema is version {SCHEMA}, "
        f"sysjobs {sysjobs.__version__} knows up to {SCHEMA - 1}. Install the newer sysjobs again"
    ) in node.journal(DAEMON)
    assert f"upgrade sysjobs:all {VERSION} {sysjobs.__version__}" in node.get("/var/log/dpkg.log").decode()
    node.run(["systemctl", "start", DAEMON], check=False)
    assert refused() == files
    assert unit(node, running, "SubState") == "running"
    install(node, NEW)
    assert invocations(node, [running]) == before
    assert ended(alice, [running, pending]) == [("RUNNING", None), ("PENDING", None)]
    alice.shell("touch go")
    alice.wait(running, pending)
    assert ended(alice, [running, pending]) == [("FAILED", 3), ("SUCCEEDED", 0)]
    begun_once(alice, [running, pending])


def test_dpkg_is_killed_and_the_versions_are_mixed(node: Node, alice: Place) -> None:
    running = alice.start("--cpus", "0", "-c", f"{BEGIN} echo here; {UNTIL_GO} exit 3")
    before = invocations(node, [running])
    node.sh(f"mkdir /srv/old; cp -r {PACKAGE} /srv/old")
    for script in ("preinst", "postinst"):
        node.put(KILL, script.encode())
        assert b"dpkg exited unexpectedly" in install(node, NEW, check=False).stderr
        assert invocations(node, [running]) == before
        assert version(node) == sysjobs.__version__
        if script == "preinst":
            # Nothing was unpacked yet, so this only lets apt go on.
            node.run(["dpkg", "--configure", "-a"])

    # Unpacked and not configured: the new commands ask the old daemon.
    assert alice.run("--version").stdout.decode().split() == ["sysjobs", VERSION]
    works(alice, running)
    pondered = alice.run("ponder", check=False)
    assert (pondered.returncode, pondered.stderr.decode().splitlines()) == (
        1,
        [
            f"sysjobs: sysjobsd {sysjobs.__version__}, asked by sysjobs {VERSION}, doesn't know Ponder.",
            "  Have the daemon restarted, which harms no job: systemctl restart sysjobsd. "
            f"If it is {sysjobs.__version__} then too, upgrade its package.",
        ],
    )

    node.run(["dpkg", "--configure", "-a"])
    assert version(node) == VERSION
    assert alice.run("ponder").stderr == b""
    # The old commands ask the new daemon.
    old = {"PYTHONPATH": "/srv/old"}
    assert alice.run("--version", env=old).stdout.decode().split() == ["sysjobs", sysjobs.__version__]
    works(alice, running, env=old)
    assert invocations(node, [running]) == before
    alice.shell("touch go")
    alice.wait(running)
    assert ended(alice, [running]) == [("FAILED", 3)]


def works(alice: Place, running: int, env: dict[str, str] | None = None) -> None:
    """That commands and daemon, of whichever versions, understand each other in all that both know."""
    assert alice.run("logs", str(running), env=env).stdout == b"here\n"
    assert b"RUNNING" in alice.run("queue", env=env).stdout
    job = alice.submit("--cpus", "0", "--", "sleep", "1000", env=env)
    assert b"Status" in alice.run("show", str(job), env=env).stdout
    alice.run("cancel", str(job), env=env)
    assert alice.run("wait", str(job), env=env, check=False).returncode == 103
    assert alice.run("run", "--cpus", "0", "-c", "echo hello; exit 9", env=env, check=False).returncode == 9


def test_the_files_of_what_runs_are_replaced(node: Node, alice: Place) -> None:
    """Nothing is read later that may then be of another version, or gone, for as long as it takes."""
    running = alice.start("--cpus", "0", "-c", BEGIN + UNTIL_GO + "exit 3")
    deaf = alice.start("--cpus", "0", "--setup", f"trap '' INT; {BEGIN} sleep 1000", "--", "true", count=2)
    clients = [
        node.spawn(["sysjobs", *command], user="alice", cwd=alice.path)
        for command in (
            ["logs", "-f", str(running)],
            ["wait", str(running)],
            ["run", "--cpus", "0", "-c", BEGIN + UNTIL_GO + "exit 7"],
            ["run", "--cpus", "0", "--setup", BEGIN + UNTIL_GO, "-c", "exec sleep 1000"],
        )
    ]
    alice.until("[ $(ls | grep -c ^up) = 4 ]")
    in_setup = max(alice.jobs("--status", "setting_up"))
    # A daemon that hasn't done anything yet.
    node.run(["systemctl", "restart", DAEMON])
    node.sh(f"mkdir /srv/moved; mv {PACKAGE} /srv/moved")
    env = {"PYTHONPATH": "/srv/moved"}
    pid = daemon(node, "MainPID")
    # Settings are read, systemd's connection is made anew, jobs are cancelled, fail, end.
    node.run(["kill", "-HUP", pid])
    node.run(["systemctl", "daemon-reexec"])
    texts = ["exit 0", "exit 1", "kill -KILL $$", "kill -SEGV $$"]
    jobs = [alice.submit("--cpus", "0", "--setup", "true", "-c", text, env=env) for text in texts]
    jobs += [alice.submit("--cpus", "0", "--", "no-such-command", env=env)]
    alice.run("cancel", str(deaf), env=env)
    alice.run("wait", *map(str, jobs), str(deaf), env=env, check=False)
    alice.run("queue", env=env)
    alice.run("show", str(jobs[0]), env=env)
    alice.shell("touch go")
    assert [finish(client)[0] for client in clients[:3]] == [100, 100, 7]
    node.wait_for(f"systemctl is-active -q sysjobs-{in_setup}")
    node.signal(clients[3], signal.SIGINT)
    assert finish(clients[3])[0] == 143
    assert daemon(node, "MainPID") == pid
    assert "Traceback" not in node.journal(DAEMON)


def test_removed_and_installed_again(node: Node, alice: Place) -> None:
    ending, running = (
        alice.start(
            "--cpus",
            "0",
            "-c",
            f"{BEGIN} until [ -e go{number} ]; do sleep 0.05; done; exit {number}",
            count=number,
        )
        for number in (1, 2)
    )
    before = invocations(node, [ending, running])
    node.run([*APT, "remove", "sysjobs"])
    assert (
        node.run(["systemctl", "is-active", "sysjobsd.socket", DAEMON], check=False).stdout.split()
        == [b"inactive"] * 2
    )
    assert invocations(node, [ending, running]) == before
    alice.shell("touch go1")
    node.wait_for(f"systemctl show -P ExecMainStatus sysjobs-{ending} | grep -qx 1")
    install(node, OLD)
    alice.wait(ending)
    assert ended(alice, [ending, running]) == [("FAILED", 1), ("RUNNING", None)]
    assert invocations(node, [running]) == before[1:]
    alice.shell("touch go2")
    alice.wait(running)
    begun_once(alice, [ending, running])
