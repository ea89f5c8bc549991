"""Parameters, the combinations of their values, and what a task gets of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.errors import Refused
from sysjobs.indices import Indices
from sysjobs.payload import Payload, payload_of_task
from sysjobs.sweep import Param, combinations, dump_params, load_params, longest, parse_params, values_of
from sysjobs.wire import to_wire

VALUES: list[tuple[bytes, bytes, list[bytes]]] = [
    (b"lr=0.1,0.01", b"lr", [b"0.1", b"0.01"]),
    (b"seed=1-5", b"seed", [b"1", b"2", b"3", b"4", b"5"]),
    (b"n=08-10", b"n", [b"08", b"09", b"10"]),
    (b"n=0-10:5,7", b"n", [b"0", b"5", b"10", b"7"]),
    (b"n=3-3", b"n", [b"3"]),
    (b"name=a\\,b,c", b"name", [b"a,b", b"c"]),
    (b"when=2024\\-2026", b"when", [b"2024-2026"]),
    (b"path=C:\\\\x", b"path", [b"C:\\x"]),
    (b"model=resnet-50", b"model", [b"resnet-50"]),
    (b"x=", b"x", [b""]),
    (b"x=a,,b", b"x", [b"a", b"", b"b"]),
    (b"x=a=b", b"x", [b"a=b"]),
    (b"x=\xff", b"x", [b"\xff"]),
    (b"x=-1,-2", b"x", [b"-1", b"-2"]),
    (b"x=0.1-0.5", b"x", [b"0.1-0.5"]),
]


@pytest.mark.parametrize(("text", "name", "values"), VALUES)
def test_parse_params(text: bytes, name: bytes, values: list[bytes]) -> None:
    assert parse_params([text]) == (Param(name, tuple(values)),)


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        ([b"lr"], "bad-param"),
        ([b"=1"], "bad-param"),
        ([b""], "bad-param"),
        ([b"1x=1"], "bad-param"),
        ([b"a-b=1"], "bad-param"),
        ([b"SYSJOBS_JOB_ID=1"], "bad-param"),
        ([b"SLURM_X=1"], "bad-param"),
        ([b"x=5-1"], "bad-param"),
        ([b"x=1-5:0"], "bad-param"),
        ([b"x=0-999999999"], "bad-param"),
        ([b"x=1", b"x=2"], "bad-param"),
        ([b"x%d=1" % number for number in range(21)], "bad-param"),
        ([b"x=0-999", b"y=0-1000"], "too-many"),
        ([b"x=" + b"a" * (5 << 20)], "too-long"),
    ],
)
def test_what_are_no_params(texts: list[bytes], code: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_params(texts)
    assert caught.value.code == code
    assert caught.value.hint


def test_the_last_one_changes_first() -> None:
    params = parse_params([b"lr=0.1,0.01", b"seed=1-3"])
    assert combinations(params) == 6
    assert [values_of(params, index) for index in range(6)] == [
        {b"lr": lr, b"seed": seed} for lr in (b"0.1", b"0.01") for seed in (b"1", b"2", b"3")
    ]
    assert [*values_of(params, 0)] == [b"lr", b"seed"], "in their order"
    assert combinations(()) == 0


@given(st.lists(st.lists(st.binary(max_size=4), min_size=1, max_size=4), min_size=1, max_size=4))
def test_no_combination_is_longer_than_the_longest(values: list[list[bytes]]) -> None:
    params = [Param(b"p%d" % number, tuple(each)) for number, each in enumerate(values)]
    lengths = [sum(map(len, values_of(params, index).values())) for index in range(combinations(params))]
    assert sum(map(len, values_of(params, longest(params)).values())) == max(lengths)
    assert load_params(dump_params(params)) == tuple(params)


@pytest.mark.parametrize(
    "text", ["[]", "7", "[[7, []]]", '[["x", []]]', '[["1x", ["a"]]]', "[" * 10_000, "{"]
)
def test_what_the_database_cannot_have_as_params(text: str) -> None:
    with pytest.raises(ValueError, match="its parameters are"):
        load_params(text)


def task(command: tuple[bytes, ...], *params: bytes, index: int = 0, **fields: object) -> Payload:
    payload = Payload(command, **fields)  # type: ignore[arg-type]
    return payload_of_task(payload, 42, Indices((range(0, 40, 4),)), parse_params(params), index)


def test_what_a_task_is_told() -> None:
    variables = dict(task((b"x",), index=8, env=((b"A", b"1"),)).env)
    told = {"JOB_ID": 42, "TASK_ID": 8, "TASK_COUNT": 10, "TASK_MIN": 0, "TASK_MAX": 36, "TASK_STEP": 4}
    assert variables == {b"A": b"1"} | {
        f"{system}_ARRAY_{name}".encode(): str(value).encode()
        for system in ("SYSJOBS", "SLURM")
        for name, value in told.items()
    }


FILLED: list[tuple[bytes, bytes]] = [
    (b"{lr}", b"0.1"),
    (b"--lr={lr}/{seed}", b"--lr=0.1/1"),
    (b"${lr} {lr}", b"${lr} 0.1"),
    (b"{other} {} {{lr}} {l r}", b"{other} {} {0.1} {l r}"),
    (b"{LR}", b"{LR}"),
    (b"\xff{lr}", b"\xff0.1"),
]


@pytest.mark.parametrize(("text", "filled"), FILLED)
def test_values_take_the_place_of_their_names(text: bytes, filled: bytes) -> None:
    got = task((b"x", text), b"lr=0.1", b"seed=1", shell=text, setup=text)
    assert (got.command[1], got.shell, got.setup) == (filled, filled, filled)
    assert dict(got.env)[b"lr"] == b"0.1"


def test_a_value_is_not_filled_again() -> None:
    assert task((b"{a}",), b"a={b}", b"b=x").command == (b"{b}",)
    assert to_wire(task((b"{a}",), b"a=\\\\0").command[0]) == "\\0"
