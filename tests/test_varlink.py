"""The Varlink interface, as others' clients use it: varlinkctl on Debian 13, a few lines of Python on 12."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import sysjobs
from tests.admin_on_node import Place, place
from tests.node import Node
from tests.raw_client import RawClient

ADDRESS = "unix:/run/sysjobs/io.sysjobs"
INTERFACE = Path(sysjobs.__file__).with_name("io.sysjobs.varlink").read_text()

TRUE = {"command": ["true"]}

# What a person would write who has no Varlink library.
LINES = """
import json, socket, sys

call = dict(method=sys.argv[1], parameters=json.loads(sys.argv[2]))
if sys.argv[3:]:
    call[sys.argv[3].removeprefix("--")] = True
connection = socket.socket(socket.AF_UNIX)
connection.connect("/run/sysjobs/io.sysjobs")
connection.sendall(json.dumps(call).encode() + b"\\0")
reply = {"continues": "oneway" not in call}
replies = connection.makefile("rb")
while reply.get("continues"):
    text = b""
    while not text.endswith(b"\\0"):
        text += replies.read(1)
    reply = json.loads(text[:-1])
    print(json.dumps(reply["parameters"]), flush=True)
    if "error" in reply:
        sys.exit(reply["error"])
"""


class Caller:
    """Calls methods of the daemon of a node."""

    def __init__(self, place: Place, suite: str) -> None:
        self.place = place
        self.suite = suite

    def call(self, method: str, parameters: Mapping[str, object], *flags: str) -> list[dict[str, Any]]:
        """All replies; an AssertionError with the error's name where that is the last one."""
        replies, error = self.try_call(method, parameters, *flags)
        assert error is None, (error, replies)
        return replies

    def try_call(
        self, method: str, parameters: Mapping[str, object], *flags: str
    ) -> tuple[list[dict[str, Any]], str | None]:
        """All replies, the parameters of an error last, and the error's name."""
        arguments = [method if method.count(".") else f"io.sysjobs.{method}", json.dumps(parameters)]
        if self.suite == "bookworm":
            command = ["python3", "-c", LINES, *arguments, *flags]
        else:
            command = ["varlinkctl", "call", "--json=short", *flags, ADDRESS, *arguments]
        done = self.place.node.run(command, user=self.place.user, check=False)
        # varlinkctl separates several replies as RFC 7464 has it.
        lines = done.stdout.decode().replace("\x1e", "").splitlines()
        replies = [json.loads(line) for line in lines if line]
        if done.returncode == 0:
            return replies, None
        error = re.search(r"([\w.]+)\n?$", done.stderr.decode())
        assert error, done.stderr
        return replies, error[1]


@pytest.fixture
def caller(node: Node, suite: str) -> Iterator[Caller]:
    with place(node) as alice:
        yield Caller(alice, suite)


def varlinkctl(node: Node, *arguments: str) -> str:
    return node.run(["varlinkctl", *arguments], user="alice").stdout.decode()


def for_varlinkctl(suite: str) -> bool:
    """Debian 12 has no varlinkctl; what is asked of it there is asked through LINES by other tests."""
    return suite != "bookworm"


def test_the_service_describes_itself(caller: Caller) -> None:
    (info,) = caller.call("org.varlink.service.GetInfo", {})
    assert info["vendor"] == "sysjobs"
    assert info["product"] == "sysjobsd"
    assert info["version"] == sysjobs.__version__
    assert info["url"].startswith("file:///usr/share/doc/sysjobs/")
    assert info["interfaces"] == ["io.sysjobs", "org.varlink.service"]
    (described,) = caller.call("org.varlink.service.GetInterfaceDescription", {"interface": "io.sysjobs"})
    assert described == {"description": INTERFACE}
    (described,) = caller.call(
        "org.varlink.service.GetInterfaceDescription", {"interface": "org.varlink.service"}
    )
    assert "method GetInterfaceDescription(interface: string)" in described["description"]


