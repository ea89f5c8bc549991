"""Varlink calls as typed values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sysjobs.errors import WIRE_ERRORS, NotFound, Refused, SysjobsError
from sysjobs.protocol import Call, Params, ProtocolError, error_reply, reply
from sysjobs.wire import WireError

METHOD = "io.sysjobs.Show"
CALLS = [
    ({"method": METHOD}, Call(METHOD)),
    ({"method": METHOD, "parameters": {"id": "1"}}, Call(METHOD, {"id": "1"})),
    ({"method": METHOD, "parameters": None}, Call(METHOD)),
    ({"method": METHOD, "more": True, "oneway": True}, Call(METHOD, more=True, oneway=True)),
    ({"method": METHOD, "more": 1, "oneway": "yes"}, Call(METHOD)),
    ({"method": METHOD, "upgrade": True, "x": 1}, Call(METHOD)),
    ({"method": ""}, Call("")),
]


@pytest.mark.parametrize(("message", "call"), CALLS)
def test_calls(message: dict[str, object], call: Call) -> None:
    assert Call.of(message) == call


NO_CALLS: list[dict[str, object]] = [
    {},
    {"method": 1},
    {"method": None},
    {"parameters": {}},
    {"method": "a", "parameters": []},
    {"method": "a", "parameters": ""},
    {"method": "a", "parameters": 1},
]


@pytest.mark.parametrize("message", NO_CALLS)
def test_no_calls(message: dict[str, object]) -> None:
    with pytest.raises(WireError):
        Call.of(message)


@pytest.mark.parametrize(
    ("method", "interface"), [(METHOD, "io.sysjobs"), ("Show", ""), ("", ""), ("a.b.C", "a.b")]
)
def test_interface(method: str, interface: str) -> None:
    assert Call(method).interface == interface


Getter = Callable[[Params, str], object]
# A getter, what it gives for an absent parameter, what for which value, and what it refuses.
GETTERS: list[tuple[Getter, object, list[tuple[object, object]], list[object]]] = [
    (Params.text, None, [("a", "a"), ("", "")], [1, True, [], {}, {"b64": "/w=="}]),
    (
        Params.data,
        None,
        [("ä", b"\xc3\xa4"), ({"b64": "/w=="}, b"\xff")],
        [1, True, ["a"], {}, {"b64": "!"}, "\ud800"],
    ),
    (Params.flag, False, [(True, True), (False, False)], [0, 1, "true", []]),
    (Params.integer, None, [(1, 1), (-5, -5), (2**70, 2**70)], [1.0, True, "1", []]),
    (
        Params.amount,
        None,
        [
            (2, "2"),
            (0.5, "0.5"),
            (4.0, "4"),
            ("4G", "4G"),
            (0.1 + 0.2, "0.3"),
            (-1, "-1"),
            (1e-9, "0.000000001"),
            (100, "100"),
        ],
        [True, [], {}],
    ),
    (Params.texts, None, [([], []), (["a", "b"], ["a", "b"])], ["a", [1], [None], {"a": "b"}]),
    (Params.datas, None, [([], ()), (["a", {"b64": "/w=="}], (b"a", b"\xff"))], ["a", [1], [None]]),
    (Params.mapping, {}, [({"a": 1}, {"a": 1})], ["a", [], 1]),
    (
        Params.env,
        (),
        [({"A": "1", "B": {"b64": "/w=="}}, ((b"A", b"1"), (b"B", b"\xff")))],
        [["A=1"], {"A": 1}],
    ),
]


@pytest.mark.parametrize(
    ("get", "absent", "values", "wrong"), GETTERS, ids=[row[0].__name__ for row in GETTERS]
)
def test_getters(
    get: Getter, absent: object, values: list[tuple[object, object]], wrong: list[object]
) -> None:
    known = frozenset(("x",))
    assert get(Params({}, known), "x") == absent
    assert get(Params({"x": None}, known), "x") == absent
    for value, expected in values:
        found = get(Params({"x": value}, known), "x")
        assert (found, type(found)) == (expected, type(expected))
    for value in wrong:
        with pytest.raises(ProtocolError) as caught:
            get(Params({"x": value}, known, "job."), "x")
        assert caught.value.name == "org.varlink.service.InvalidParameter"
        assert caught.value.parameters["parameter"].startswith("job.x")


def test_required_text() -> None:
    assert Params({"id": "1"}, frozenset(("id",))).required_text("id") == "1"
    with pytest.raises(ProtocolError):
        Params({}, frozenset(("id",))).required_text("id")


def test_a_parameter_that_nobody_knows() -> None:
    with pytest.raises(ProtocolError) as caught:
        Params({"ids": [], "force": True}, frozenset(("ids",)), "job.")
    assert caught.value.parameters == {"parameter": "job.force"}


@pytest.mark.parametrize(
    ("get", "value"),
    [
        (Params.data, "a\0b"),
        (Params.data, {"b64": "AA=="}),
        (Params.datas, ["a", "\0"]),
        (Params.env, {"A": "\0"}),
    ],
)
def test_no_program_can_be_given_a_nul(get: Getter, value: object) -> None:
    with pytest.raises(Refused) as caught:
        get(Params({"x": value}, frozenset(("x",))), "x")
    assert caught.value.code == "nul"


def test_replies() -> None:
    assert reply({"id": 1}) == {"parameters": {"id": 1}}
    assert reply({"id": 1}, continues=True) == {"parameters": {"id": 1}, "continues": True}


ERRORS: list[tuple[SysjobsError | ProtocolError, dict[str, object]]] = [
    (
        NotFound("There is no job 7.", "Look.", code="not-found"),
        {
            "error": "io.sysjobs.NotFound",
            "parameters": {"code": "not-found", "message": "There is no job 7.", "hint": "Look."},
        },
    ),
    (
        ProtocolError("MethodNotFound", method="a.B"),
        {"error": "org.varlink.service.MethodNotFound", "parameters": {"method": "a.B"}},
    ),
]


@pytest.mark.parametrize(("error", "message"), ERRORS)
def test_error_replies(error: SysjobsError | ProtocolError, message: dict[str, object]) -> None:
    assert error_reply(error) == message


@pytest.mark.parametrize("cls", WIRE_ERRORS.values())
def test_errors_survive_the_wire(cls: type[SysjobsError]) -> None:
    message = error_reply(cls("m", "h", code="c"))
    assert WIRE_ERRORS[str(message["error"])] is cls
