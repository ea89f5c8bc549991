"""Bad input: a clear message that names the value, an exit code, and nothing is left behind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.node import Node
from tests.queue_on_node import QueueOnNode

LONG = "x" * 201
TOO_MUCH = r"is more than this node has.* It has \d+ CPUs and [\d.]+[GT] of memory"

# Arguments as a shell has them, exit code, what is said. {theirs} is a job of somebody else.
REFUSED: list[tuple[str, int, str]] = [
    ("submit", 2, "no COMMAND"),
    ("submit ''", 2, "command is empty"),
    ("submit -c x y", 2, "both -c and a COMMAND"),
    ("submit --no-such-option true", 2, "--no-such-option"),
    ("submit --export some true", 2, "'some' is not one of 'all', 'none'"),
    ("submit --parsable --json true", 2, "exclude"),
    ("submit --cpus -1 true", 2, "--cpus '-1' is not a number of CPUs"),
    ("submit --cpus many true", 2, "--cpus 'many'"),
    ("submit --cpus nan true", 2, "--cpus 'nan'"),
    ("submit --cpus inf true", 2, "--cpus 'inf'"),
    ("submit --cpus 1e300 true", 2, "--cpus '1e300'"),
    ("submit --cpus '' true", 2, "--cpus ''"),
    ("submit --cpus 1e-9 true", 2, "--cpus '0.000000001'"),
    ("submit --cpus 0.00001 true", 2, "--cpus '0.00001'"),
    ("submit --cpus 100000 true", 1, f"--cpus 100000 {TOO_MUCH}"),
    ("submit --memory 4X true", 2, "--memory '4X' is not an amount of memory.* 512M or 4G"),
    ("submit --memory -4G true", 2, "--memory '-4G'"),
    ("submit --memory 0 true", 2, "--memory '0'"),
    ("submit --memory 4 true", 2, "--memory '4' is 4 bytes, too little"),
    ("submit --memory '' true", 2, "--memory ''"),
    ("submit --memory 1000T true", 1, f"--memory 1000T {TOO_MUCH}"),
    ("submit --memory 99999999999999999999P true", 2, "--memory '9+P'"),
    ("submit --time soon true", 2, "--time 'soon' is not a duration"),
    ("submit --time 0 true", 2, "--time 0 leaves the job no time"),
    ("submit --time -5 true", 2, "--time '-5'"),
    ("submit --time 99999999999999h true", 2, "--time '9+h'"),
    ("submit --time 1:99 true", 2, "--time '1:99'"),
    ("submit --grace ever true", 2, "--grace 'ever'"),
    ("submit --name '' true", 2, "--name ''"),
    ("submit --name '  ' true", 2, "--name '  '"),
    (f"submit --name {LONG} true", 2, "--name 'x+"),
    ("submit --name $'a\\nb' true", 2, r"--name 'a\\nb'"),
    ("submit --name $'\\e[31m' true", 2, r"--name '\\x1b\[31m'"),
    ("submit --name $'\\xff' true", 2, r"--name '\\(xff|udcff)'"),
    ("submit --workdir /nowhere/at/all true", 2, "/nowhere/at/all: No such file or directory"),
    ("submit --workdir /etc/passwd true", 2, "/etc/passwd: Not a directory"),
    ("submit --workdir /root true", 2, "/root: Permission denied"),
    ("submit --workdir /$(printf %05000d 1) true", 2, "01: File name too long"),
    ("submit --env =x true", 2, "--env '=x' has no name"),
    ("submit --env NOT_SET_AT_ALL true", 2, "--env NOT_SET_AT_ALL: there is no such variable"),
    ("submit --env $'\\xff=x' true", 2, "is not UTF-8"),
    ("submit --env-file /nowhere/vars true", 2, "--env-file /nowhere/vars can't be read: No such file"),
    ("submit --env-file /etc/shadow true", 2, "--env-file /etc/shadow can't be read: Permission denied"),
    ("submit --env-file /etc true", 2, "--env-file /etc can't be read: Is a directory"),
    ("submit --env-file /etc/hosts true", 2, "/etc/hosts:1: there is no ="),
    ("submit --env-file /dev/zero true", 2, "--env-file /dev/zero is too big"),
    ("submit --setup $(printf %0131071d 1) true", 1, "131,327 bytes; the kernel takes at most 131,071"),
    ("show 999999999", 1, "no job 999999999"),
    ("show 99999999999999999999999", 1, "9{23}"),
    ("show 1-2-3", 1, "is called 1-2-3"),
    ("show @~99999", 1, "You have no job @~99999"),
    ("show @nonsense", 2, "'@nonsense' is not a job"),
    ("show ''", 2, "'' is not a job"),
    ("show -- -5", 1, "is called -5"),
    ("logs 999999999", 102, "no job 999999999"),
    ("logs -f 999999999", 102, "no job 999999999"),
    ("logs {theirs}", 1, "The log of job {theirs} belongs to bob"),
    ("logs -f {theirs}", 1, "The log of job {theirs} belongs to bob"),
    ("logs --tail -1 {theirs}", 2, "--tail"),
    ("logs --tail ten {theirs}", 2, "'ten' is not a valid integer"),
    ("logs --status -f {theirs}", 2, "--status prints no log"),
    ("cancel", 2, "Name jobs, or give --all"),
    ("cancel --all {theirs}", 2, "both"),
    ("cancel --all-users {theirs}", 2, "--all-users goes with --all"),
    ("cancel 999999999", 1, "no job 999999999"),
    ("cancel 1-1000001", 2, "1-1000001 has more than 1,000,000 ids"),
    ("cancel 1-99999999999999999999", 1, "is called 1-9+"),
    ("cancel 9-3", 2, "'9-3' is not a range"),
    ("cancel --grace x {theirs}", 2, "--grace 'x'"),
    ("cancel --reason $'a\\nb' {theirs}", 2, "reason .* control characters"),
    ("cancel --reason $(printf %01001d 1) {theirs}", 2, "at most 1000 characters"),
    ("wait", 2, "ID"),
    ("wait 999999999", 102, "no job 999999999"),
    ("wait --timeout soon {theirs}", 2, "--timeout 'soon'"),
    ("queue --status odd", 2, "'odd' is not one of"),
    ("queue --limit -1", 2, "--limit"),
    ("queue --limit 1e3", 2, "'1e3' is not a valid integer"),
    ("queue 1-1000001", 2, "1-1000001 has more than 1,000,000 ids"),
    ("queue 999999999", 1, "no job 999999999"),
    ("no-such-command", 2, "no-such-command"),
    ("--socket /nowhere/socket queue", 3, "sysjobsd isn't running: /nowhere/socket: No such file"),
    ("--socket /etc/passwd queue", 3, "may not use sysjobs here: /etc/passwd: Permission denied"),
    ("--socket /run/systemd/private queue", 3, "may not use sysjobs here: /run/systemd/private: Permission"),
    ("--socket /run/systemd/journal/socket queue", 3, "What answers at /run/systemd/journal/socket is not"),
    ("--socket /$(printf %0200d 1) queue", 3, "can't be used as the daemon's socket"),
]  # fmt: skip


@pytest.fixture
def queue(node: Node) -> QueueOnNode:
    return QueueOnNode(node)


@pytest.fixture(scope="module")
def theirs(node: Node) -> Iterator[int]:
    """A running job of another user."""
    bob = QueueOnNode(node, "bob")
    job = bob.submit("--name", "bobs", "--", "sleep", "infinity")
    node.wait_for(f"sysjobs show {job} | grep -q RUNNING")
    yield job
    bob.run("cancel", str(job))
    bob.wait(job)


def left(node: Node) -> str:
    """All that a submit could leave: rows, units, files; and the daemon that was there before."""
    return node.sh(
        "sysjobs queue --all-users --limit 0 --json | grep -o '\"id\": [0-9]*'\n"
        "systemctl list-units --all --no-legend --plain 'sysjobs-[0-9]*'\n"
        "find /run/sysjobs /var/log/sysjobs ~alice\n"
        "systemctl show -P MainPID -P NRestarts sysjobsd\n"
    )


@pytest.fixture
def nothing_is_left(node: Node, theirs: int) -> Iterator[None]:
    before = left(node)
    yield
    assert left(node) == before


@pytest.mark.usefixtures("nothing_is_left")
def test_refused(queue: QueueOnNode, theirs: int) -> None:
    """One line says what went wrong with which value, one what to do; nothing else is printed."""
    lines = [words.replace("{theirs}", str(theirs)) for words, _, _ in REFUSED]
    script = "".join(
        f'sysjobs {words} >out 2>err; echo "$? $(wc -c <out)"; cat err; echo ----\n' for words in lines
    )
    script = f"cd $(mktemp -d)\n{script}"
    output = queue.node.run(["bash", "-c", script], user=queue.user).stdout.decode()
    answers = output.split("----\n")[:-1]
    assert len(answers) == len(REFUSED)
    wrong = []
    for words, answer, (_, code, says) in zip(lines, answers, REFUSED, strict=True):
        message = rf"{code} 0\nsysjobs: [^\n]+\n  [^\n]+\n"
        said = re.search(says.replace("{theirs}", str(theirs)), answer.replace("\n", " "), re.IGNORECASE)
        if not re.fullmatch(message, answer) or not said or "Traceback" in answer:
            wrong.append(f"{words}\n{answer}")
    assert not wrong, "\n".join(wrong)


def test_a_job_of_somebody_else(queue: QueueOnNode, theirs: int) -> None:
    """Its command, log and variables are theirs; that it is there is no secret."""
    done = queue.run("cancel", str(theirs), check=False)
    assert done.returncode == 1
    assert done.stdout.decode() == f"Job {theirs} (bobs) belongs to somebody else; it was left alone.\n"
    shown = queue.show(theirs)
    assert (shown["status"], shown["user"]) == ("RUNNING", "bob")
    assert (shown["log"], shown["spec"]) == (None, None)
    assert b"bobs" not in queue.run("queue").stdout
    assert queue.run("cancel", "--all").stdout == b"There is nothing to cancel.\n"
    assert queue.run("cancel", f"1-{theirs}", check=False).returncode in (0, 1)
    assert queue.show(theirs)["status"] == "RUNNING"


@pytest.mark.usefixtures("nothing_is_left")
def test_an_unbounded_limit(queue: QueueOnNode) -> None:
    queue.run("queue", "--limit", "9" * 30)


def test_a_daemon_that_is_not_running(queue: QueueOnNode, theirs: int) -> None:
    node = queue.node
    node.run(["systemctl", "stop", "sysjobsd.socket", "sysjobsd.service"])
    try:
        for command in ("submit true", f"wait {theirs}", f"cancel {theirs}"):
            done = queue.run(*command.split(), check=False)
            assert (done.returncode, done.stdout) == (3, b"")
            message, hint = done.stderr.decode().splitlines()
            assert message.startswith("sysjobs: sysjobsd isn't running: /run/sysjobs/io.sysjobs: ")
            assert hint.startswith("  Start it, systemctl start sysjobsd.socket, or check --socket")
    finally:
        node.run(["systemctl", "start", "sysjobsd.socket"])
    assert queue.run("queue").returncode == 0
    assert queue.show(theirs)["status"] == "RUNNING"


def test_a_socket_that_is_no_daemon(queue: QueueOnNode) -> None:
    script = "rm -f /tmp/web; printf 'HTTP/1.1 400 Bad Request\r\n\r\n' | nc -lU /tmp/web"
    with queue.node.spawn(["sh", "-c", script], user="alice") as web:
        queue.node.wait_for("[ -S /tmp/web ]")
        done = queue.run("--socket", "/tmp/web", "submit", "true", check=False)
        web.communicate(timeout=30)
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.decode() == (
        "sysjobs: What answers at /tmp/web is not sysjobsd.\n  Check --socket and SYSJOBS_SOCKET.\n"
    )


# What no command sends, and whoever can write to a socket may.

CALL = """
import json, socket, sys
for line in sys.stdin:
    data, times, end = eval(line)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(30)
        sock.connect("/run/sysjobs/io.sysjobs")
        answer = b""
        try:
            for _ in range(times):
                sock.sendall(data)
            sock.sendall(end)
        except ConnectionError:
            pass
        try:
            while not answer.endswith(b"\\0") and (part := sock.recv(65536)):
                answer += part
        except ConnectionError:
            pass
    print(json.dumps(answer.decode()))