def test_what_varlinkctl_says_of_it(node: Node, suite: str) -> None:
    if not for_varlinkctl(suite):
        assert node.run(["sh", "-c", "command -v varlinkctl"], check=False).stdout == b""
        return
    info = varlinkctl(node, "info", ADDRESS)
    assert re.search(r"^ *Product: sysjobsd$", info, re.MULTILINE)
    assert re.search(rf"^ *Version: {re.escape(sysjobs.__version__)}$", info, re.MULTILINE)
    assert varlinkctl(node, "list-interfaces", ADDRESS).split() == ["io.sysjobs", "org.varlink.service"]
    file = "/usr/lib/python3/dist-packages/sysjobs/io.sysjobs.varlink"
    # Both are systemd's own rendering, which it makes of what it could parse.
    rendered = varlinkctl(node, "validate-idl", file)
    assert varlinkctl(node, "introspect", ADDRESS, "io.sysjobs") == rendered
    methods = set(varlinkctl(node, "list-methods", ADDRESS, "io.sysjobs").split())
    assert methods == {f"io.sysjobs.{name}" for name in re.findall(r"^method (\w+)", INTERFACE, re.MULTILINE)}


def test_a_jobs_life(caller: Caller) -> None:
    job = {
        "shell": "touch up; until [ -e go ]; do sleep 0.05; done; exit 3",
        "name": "by hand",
        "cpus": 0.25,
        "workdir": caller.place.path,
        "env": {"A": "b"},
    }
    context = {"environment": ["PATH=/usr/bin:/bin"], "umask": 0o27, "limits": {"nofile": 1000}}
    (submitted,) = caller.call("Submit", {"job": job, "context": context, "key": "a key of varlink's"})
    assert caller.call("Submit", {"job": job, "context": context, "key": "a key of varlink's"}) == [submitted]
    number = submitted["id"]
    caller.place.until("[ -e up ]")
    (listed,) = caller.call("List", {"ids": [str(number)]})
    (view,) = listed["jobs"]
    assert (view["id"], view["name"], view["user"], view["uid"]) == (number, "by hand", "alice", 1000)
    assert (view["status"], view["cpus"], view["attempt"]) == ("RUNNING", 0.25, 1)
    assert view["submitted_at"] <= view["started_at"]
    assert "exit_code" not in view
    (shown,) = caller.call("Show", {"id": "@"})
    assert shown["details"]["job"] == view
    assert shown["details"]["spec"]["shell"] == job["shell"]
    # Without `more` there is one reply, the state now; with it, one for each change until the end.
    assert caller.call("Watch", {"ids": [str(number)]}) == [{"job": view}]
    watching = caller.place.node.spawn(
        ["python3", "-c", LINES, "io.sysjobs.Watch", json.dumps({"ids": ["@"]}), "--more"], user="alice"
    )
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["job"]["status"] == "RUNNING"
    caller.place.shell("touch go")
    ended = json.loads(watching.stdout.readline())["job"]
    assert (ended["status"], ended["exit_code"], ended["reason_code"]) == ("FAILED", 3, "exit-code")
    watching.communicate(timeout=30)
    assert watching.returncode == 0
    assert caller.call("Watch", {"ids": [str(number)]}, "--more") == [{"job": ended}]
    (cancelled,) = caller.call("Cancel", {"ids": [str(number), "99999999"], "reason": "too late"})
    (result,) = cancelled["results"]
    assert (result["id"], result["outcome"], result["status"]) == (number, "ended", "FAILED")
    assert cancelled["missing"] == ["99999999"]


def test_one_reply_or_several(node: Node, caller: Caller) -> None:
    caller.place.submit("--cpus", node.sh("nproc").strip(), "sleep", "1000")
    jobs = caller.place.submit_many([TRUE] * 1200)
    ids = {"ids": [f"{jobs[0]}-{jobs[-1]}"]}
    # What fits into one reply are the newest; with `more` it's all, in parts.
    (newest,) = caller.call("List", ids)
    assert [view["id"] for view in newest["jobs"]] == jobs[-len(newest["jobs"]) :]
    assert newest["left_out"] == len(jobs) - len(newest["jobs"])
    parts = caller.call("List", ids, "--more")
    assert len(parts) > 1
    assert [view["id"] for part in parts for view in part["jobs"]] == jobs
    assert parts[-1]["left_out"] == 0
    *_, last = caller.call("List", {**ids, "limit": 700}, "--more")
    assert last["left_out"] == 500


