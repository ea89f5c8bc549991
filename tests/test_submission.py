"""A submit request as it comes over the wire: the job that it asks for, or why it is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.conditions import Conditions, Dependency, When
from sysjobs.errors import Refused
from sysjobs.jobs import Job, Status
from sysjobs.payload import NewJob, Payload
from sysjobs.protocol import Params, ProtocolError
from sysjobs.resources import Amount
from sysjobs.submission import CONTEXT_KEYS, MAX_STRING, SPEC_KEYS, Submitter, namesakes, new_job
from sysjobs.wire import to_wire
from tests.models import NOW, queued

ALICE = Submitter(1000, 1000, "alice")


def submit(spec: dict[str, Any], context: dict[str, Any] | None = None, key: str | None = None) -> NewJob:
    return new_job(
        ALICE,
        Params(spec, SPEC_KEYS, "job."),
        Params(context or {}, CONTEXT_KEYS, "context."),
        key,
        default_grace=30.0,
        now=NOW,
    )


def test_the_least_that_makes_a_job() -> None:
    assert submit({"command": ["/usr/bin/train"]}) == NewJob(
        uid=1000,
        gid=1000,
        user="alice",
        name="train",
        amount=Amount(500, 0),
        time_limit=None,
        grace=30.0,
        submitted_at=NOW,
        payload=Payload((b"/usr/bin/train",), workdir=b"/", environment=None),
        key=None,
    )


def test_all_that_can_be_said() -> None:
    spec = {
        "shell": "echo $A",
        "name": "zwölf",
        "cpus": 1.5,
        "memory": "4G",
        "time": "1h",
        "grace": 5,
        "setup": "make",
        "workdir": {"b64": "L/8="},
        "env": {"A": "1", "B": {"b64": "/w=="}},
    }
    context = {"environment": ["A=0", "E=", "=x"], "umask": 0o27, "limits": {"nofile": 1024, "core": -1}}
    assert submit(spec, context, "key") == NewJob(
        uid=1000,
        gid=1000,
        user="alice",
        name="zwölf",
        amount=Amount(1500, 4 << 30),
        time_limit=3600.0,
        grace=5.0,
        submitted_at=NOW,
        payload=Payload(
            command=(b"/bin/bash", b"-c", b"echo $A"),
            shell=b"echo $A",
            setup=b"make",
            workdir=b"/\xff",
            env=((b"A", b"1"), (b"B", b"\xff")),
            umask=0o27,
            limits={"nofile": 1024, "core": -1},
            environment=(b"A=0", b"E=", b"=x"),
        ),
        key="key",
    )


@given(st.lists(st.binary(max_size=9).map(lambda data: data.replace(b"\0", b"")), max_size=5))
def test_arguments_arrive_byte_for_byte(arguments: list[bytes]) -> None:
    new = submit({"command": ["x", *map(to_wire, arguments)]})
    assert new.payload.command == (b"x", *arguments)


NAMES = [
    ({"command": ["/srv/x/train.py", "--lr"]}, "train.py"),
    ({"command": ["train"]}, "train"),
    ({"command": ["./a b"]}, "a b"),
    ({"command": [{"b64": "/3g="}]}, "\ufffdx"),
    ({"command": ["a\nb"]}, "job"),
    ({"command": ["/"]}, "job"),
    ({"command": ["./7"]}, "job"),
    ({"command": ["x" * 300]}, "x" * 200),
    ({"command": ["python3", "-u", "src/train.py", "--lr"]}, "train.py"),
    ({"command": ["/venv/bin/python3.11", "-m", "http.server", "80"]}, "http.server"),
    ({"command": ["python3", "-c", "print()"]}, "python3"),
    ({"command": ["python3", "-m"]}, "python3"),
    ({"command": ["python3"]}, "python3"),
    ({"command": ["bash", "-x", "./prepare.sh"]}, "prepare.sh"),
    ({"command": ["./python-fit", "x"]}, "python-fit"),
    ({"shell": "python train.py | tee log"}, "train.py"),
    ({"shell": "cd /data && . venv/bin/activate; A=1 B=2 ./fit.sh x"}, "fit.sh"),
    ({"shell": "cd /data"}, "bash"),
    ({"shell": "set -e\nmake -j\nmake test"}, "make"),
    ({"shell": "\n\t/usr/bin/make -j"}, "make"),
    ({"shell": ""}, "bash"),
    ({"command": ["x"], "name": "my job"}, "my job"),
]


@pytest.mark.parametrize(("spec", "name"), NAMES)
def test_names(spec: dict[str, Any], name: str) -> None:
    assert submit(spec).name == name


OK = {"command": ["train"]}
# A spec, a context, and the code of the refusal with a part of what it says.
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {}, "bad-command", "either a command or a shell text"),
    ({"command": ["x"], "shell": "x"}, {}, "bad-command", "either a command or a shell text"),
    ({"command": []}, {}, "bad-command", "empty"),
    ({"command": [""]}, {}, "bad-command", "empty"),
    (OK | {"cpus": -1}, {}, "bad-cpus", "'-1'"),
    (OK | {"cpus": "4X"}, {}, "bad-cpus", "'4X'"),
    (OK | {"cpus": 1e300}, {}, "bad-cpus", "--cpus"),
    (OK | {"cpus": float("inf")}, {}, "bad-cpus", "'inf'"),
    (OK | {"memory": "4X"}, {}, "bad-memory", "'4X'"),
    (OK | {"memory": 0}, {}, "bad-memory", "'0'"),
    (OK | {"time": "soon"}, {}, "bad-duration", "--time 'soon'"),
    (OK | {"time": 0}, {}, "bad-duration", "--time 0"),
    (OK | {"grace": "-5"}, {}, "bad-duration", "--grace '-5'"),
    (OK | {"name": ""}, {}, "bad-name", "--name ''"),
    (OK | {"name": " "}, {}, "bad-name", "--name ' '"),
    (OK | {"name": "a\nb"}, {}, "bad-name", "--name 'a\\nb'"),
    (OK | {"name": "\ud800"}, {}, "bad-name", "--name"),
    (OK | {"name": "77"}, {}, "bad-name", "--name '77'"),
    (OK | {"name": "3-4"}, {}, "bad-name", "--name '3-4'"),
    (OK | {"name": "9-3"}, {}, "bad-name", "--name '9-3'"),
    (OK | {"name": "@"}, {}, "bad-name", "--name '@'"),
    (OK | {"name": "x" * 201}, {}, "bad-name", "--name"),
    (OK | {"workdir": "data"}, {}, "bad-workdir", "'data'"),
    (OK | {"workdir": "/" + "x" * 4095}, {}, "bad-workdir", "4095"),
    (OK | {"env": {"": "x"}}, {}, "bad-env", "''"),
    (OK | {"env": {"A=B": "x"}}, {}, "bad-env", "'A=B'"),
    (OK | {"command": ["a\0b"]}, {}, "nul", "job.command"),
    (OK | {"setup": "a\0b"}, {}, "nul", "job.setup"),
    (OK | {"env": {"A": "\0"}}, {}, "nul", "job.env"),
    (OK, {"environment": ["A"]}, "bad-env", "'A'"),
    (OK, {"environment": [""]}, "bad-env", "''"),
    (OK, {"umask": -1}, "bad-umask", "-1"),
    (OK, {"umask": 0o1000}, "bad-umask", "512"),
    (OK, {"limits": {"nofile": "many"}}, "bad-limit", "nofile='many'"),
    (OK, {"limits": {"nofile": True}}, "bad-limit", "nofile=True"),
    (OK, {"limits": {"nofile": -2}}, "bad-limit", "nofile=-2"),
    (OK, {"limits": {"nofile": 2**63}}, "bad-limit", "nofile="),
]


@pytest.mark.parametrize(("spec", "context", "code", "said"), REFUSED)
def test_refused(spec: dict[str, Any], context: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(Refused) as caught:
        submit(spec, context)
    assert caught.value.code == code
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", "\ud800"])
def test_bad_keys(key: str) -> None:
    with pytest.raises(Refused) as caught:
        submit(OK, key=key)
    assert caught.value.code == "bad-key"


INVALID = [
    ({"commando": ["x"]}, {}, "job.commando"),
    ({"command": "x"}, {}, "job.command"),
    ({"command": [1]}, {}, "job.command"),
    (OK | {"cpus": True}, {}, "job.cpus"),
    (OK | {"name": 1}, {}, "job.name"),
    (OK | {"env": ["A=1"]}, {}, "job.env"),
    (OK | {"env": {"A": 1}}, {}, "job.env.A"),
    (OK, {"umask": "022"}, "context.umask"),
    (OK, {"environment": {"A": "1"}}, "context.environment"),
    (OK, {"limits": []}, "context.limits"),
    (OK, {"gid": 0}, "context.gid"),
]


@pytest.mark.parametrize(("spec", "context", "parameter"), INVALID)
def test_what_the_interface_does_not_have(
    spec: dict[str, Any], context: dict[str, Any], parameter: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        submit(spec, context)
    assert caught.value.parameters == {"parameter": parameter}


@pytest.mark.parametrize("umask", [0, 0o777])
def test_every_umask_there_is(umask: int) -> None:
    assert submit(OK, {"umask": umask}).payload.umask == umask


LONG = "x" * MAX_STRING
MANY = ["x" * 100_000] * 20
SIZES: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"command": ["x", LONG]}, {}, True),
    ({"command": ["x", LONG + "x"]}, {}, False),
    ({"shell": LONG}, {}, True),
    ({"shell": LONG + "x"}, {}, False),
    (OK | {"setup": LONG}, {}, False),
    (OK | {"env": {"A": LONG[2:]}}, {}, True),
    (OK | {"env": {"A": LONG[1:]}}, {}, False),
    (OK, {"environment": ["A=" + LONG[1:]]}, False),
    ({"command": ["x", *MANY]}, {}, True),
    ({"command": ["x", *MANY, *MANY[:1]]}, {}, False),
    ({"command": ["x", *MANY, *MANY]}, {"limits": {"stack": 16 << 20}}, True),
    ({"command": ["x", *MANY, *MANY, *MANY]}, {"limits": {"stack": -1}}, True),
    ({"command": ["x", *MANY, *MANY, *MANY, *MANY]}, {"limits": {"stack": -1}}, False),
    ({"command": ["x", *MANY[:2]]}, {"limits": {"stack": 64 << 10}}, False),
]


@pytest.mark.parametrize(("spec", "context", "fits"), SIZES)
def test_sizes(spec: dict[str, Any], context: dict[str, Any], fits: bool) -> None:
    """What execve(2) would refuse is refused at submit, as tests/test_script.py shows for the largest."""
    if fits:
        submit(spec, context)
        return
    with pytest.raises(Refused) as caught:
        submit(spec, context)
    assert caught.value.code == "too-long"
    assert len(caught.value.message) < 300


def test_messages_do_not_repeat_long_values() -> None:
    with pytest.raises(Refused) as caught:
        submit(OK | {"name": LONG})
    assert len(caught.value.message) < 200


def test_a_singleton_names_those_since_the_last_one() -> None:
    def job(number: int, status: Status = Status.PENDING, *, alone: bool = False, **fields: Any) -> Job:
        conditions = Conditions(dependencies=(Dependency(When.SINGLETON, 1),) if alone else ())
        return replace(queued(status), id=number, conditions=conditions, **fields)

    live = [
        job(2),
        job(4, Status.INIT, alone=True),
        job(3, Status.RUNNING),
        job(5),
        job(6, name="another"),
        job(7, uid=7),
        job(8, Status.FAILED, alone=True),
        job(9, Status.INIT),
    ]
    new = submit({"command": ["x"], "name": "train"})
    assert [each.job_id for each in namesakes(new, live)] == [4, 5, 9]
    assert [each.job_id for each in namesakes(new, live[:1] + live[2:])] == [2, 3, 5, 9]
    assert namesakes(new, []) == []