"""


def method(name: str, **parameters: object) -> bytes:
    return json.dumps({"method": name, "parameters": parameters}).encode()


def submits(context: dict[str, object] | None = None, key: str | None = None, **job: object) -> bytes:
    given = {"job": {"command": ["true"], **job}, "context": context or {}}
    return method("io.sysjobs.Submit", **given, **({} if key is None else {"key": key}))


CLOSED = ""
WRONG = "org.varlink.service.InvalidParameter"
CALLS: list[tuple[bytes, str, str]] = [
    (b"", CLOSED, ""),
    (b"GET / HTTP/1.1\r\n\r\n", CLOSED, ""),
    (b"\xff\xfe", CLOSED, ""),
    (b"null", CLOSED, ""),
    (b"[]", CLOSED, ""),
    (b"{}", CLOSED, ""),
    (b"[" * 100_000, CLOSED, ""),
    (b'{"method": "io.sysjobs.List", "parameters": []}', CLOSED, ""),
    (b'{"method": "io.sysjobs.List", "parameters": {"limit": NaN}}', CLOSED, ""),
    (method("io.sysjobs.Nonsense"), "org.varlink.service.MethodNotFound", "io.sysjobs.Nonsense"),
    (method("org.example.Other"), "org.varlink.service.InterfaceNotFound", "org.example"),
    (method("io.sysjobs.List", nonsense=1), WRONG, "nonsense"),
    (method("io.sysjobs.List", limit="all"), WRONG, "limit"),
    (method("io.sysjobs.List", ids=[1]), WRONG, "ids"),
    (method("io.sysjobs.Submit"), "io.sysjobs.Refused", "bad-command"),
    (submits(command="true"), WRONG, "job.command"),
    (submits(command=[1]), WRONG, "job.command"),
    (submits(command=[{"b64": "!!"}]), WRONG, "job.command"),
    (submits(command=["\ud800"]), WRONG, "job.command"),
    (submits(nonsense=1), WRONG, "job.nonsense"),
    (submits(cpus=True), WRONG, "job.cpus"),
    (submits(cpus=1e308), "io.sysjobs.Refused", "bad-cpus"),
    (submits(time=10**40), "io.sysjobs.Refused", "bad-duration"),
    (submits(command=["tr\0ue"]), "io.sysjobs.Refused", "nul"),
    (submits(command=["true", "a\0b"]), "io.sysjobs.Refused", "nul"),
    (submits(env={"A": "\0"}), "io.sysjobs.Refused", "nul"),
    (submits(env={"\0": "A"}), "io.sysjobs.Refused", "nul"),
    (submits(workdir="/\0"), "io.sysjobs.Refused", "nul"),
    (submits(setup="\0"), "io.sysjobs.Refused", "nul"),
    (submits(name="a\0b"), "io.sysjobs.Refused", "bad-name"),
    (submits(name="\ud800"), "io.sysjobs.Refused", "bad-name"),
    (submits(key="\ud800"), "io.sysjobs.Refused", "bad-key"),
    (submits(workdir="relative"), "io.sysjobs.Refused", "bad-workdir"),
    (submits(env={"A=B": "C"}), "io.sysjobs.Refused", "bad-env"),
    (submits({"environment": ["A"]}), "io.sysjobs.Refused", "bad-env"),
    (submits({"umask": 10**30}), "io.sysjobs.Refused", "bad-umask"),
    (submits({"limits": {"nofile": "many"}}), "io.sysjobs.Refused", "bad-limit"),
    (submits(command=["x" * 100_000] * 100), "io.sysjobs.Refused", "too-long"),
    (method("io.sysjobs.Cancel", ids=["1"] * 10_001), "io.sysjobs.Refused", "too-many"),
    (method("io.sysjobs.Show", id="9" * 1_000_000), "io.sysjobs.NotFound", "not-found"),
]


@pytest.mark.usefixtures("nothing_is_left")
def test_calls_that_make_no_sense(queue: QueueOnNode) -> None:
    answers = answers_to(queue, [(call, 1, b"\0") for call, _, _ in CALLS])
    wrong = []
    for (call, error, value), answer in zip(CALLS, answers, strict=True):
        found = json.loads(answer[:-1])["error"] if answer else CLOSED
        if found != error or f'"{value}"' not in f'{answer}""' or len(answer) > 1000:
            wrong.append((call[:100], answer[:300]))
    assert wrong == []


@pytest.mark.usefixtures("nothing_is_left")
def test_a_message_of_100_mb(queue: QueueOnNode) -> None:
    """With an end or without, it is refused before it is there."""
    megabyte = b"x" * 1_000_000
    for answer in answers_to(queue, [(megabyte, 100, b""), (megabyte, 100, b"\0")]):
        assert "The message is larger than 32 MiB." in answer
    peak = queue.node.sh("grep VmHWM /proc/$(systemctl show -P MainPID sysjobsd)/status").split()[1]
    assert int(peak) < 300_000


def answers_to(queue: QueueOnNode, calls: list[tuple[bytes, int, bytes]]) -> list[str]:
    """What the daemon answers to each, sent so many times and then ended so: '' where it hangs up."""
    given = "".join(f"{call!r}\n" for call in calls).encode()
    done = queue.node.run(["python3", "-c", CALL], user=queue.user, input=given)
    return [json.loads(line) for line in done.stdout.splitlines()]
