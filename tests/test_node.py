"""The node library itself: what tests on nodes rely on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node import Node, NodeError
from tests.node.cgroup import Cgroup
from tests.node.state import NodeState
from tests.waiting import wait_until

PROGRAM = Path(__file__).resolve().parents[1] / "packaging" / "node"


@pytest.fixture
def own(suite: str, node: Node) -> Iterator[Node]:
    """A node that the test may switch off."""
    with Node(suite) as own:
        yield own


def test_systemd_is_pid_1_and_runs(node: Node) -> None:
    assert node.get("/proc/1/comm") == b"systemd\n"
    assert node.run(["ip", "-br", "address", "show", "lo"]).stdout.startswith(b"lo")


def test_the_clock_of_this_machine_is_out_of_reach(node: Node) -> None:
    """For commands, and for the services of a node."""
    clock = "date --set @1 >/dev/null"
    for command in (["sh", "-c", clock], ["systemd-run", "--wait", "--quiet", "sh", "-c", clock]):
        assert node.run(command, check=False).returncode == 1
    assert int(node.sh("date +%s")) > 1


def test_exit_status_and_output(node: Node) -> None:
    done = node.run(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert node.run(["sh", "-c", "kill -USR1 $$"], check=False).returncode == -signal.SIGUSR1


def test_a_failure_tells_command_status_and_output(node: Node) -> None:
    with pytest.raises(NodeError, match=r"(?s)exit status 3: sh -c .*stderr.*why it failed"):
        node.run(["sh", "-c", "echo why it failed >&2; exit 3"])


def test_a_timeout_ends_the_command(node: Node) -> None:
    with pytest.raises(NodeError, match=r"(?s)not ended after 2 s.*begun"):
        node.run(["sh", "-c", "echo begun; exec sleep 4711"], timeout=2)
    node.wait_for("! pgrep -fx 'sleep 4711'")


def test_input_and_bytes_pass_unchanged(node: Node) -> None:
    data = bytes(range(256)) * 1000
    assert node.run(["cat"], input=data).stdout == data
    odd = b"a\xff\n $(b)=\xe2\x82"
    assert node.run(["printf", "%s", odd]).stdout == odd


def test_users_have_their_home_groups_and_limits(node: Node) -> None:
    script = "id -un; id -gn; pwd; echo $HOME $USER; ulimit -Sn"
    assert node.sh(script, user="alice") == "alice\nalice\n/home/alice\n/home/alice alice\n1024\n"
    assert node.sh("echo $A; pwd", env={"A": "1"}) == "1\n/root\n"
    with pytest.raises(NodeError, match="no user 'carol'"):
        node.run(["true"], user="carol")


def test_put_and_get(node: Node, tmp_path: Path) -> None:
    node.put("/srv/sub folder/file", b"\x00\xff", mode=0o750, owner="bob")
    assert node.get("/srv/sub folder/file") == b"\x00\xff"
    assert node.sh("stat -c '%a %U %G' '/srv/sub folder/file'") == "750 bob bob\n"
    local = tmp_path / "local"
    local.write_text("text")
    node.put("/srv/local", local)
    assert node.get("/srv/local") == b"text"


def test_spawn_signal_and_kill(node: Node) -> None:
    with node.spawn(
        ["bash", "-c", "trap 'echo caught; exit 5' USR1; echo up; while :; do read; done"]
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        node.signal(process, signal.SIGUSR1)
        assert process.stdout.readline() == b"caught\n"
        assert process.wait(30) == 5
    with node.spawn(["sleep", "4712"], user="bob") as process:
        node.wait_for("pgrep -u bob -fx 'sleep 4712'")
        process.kill()
    node.wait_for("! pgrep -fx 'sleep 4712'")


def test_login_is_a_session_of_logind(node: Node) -> None:
    with node.login("alice") as session:
        assert session.run("echo $XDG_RUNTIME_DIR") == "/run/user/1000\n"
        assert node.sh(f"loginctl show-session {session.id} -p Name --value") == "alice\n"
        assert session.run("systemctl --user is-system-running --wait") == "running\n"
        with pytest.raises(NodeError, match="exit status 4"):
            session.run("exit_status() { return 4; }; exit_status")
    node.wait_for("! loginctl --no-legend list-users | grep alice")


def test_reboot_keeps_the_disk_and_changes_the_boot(own: Node) -> None:
    own.put("/srv/kept", b"kept")
    own.put("/run/lost", b"lost")
    own.run(["systemd-cat", "echo", "before the reboot"])
    boot_file = "/proc/sys/kernel/random/boot_id"
    before = own.get(boot_file)
    own.reboot()
    assert own.get(boot_file) != before
    assert own.get("/srv/kept") == b"kept"
    assert own.run(["test", "-e", "/run/lost"], check=False).returncode == 1
    assert "before the reboot" in own.journal()
    assert len(own.run(["journalctl", "--list-boots", "--quiet", "--no-pager"]).stdout.splitlines()) >= 2


def test_the_daemon_sees_the_boot_of_the_node(node: Node) -> None:
    # Its ProtectProc= gives it a /proc of its own.
    boot_file = "/proc/sys/kernel/random/boot_id"
    pid = node.sh("systemctl start sysjobsd && systemctl show -P MainPID sysjobsd").strip()
    assert node.run(["nsenter", "-t", pid, "-m", "cat", boot_file]).stdout == node.get(boot_file)


def test_power_cut_and_clean_end(own: Node) -> None:
    own.put("/srv/kept", b"kept")
    own.kill()
    with pytest.raises(NodeError, match="is off"):
        own.run(["true"])
    own.boot()
    assert own.get("/srv/kept") == b"kept"
    own.power_off()
    own.boot()
    assert own.run(["systemctl", "is-system-running"]).stdout == b"running\n"


def test_the_end_leaves_nothing(suite: str, node: Node) -> None:
    with Node(suite) as own:
        name, folder, cgroup = own.name, own.state.folder, Cgroup.of_node(own.name).path
        inside = own.spawn(["sleep", "4713"])
        own.wait_for("pgrep -fx 'sleep 4713'")
        assert name in _mentions(name)
    inside.communicate(timeout=30)
    assert inside.returncode == -signal.SIGKILL
    assert not folder.exists()
    assert not cgroup.exists()
    assert _mentions(name) == ""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_program_that_is_stopped_leaves_nothing(suite: str, node: Node, signum: signal.Signals) -> None:
    # The node's command ignores a Ctrl-C here, as one may.
    script = "trap '' INT; cat /proc/sys/kernel/hostname; exec sleep 4714"
    command = [sys.executable, str(PROGRAM), "run", "--suite", suite, "--", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as program:
        assert program.stdout is not None
        name = program.stdout.readline().decode().strip()
        try:
            assert name in {state.name for state in NodeState.existing()}
            program.send_signal(signum)
            if signum == signal.SIGINT:
                # Ctrl-C is the command's to handle; what ends the program then is something stronger.
                program.send_signal(signal.SIGTERM)
            program.wait(60)
        finally:
            program.kill()
    if signum == signal.SIGKILL:
        # Nobody could clean up: the kernel ends the node, and the next one removes its folder.
        wait_until(lambda: not _mentions(name))
        with Node(suite):
            pass
    assert name not in {state.name for state in NodeState.existing()}
    assert not Cgroup.of_node(name).path.exists()
    assert _mentions(name) == ""


def test_program_passes_input_output_and_status(suite: str, node: Node) -> None:
    command = [sys.executable, str(PROGRAM), "run", "--suite", suite, "--user", "alice", "--"]
    done = subprocess.run(
        [*command, "sh", "-c", "cat; id -un; exit 7"], input=b"in\n", capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, b"in\nalice\n", b"")


def test_program_keeps_enters_and_removes(suite: str, node: Node) -> None:
    def program(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, PROGRAM, *arguments], capture_output=True, check=True, text=True
        )
        return done.stdout + done.stderr

    told = program("run", "--suite", suite, "--keep", "--", "touch", "/srv/kept")
    name = told.split()[2]
    assert f"packaging/node remove {name}" in told
    assert f"{name} kept" in program("list")
    assert program("enter", name, "--", "ls", "/srv") == "kept\n"
    program("remove", name)
    assert name not in program("list")
    assert _mentions(name) == ""


def _mentions(name: str) -> str:
    """This machine's mounts and processes that have to do with a node."""
    found = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if name in line]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                # Over, but not yet waited for by this machine's init.
                continue
            words = (process / "cmdline").read_bytes() + os.fsencode((process / "cgroup").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name.encode() in words:
            found.append(f"{process.name} {words!r}")
    return "\n".join(found)
