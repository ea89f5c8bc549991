"""The interface file, read by a small strict grammar, against all code that keeps to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sysjobs import changes, handlers, listing, nodes, reports
from sysjobs.answer_parts import ArrayView, AttemptView
from sysjobs.answers import ChangeResult, JobDetails, JobView, NodeState, NodeUser
from sysjobs.conditions import Conditions, Dependency, Hold, When
from sysjobs.config import Settings
from sysjobs.devices import Access, Device, Share
from sysjobs.errors import WIRE_ERRORS
from sysjobs.handlers import Handlers
from sysjobs.indices import Indices, Places
from sysjobs.jobs import Array, Attempt, Cancellation, Exit, Job, Notice, Reason, Sent, Status, Usage
from sysjobs.payload import Payload
from sysjobs.protocol import Call, ProtocolError, error_reply
from sysjobs.resources import Amount
from sysjobs.retry import Retry
from sysjobs.submission import CONTEXT_KEYS, SPEC_KEYS
from sysjobs.sweep import Param
from sysjobs.tasks import without_turn
from sysjobs.views import details_view, job_view
from tests.models import cancel, queued


@dataclass(frozen=True)
class Type:
    """A type: `name` of an elementary or declared one, or the members of a struct or enum in its place."""

    name: str
    optional: bool = False
    array: bool = False
    mapping: bool = False
    members: Struct | None = None
    choices: tuple[str, ...] = ()


Struct = dict[str, Type]
ELEMENTARY: dict[str, type | tuple[type, ...]] = {
    "bool": bool,
    "int": int,
    "float": (int, float),
    "string": str,
    "object": dict,
}


@dataclass
class Interface:
    name: str = ""
    types: dict[str, Type] = field(default_factory=dict)
    methods: dict[str, tuple[Struct, Struct]] = field(default_factory=dict)
    errors: dict[str, Struct] = field(default_factory=dict)


class Parser:
    """varlink.org's grammar. Raises AssertionError for what isn't in it."""

    TOKEN = re.compile(r"(?:\s|#[^\n]*\n)*(->|\[string\]|\[\]|[():,?]|[A-Za-z][A-Za-z0-9_.-]*)")

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        position = 0
        while match := self.TOKEN.match(text, position):
            self._tokens.append(match[1])
            position = match.end()
        assert re.fullmatch(r"(?:\s|#[^\n]*\n)*", text[position:]), text[position : position + 40]

    def interface(self) -> Interface:
        self.take("interface")
        parsed = Interface(self.name(r"[a-z]+(\.[a-z]+)+"))
        while self._tokens:
            kind, name = self.take(), self.name(r"[A-Z][A-Za-z0-9]*")
            assert name not in parsed.types.keys() | parsed.methods.keys() | parsed.errors.keys()
            match kind:
                case "type":
                    parsed.types[name] = self.compound()
                case "error":
                    parsed.errors[name] = self.struct()
                case "method":
                    inputs = self.struct()
                    self.take("->")
                    parsed.methods[name] = (inputs, self.struct())
                case _:
                    raise AssertionError(kind)
        return parsed

    def take(self, expected: str = "") -> str:
        token = self._tokens.pop(0)
        assert not expected or token == expected, f"{token}, not {expected}"
        return token

    def name(self, pattern: str) -> str:
        token = self.take()
        assert re.fullmatch(pattern, token), token
        return token

    def field_name(self) -> str:
        return self.name(r"[A-Za-z](_?[A-Za-z0-9])*")

    def struct(self) -> Struct:
        members = self.compound().members
        assert members is not None
        return members

    def compound(self) -> Type:
        self.take("(")
        if self._tokens[0] != ")" and self._tokens[1] != ":":
            choices = [self.field_name()]
            while self.take_if(","):
                choices.append(self.field_name())
            self.take(")")
            return Type("enum", choices=tuple(choices))
        members: Struct = {}
        while not members or self.take_if(","):
            if not members and self._tokens[0] == ")":
                break
            name = self.field_name()
            assert name not in members
            self.take(":")
            members[name] = self.type()
        self.take(")")
        return Type("struct", members=members)

    def take_if(self, token: str) -> bool:
        if self._tokens[0] != token:
            return False
        self.take()
        return True

    def type(self) -> Type:
        optional, array, mapping = self.take_if("?"), self.take_if("[]"), self.take_if("[string]")
        element = self.compound() if self._tokens[0] == "(" else Type(self.name(r"[a-z]+|[A-Z][A-Za-z0-9]*"))
        return Type(element.name, optional, array, mapping, element.members, element.choices)


def parse(name: str) -> Interface:
    return Parser((files("sysjobs") / f"{name}.varlink").read_text("utf-8")).interface()


SYSJOBS, SERVICE = parse("io.sysjobs"), parse("org.varlink.service")


def check(value: object, wanted: Type, where: str) -> None:
    """That a value of a message has its declared type."""
    if wanted.array or wanted.mapping:
        kind = list if wanted.array else dict
        assert isinstance(value, kind), where
        element = Type(wanted.name, members=wanted.members, choices=wanted.choices)
        for key, each in enumerate(value) if isinstance(value, list) else value.items():
            check(each, element, f"{where}.{key}")
    elif wanted.choices:
        assert value in wanted.choices, where
    elif wanted.members is not None:
        check_struct(value, wanted.members, where)
    elif wanted.name in SYSJOBS.types:
        check(value, SYSJOBS.types[wanted.name], where)
    elif wanted.name == "string" and isinstance(value, dict):
        assert value.keys() == {"b64"}, where
    else:
        assert isinstance(value, ELEMENTARY[wanted.name]), f"{where}: {value!r}"
        assert wanted.name == "bool" or not isinstance(value, bool), where


def check_struct(value: object, members: Struct, where: str) -> None:
    assert isinstance(value, dict), where
    assert value.keys() <= members.keys(), f"{where}: {value.keys() - members.keys()} isn't declared"
    for name, wanted in members.items():
        if name in value:
            check(value[name], wanted, f"{where}.{name}")
        else:
            assert wanted.optional, f"{where}.{name} is missing"


@pytest.mark.parametrize("interface", [SYSJOBS, SERVICE], ids=lambda interface: interface.name)
def test_every_type_that_is_named_is_declared(interface: Interface) -> None:
    structs = [*interface.errors.values()]
    structs += [struct for method in interface.methods.values() for struct in method]
    structs += [kind.members for kind in interface.types.values() if kind.members is not None]
    named = {member.name for struct in structs for member in struct.values()}
    assert named <= interface.types.keys() | ELEMENTARY.keys() | {"enum"}
    assert interface.types.keys() <= named, "and the other way round"


@pytest.mark.parametrize(
    "text",
    [
        "interface a.b type X (a: int",
        "interface a.b type X (a: int,)",
        "interface a.b type X (a int)",
        "interface a.b type x (a: int)",
        "interface a.b type X (a: int) type X (b: int)",
        "interface a.b type X (a: int, a: int)",
        "interface a.b method F(a: int)",
        "interface a.b type X (a: int);",
        "interface a.b type X (a__b: int)",
        "interface a",
    ],
)
def test_the_grammar_is_strict(text: str) -> None:
    with pytest.raises((AssertionError, IndexError)):
        Parser(text).interface()


def make_handlers() -> Handlers:
    nothing = cast(Any, None)
    return Handlers(
        queue=nothing,
        store=nothing,
        engine=nothing,
        files=nothing,
        settings=Settings(),
        clock=nothing,
        paths=nothing,
        room=nothing,
        look=nothing,
    )


def test_each_method_has_its_handler() -> None:
    assert make_handlers().table().keys() == {f"io.sysjobs.{method}" for method in SYSJOBS.methods}


@pytest.mark.parametrize("method", SYSJOBS.methods)
def test_each_handler_takes_what_is_declared(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Taken(Exception):
        pass

    def take(values: object, known: frozenset[str], what: str = "") -> None:
        raise Taken(known)

    for module in (handlers, changes, listing, nodes, reports):
        monkeypatch.setattr(module, "Params", take)
    with pytest.raises(Taken) as caught:
        make_handlers().table()[f"io.sysjobs.{method}"](cast(Any, SimpleNamespace(peer=None)), Call(method))
    assert caught.value.args[0] == SYSJOBS.methods[method][0].keys()


def members(name: str) -> Struct:
    found = SYSJOBS.types[name].members
    assert found is not None
    return found


def test_what_a_submit_takes_is_declared() -> None:
    assert members("JobSpec").keys() == SPEC_KEYS
    assert members("Context").keys() == CONTEXT_KEYS


def test_every_status_is_declared() -> None:
    assert members("Job")["status"].choices == tuple(Status)


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("Job", JobView),
        ("JobDetails", JobDetails),
        ("CancelResult", ChangeResult),
        ("ChangeResult", ChangeResult),
        ("NodeState", NodeState),
        ("NodeUser", NodeUser),
        ("Attempt", AttemptView),
        ("Array", ArrayView),
    ],
)
def test_the_client_reads_what_is_declared(name: str, view: type[Any]) -> None:
    assert [each.name for each in fields(view)] == list(members(name))


ENDED = queued(
    Status.CANCELLED,
    has_setup=True,
    reason=Reason("cancelled", "Cancelled by root."),
    boot_id="b",
    shard=0,
    started_at=1,
    running_at=2,
    invocation_id="i",
    cancellation=cancel(user="root").cancellation,
    main=Exit(signal=6, dumped=True),
    setup=Exit(0),
    usage=Usage(1_500_000, 1 << 20, 5, 6),
    amount=Amount(500, 1 << 30, 1250, "L4", (("licence", 2),)),
    shares=(Share("gpu0", 1000), Share("gone", 250)),
    hard_cpus=True,
    notice=Notice(10, 60.0),
    sent=Sent(10, "bob", 7),
    retry=Retry(3),
    past=(
        Attempt(1, 1, 2, Status.FAILED, Reason("x", "y"), Exit(3), None, Usage(1, 2, 3, 4)),
        Attempt(2, 1, 2, Status.FAILED_DRIVER),
    ),
    attempt=3,
)
ACCESS = Access({"gpu0": Device("gpu0", "NVIDIA L4", "GPU-1")})
DEFERRED = queued(
    Status.INIT,
    hold=Hold(0, "root"),
    conditions=Conditions(5, (Dependency(When.OK, 41), Dependency(When.SINGLETON, 7))),
)
ARRAY = replace(
    queued(Status.RUNNING),
    array=Array(
        Indices((range(0, 90, 3),)),
        Places((range(7, 30),)),
        10,
        (Param(b"lr", (b"0.1", b"\xff")),),
        ((Places((range(5, 6),)), Hold(0, "root")),),
        ((Places((range(6, 7),)), Cancellation(0, "root", "", 7, 1.0)),),
        ((Status.SUCCEEDED, 2),),
    ),
)
JOBS = [*map(queued, Status), DEFERRED, ENDED, ARRAY, *(without_turn(ARRAY, place) for place in (5, 6, 7))]
PAYLOADS = [
    None,
    Payload((b"x",)),
    Payload((b"x", b"\xff"), shell=b"\xff", setup=b"make", workdir=b"/\xff", env=((b"SECRET", b"\xff"),)),
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.status.value)
def test_views_have_the_types_that_are_declared(job: Job) -> None:
    for log, why, warnings in (
        (None, None, []),
        ("/log", Reason("resources", "Waits for CPUs."), ["Beware."]),
    ):
        view = job_view(job, log=log, why=why, params={b"lr": b"\xff"} if job.task else None)
        check(view, SYSJOBS.types["Job"], "Job")
        assert JobView.from_wire(view).id == 42
        for payload in PAYLOADS:
            details = details_view(job, view, payload, log, warnings, ACCESS)
            check(details, SYSJOBS.types["JobDetails"], "JobDetails")
            assert JobDetails.from_wire(details).job == JobView.from_wire(view)


def test_a_job_that_has_everything_shows_everything() -> None:
    view = job_view(ENDED, log="/log", why=ENDED.reason)
    assert view.keys() == members("Job").keys() - {"exit_code", "array", "array_id", "task", "params"}
    details = details_view(ENDED, view, PAYLOADS[-1], "/setup.log", ["Beware."], ACCESS)
    conditions = {"held_by", "begin_at", "dependencies", "position", "pending"}
    assert details.keys() == members("JobDetails").keys() - {"setup_signal", "cancel_reason"} - conditions
    assert details["devices"] == [
        {"name": "gpu0", "share": 1.0, "model": "NVIDIA L4", "uuid": "GPU-1"},
        {"name": "gone", "share": 0.25},
    ]
    assert (view["gpus"], view["resources"]) == ("L4:1.25", {"licence": 2})
    assert (details["cpu_limit"], details["signal_before_limit"]) == ("hard", "USR1@60")
    deferred = details_view(DEFERRED, job_view(DEFERRED, log=None, why=None), None, None, [], ACCESS, (2, 3))
    assert {name: deferred[name] for name in conditions} == {
        "position": 2,
        "pending": 3,
        "held_by": "root",
        "begin_at": 5,
        "dependencies": ["afterok:41", "singleton:7"],
    }


def test_values_of_variables_are_shown_to_nobody() -> None:
    payload = Payload((b"x",), env=((b"SECRET", b"hunter2"),), environment=(b"TOKEN=hunter2",))
    details = details_view(ENDED, job_view(ENDED, log="/log", why=None), payload, None, [], ACCESS)
    assert "hunter2" not in str(details) + repr(payload)


def test_errors() -> None:
    assert {f"io.sysjobs.{name}" for name in SYSJOBS.errors} == WIRE_ERRORS.keys()
    for name, struct in SYSJOBS.errors.items():
        error = error_reply(WIRE_ERRORS[f"io.sysjobs.{name}"]("m", "h", code="c"))
        check_struct(error["parameters"], struct, name)


@pytest.mark.parametrize(
    "error",
    [
        ProtocolError("InterfaceNotFound", interface="a.b"),
        ProtocolError("MethodNotFound", method="a.b.C"),
        ProtocolError("InvalidParameter", parameter="x"),
        ProtocolError("ExpectedMore"),
        ProtocolError("PermissionDenied"),
    ],
    ids=str,
)
def test_errors_of_the_service(error: ProtocolError) -> None:
    name = error.name.removeprefix("org.varlink.service.")
    check_struct(error.parameters, SERVICE.errors[name], name)
