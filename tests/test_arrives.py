"""What was submitted arrives: arguments, texts for bash, directory, variables, umask, limits and group.

The jobs run a probe that prints what it was given, as the kernel shows it in /proc.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.node import Node, NodeError
from tests.queue_on_node import QueueOnNode

PROBE = "/usr/local/bin/probe"
PROBE_TEXT = rb"""#!/usr/bin/python3 -IS
import json, os, resource
def read(name):
    with open(f"/proc/self/{name}", "rb") as file:
        return [entry.decode("latin-1") for entry in file.read().split(b"\0")[:-1]]
print(json.dumps({
    "arguments": read("cmdline")[3:],
    "environ": read("environ"),
    "workdir": os.getcwdb().decode("latin-1"),
    "umask": f"{os.umask(0):04o}",
    "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "stack": resource.getrlimit(resource.RLIMIT_STACK)[0],
    "gid": os.getgid(),
    "groups": sorted(os.getgroups()),
    "stdin": os.readlink("/proc/self/fd/0"),
    "files": sorted(os.listdir("/proc/self/fd"))[:-1],
}))
"""

EVERYTHING = bytes(range(1, 256))
STRINGS = [
    b"", b" ", b"  two  spaces ", b"a\nb\n", b"\n", b"\ttab\t", b"'", b'"', b"'\"'\\''",
    b"$HOME ${HOME} $$ $(id) `id`", b"%h %n %% %i", b"; exit 9", b"a && b || c | d & e > f < g",
    b"\\", b"\\n\\x41\\", b"*", b"?? [a-z] {a,b} ~ !! #", b"-x", b"--", b"-", b"--help", b"=", b"A=B",
    b"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", b"\xff\xfe\x80", b"\xe2\x82", b"\x1b[31m\r\x07\x7f",
    b"\x81\x82\x83\x84\x85\x86\x87\x88", EVERYTHING, EVERYTHING[::-1], b"x" * 131_071,
]  # fmt: skip
ODD_NAMES = {
    b"": b"nameless", b"A.B": b"1", b"a-b": b"2", b"1A": b"3", b"a b": b"4", b"-x": b"5", b"'": b"6",
    b"\xff": b"\xfe", b"\xc3\xa9": b"\xc3\xa9", b"BASH_FUNC_f%%": b"() {  echo in f; }",
}  # fmt: skip
PLAIN = {b"HOME": b"/home/alice", b"PATH": b"/usr/bin:/bin", b"PWD": b"/home/alice", b"USER": b"mine"}
SESSION = (
    b"XDG_RUNTIME_DIR XDG_SESSION_ID XDG_SESSION_TYPE XDG_SEAT XDG_VTNR DBUS_SESSION_BUS_ADDRESS "
    b"SSH_AUTH_SOCK SSH_AGENT_PID SSH_CONNECTION SSH_CLIENT SSH_TTY JOURNAL_STREAM NOTIFY_SOCKET LISTEN_FDS "
    b"LISTEN_PID WATCHDOG_USEC INVOCATION_ID"
).split()
DIRECTORIES = [
    b"with spaces ", b"'quotes\" $HOME %h;", b"new\nline", b"\xff\xfe", b"\xc3\xa9", b"-x",
    EVERYTHING.replace(b"/", b""),
]  # fmt: skip


class Seen:
    """What a probe printed."""

    def __init__(self, output: bytes) -> None:
        self.values: dict[str, Any] = json.loads(output)
        entries = [entry.encode("latin-1").partition(b"=") for entry in self.values["environ"]]
        self.environ = {name: value for name, _, value in entries}
        self.arguments = [argument.encode("latin-1") for argument in self.values["arguments"]]
        self.workdir = self.values["workdir"].encode("latin-1")

    def inherited(self) -> dict[bytes, bytes]:
        """The variables that say nothing of the job or of its unit."""
        own = (b"SYSJOBS_", b"SKYPILOT_", b"MEMORY_PRESSURE_", b"INVOCATION_ID", b"PYTHONUNBUFFERED")
        return {name: value for name, value in self.environ.items() if not name.startswith(own)}


@pytest.fixture(scope="module")
def queue(node: Node) -> QueueOnNode:
    node.put(PROBE, PROBE_TEXT, mode=0o755)
    return QueueOnNode(node)


def submit_with(
    queue: QueueOnNode, environ: dict[bytes, bytes], *options: bytes, before: Sequence[bytes] = ()
) -> int:
    """Submit a probe from a process that has these variables and no other."""
    entries = [name + b"=" + value for name, value in environ.items()]
    command = [*before, b"/usr/bin/sysjobs", b"submit", b"--parsable", *options, PROBE.encode()]
    done = queue.node.run(["env", "-i", "--", *entries, *command], user="alice")
    return int(done.stdout)


def seen(queue: QueueOnNode, job: int) -> Seen:
    assert queue.wait(job) == 0, queue.show(job)
    return Seen(queue.log(job))


def test_arguments(queue: QueueOnNode) -> None:
    assert Seen(queue.output("--", PROBE, *STRINGS)).arguments == STRINGS


def test_a_text_for_bash(queue: QueueOnNode) -> None:
    quoted = b" ".join(b"'" + text.replace(b"'", rb"'\''") + b"'" for text in STRINGS[:-1])
    text = (
        b"# A comment\nprintf '%s\\0' "
        + quoted
        + b' "$HOME" $((1+1)) "${x:-d}"; : ; '
        + b"echo 'a\nb' | cat;"
    )
    expected = b"".join(string + b"\0" for string in [*STRINGS[:-1], b"/home/alice", b"2", b"d"]) + b"a\nb\n"
    assert queue.output("-c", text) == expected
    job = queue.submit("--setup", text, "--", "true")
    assert queue.wait(job) == 0
    assert queue.log(job, "--setup") == expected


def test_too_long_an_argument_is_refused_at_submit(queue: QueueOnNode) -> None:
    node = queue.node
    text = "Client().submit(['true', 'x' * 200_000])"
    code = f"from sysjobs.client import Client; {text}"
    with pytest.raises(NodeError, match=r"'x+…' has 200,000 bytes; the kernel takes at most 131,071"):
        node.run(["/usr/bin/python3", "-c", code], user="alice")


def test_the_directory(queue: QueueOnNode) -> None:
    paths = [b"/home/alice/arrives/" + name for name in DIRECTORIES]
    script = """
        mkdir -p -- "$@"
        for path; do
            cd -- "$path"
            jobs+=($(sysjobs submit --parsable probe) $(sysjobs submit --parsable -C "../${path##*/}" probe))
        done
        sysjobs wait "${jobs[@]}" >&2
        for job in "${jobs[@]}"; do sysjobs logs "$job"; done
    """
    output = queue.node.run(["bash", "-euc", script, "bash", *paths], user="alice").stdout
    found = [Seen(line).workdir for line in output.splitlines()]
    assert found == [path for path in paths for _ in range(2)]


def test_variables(queue: QueueOnNode) -> None:
    """Exactly these: none of the daemon's, none of the start script's."""
    strings = {b"V%d" % number: value[:100_000] for number, value in enumerate(STRINGS)}
    shells = {b"IFS": b":/", b"PS4": b"$(id)", b"UID": b"0", b"SHELLOPTS": b"xtrace", b"OPTIND": b"3"}
    environ = PLAIN | strings | ODD_NAMES | shells | {b"LANG": b"C", b"LC_ALL": b"C.UTF-8"}
    found = seen(queue, submit_with(queue, environ))
    assert found.inherited() == environ


def test_variables_by_option_and_file(queue: QueueOnNode) -> None:
    queue.node.put("/home/alice/vars", b"# these\nF1=a b\nF2=' x '\nBOTH=file\n")
    options = [
        b"--env=A=1=2",
        b"--env=E=",
        b"--env=X=$HOME\xff\n",
        b"--env=HOME",
        b"--env-file=/home/alice/vars",
    ]
    found = seen(queue, submit_with(queue, PLAIN, *options, b"--env=BOTH=option", b"--env=USER=else"))
    given = {b"A": b"1=2", b"E": b"", b"X": b"$HOME\xff\n", b"F1": b"a b", b"F2": b" x ", b"BOTH": b"option"}
    assert found.inherited() == PLAIN | given | {b"USER": b"else"}


def test_a_function_of_bash(queue: QueueOnNode) -> None:
    script = "f() { echo in $1; }; export -f f; sysjobs submit --parsable -c 'f x; bash -c \"f y\"'"
    job = int(queue.node.sh(script, user="alice"))
    assert queue.wait(job) == 0
    assert queue.log(job) == b"in x\nin y\n"


def test_5000_variables(queue: QueueOnNode) -> None:
    script = "for i in {1..5000}; do export V_$i=value$i; done; exec sysjobs submit --parsable probe"
    found = seen(queue, int(queue.node.sh(script, user="alice")))
    assert {f"V_{number}".encode(): f"value{number}".encode() for number in range(1, 5001)}.items() <= (
        found.environ.items()
    )


def test_a_clean_environment(queue: QueueOnNode) -> None:
    account = {b"HOME": b"/home/alice", b"USER": b"alice", b"LOGNAME": b"alice", b"SHELL": b"/bin/bash"}
    found = seen(queue, submit_with(queue, PLAIN | {b"SECRET": b"x"}, b"--export=none", b"--env=GIVEN=1"))
    inherited = found.inherited()
    assert inherited.pop(b"PATH").endswith(b"/bin")
    assert inherited == account | {
        b"PWD": b"/home/alice",
        b"LANG": b"C.UTF-8",
        b"GIVEN": b"1",
    }


def test_what_a_job_is_told(queue: QueueOnNode) -> None:
    environ = PLAIN | {b"SYSJOBS_X": b"1", b"SKYPILOT_X": b"1"}
    job = submit_with(queue, environ, b"--name=n m", b"--cpus=0.25", b"--memory=1M")
    found = seen(queue, job).environ
    number = str(job).encode()
    submitted = queue.node.sh(f"date -d '{queue.show(job)['submitted_at']}' +%s").strip().encode()
    told = {name: value for name, value in found.items() if name.startswith((b"SYSJOBS_", b"SKYPILOT_"))}
    assert told == {
        b"SYSJOBS_JOB_ID": number,
        b"SYSJOBS_JOB_NAME": b"n m",
        b"SYSJOBS_ATTEMPT": b"1",
        b"SYSJOBS_CPUS": b"0.25",
        b"SYSJOBS_MEMORY": b"1048576",
        b"SYSJOBS_GPUS": b"0",
        b"SKYPILOT_INTERNAL_JOB_ID": number,
        b"SKYPILOT_TASK_ID": b"sysjobs-" + submitted + b"_n m_" + number,
        b"SKYPILOT_NODE_RANK": b"0",
        b"SKYPILOT_NODE_IPS": b"127.0.0.1",
        b"SKYPILOT_NUM_NODES": b"1",
        b"SKYPILOT_NUM_GPUS_PER_NODE": b"0",
    }
    assert found[b"PYTHONUNBUFFERED"] == b"1"


def test_a_session_is_not_inherited(queue: QueueOnNode) -> None:
    found = seen(queue, submit_with(queue, PLAIN | dict.fromkeys(SESSION, b"theirs")))
    assert found.inherited() == PLAIN
    assert (
        found.environ[b"INVOCATION_ID"].decode()
        == queue.show(int(found.environ[b"SYSJOBS_JOB_ID"]))["invocation_id"]
    )


def test_a_job_of_a_job_has_its_own(queue: QueueOnNode) -> None:
    script = "export CUDA_VISIBLE_DEVICES=7 SYSJOBS_X=1; exec sysjobs submit --parsable probe"
    child = int(queue.output("--name", "parent", "--memory", "2M", "-c", script))
    found = seen(queue, child)
    assert found.environ[b"SYSJOBS_JOB_ID"] == str(child).encode()
    assert found.environ[b"SYSJOBS_MEMORY"] == b""
    assert {b"CUDA_VISIBLE_DEVICES", b"SYSJOBS_X"} & found.environ.keys() == set()


@pytest.mark.parametrize("umask", ["0000", "0027", "0077", "0777"])
def test_umask_and_limits(queue: QueueOnNode, umask: str) -> None:
    limits = "ulimit -Sn 333; ulimit -Sc 2048; ulimit -Ss 4096"
    script = f"umask {umask}; {limits}; exec sysjobs submit --parsable probe"
    found = seen(queue, int(queue.node.sh(script, user="alice"))).values
    assert found["umask"] == umask
    assert (found["nofile"], found["core"], found["stack"]) == (333, 2048 << 10, 4096 << 10)


def test_a_limit_that_can_not_be_had_is_told_in_the_log(queue: QueueOnNode) -> None:
    drop_in = "/run/systemd/system/sysjobs-.service.d/limit.conf"
    queue.node.put(drop_in, b"[Service]\nLimitNOFILE=200\n")
    try:
        queue.node.run(["systemctl", "daemon-reload"])
        output = queue.output("-c", "ulimit -Sn")
    finally:
        queue.node.sh(f"rm {drop_in} && systemctl daemon-reload")
    assert output == b"sysjobs: the soft limit nofile could not be set to 1024\n200\n"


def test_the_primary_group(queue: QueueOnNode) -> None:
    node = queue.node
    node.sh("getent group crew >/dev/null || groupadd --gid 5000 crew; usermod --append --groups crew alice")
    plain = queue.submit(PROBE)
    switched = int(node.run(["sg", "crew", "sysjobs submit --parsable probe"], user="alice").stdout)
    assert [seen(queue, job).values["gid"] for job in (plain, switched)] == [1000, 5000]


def test_streams(queue: QueueOnNode) -> None:
    found = Seen(queue.output(PROBE)).values
    assert found["stdin"] == "/dev/null"
    assert found["files"] == ["0", "1", "2"]
    assert queue.output("-c", "echo 1; echo 2 >&2; echo 3; cat; echo 4 >&2") == b"1\n2\n3\n4\n"