def test_no_reply_if_none_is_wanted(caller: Caller) -> None:
    job = {"command": ["touch", "up"], "workdir": caller.place.path, "cpus": 0}
    assert caller.call("Submit", {"job": job}, "--oneway") == []
    caller.place.until("[ -e up ]")


REFUSALS: dict[str, tuple[str, dict[str, object], str, str, str]] = {
    "no such job": ("Show", {"id": "99999"}, "NotFound", "not-found", "There is no job 99999."),
    "no such jobs": (
        "Watch",
        {"ids": ["99998-99999"]},
        "NotFound",
        "not-found",
        "None of your jobs is in 99998-99999.",
    ),
    "nothing to run": ("Submit", {"job": {}}, "Refused", "bad-command", "A job has either"),
    "CPUs": ("Submit", {"job": TRUE | {"cpus": 4711}}, "Refused", "infeasible", "--cpus 4711 is more than"),
    "memory": ("Submit", {"job": TRUE | {"memory": "4X"}}, "Refused", "bad-memory", "--memory '4X' is not"),
    "nobody to cancel": ("Cancel", {}, "Refused", "no-ids", "Nothing to cancel was named."),
    "status": ("List", {"statuses": ["WELL"]}, "Refused", "bad-status", "There is no status WELL."),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_errors_have_code_message_and_hint(caller: Caller, case: str) -> None:
    method, parameters, name, code, message = REFUSALS[case]
    (error,), said = caller.try_call(method, parameters)
    assert said == f"io.sysjobs.{name}"
    assert error.keys() == {"code", "message", "hint"}
    assert error["code"] == code
    assert error["message"].startswith(message)
    assert error["hint"].endswith(".")


PROTOCOL: dict[str, tuple[str, dict[str, object], str, dict[str, str]]] = {
    "method": ("Nope", {}, "MethodNotFound", {"method": "io.sysjobs.Nope"}),
    "service's method": (
        "org.varlink.service.Nope",
        {},
        "MethodNotFound",
        {"method": "org.varlink.service.Nope"},
    ),
    "interface": ("io.nowhere.Nope", {}, "InterfaceNotFound", {"interface": "io.nowhere"}),
    "described interface": (
        "org.varlink.service.GetInterfaceDescription",
        {"interface": "io.nowhere"},
        "InterfaceNotFound",
        {"interface": "io.nowhere"},
    ),
    "missing": ("Show", {}, "InvalidParameter", {"parameter": "id"}),
    "wrong type": ("Show", {"id": 5}, "InvalidParameter", {"parameter": "id"}),
    "unknown": ("List", {"everything": True}, "InvalidParameter", {"parameter": "everything"}),
    "wrong type within": (
        "Submit",
        {"job": {"command": ["true", 5]}},
        "InvalidParameter",
        {"parameter": "job.command"},
    ),
    "unknown within": (
        "Submit",
        {"job": {"command": ["true"], "moons": "all of them"}},
        "InvalidParameter",
        {"parameter": "job.moons"},
    ),
    "mapping": ("Submit", {"job": ["true"]}, "InvalidParameter", {"parameter": "job"}),
}


@pytest.mark.parametrize("case", PROTOCOL)
def test_errors_of_the_protocol(caller: Caller, case: str) -> None:
    method, parameters, name, expected = PROTOCOL[case]
    (error,), said = caller.try_call(method, parameters)
    assert said == f"org.varlink.service.{name}"
    assert error == expected


def test_calls_that_come_together_are_answered_in_order(node: Node, caller: Caller) -> None:
    with RawClient(node) as client:
        names = ["a", "b", "c"]
        calls = [{"method": "io.sysjobs.Show", "parameters": {"id": f"no-{name}"}} for name in names]
        client.send(b"".join(json.dumps(call).encode() + b"\0" for call in calls))
        for name in names:
            reply = client.receive()
            assert reply is not None
            assert reply["error"] == "io.sysjobs.NotFound"
            assert f"no-{name}" in reply["parameters"]["message"]
        # An error is no reason to hang up.
        assert "parameters" in client.call("org.varlink.service.GetInfo")
