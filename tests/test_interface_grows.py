"""The interface file against those that have landed: what was promised to older clients is there still."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from tests.test_interface import SYSJOBS, Interface, Parser, Type

KEPT = sorted((Path(__file__).parent / "data").glob("io.sysjobs.v*.varlink"))
TEXT = (files("sysjobs") / "io.sysjobs.varlink").read_text("utf-8")


def taken_away(old: Interface, new: Interface) -> Iterator[str]:
    """What a client or a daemon that keeps to `old` would miss in `new`, or be asked for by it."""
    structs: list[tuple[str, Type | None, Type | None]] = []
    for name, kind in old.types.items():
        structs.append((name, kind, new.types.get(name)))
    for name, members in old.errors.items():
        structs.append((name, struct(members), struct(new.errors.get(name))))
    for name, (inputs, outputs) in old.methods.items():
        now = new.methods.get(name, (None, None))
        structs += [
            (name, struct(inputs), struct(now[0])),
            (f"{name}'s reply", struct(outputs), struct(now[1])),
        ]
    for name, before, after in structs:
        yield from changed(name, before, after)


def struct(members: dict[str, Type] | None) -> Type | None:
    return None if members is None else Type("struct", members=members)


def changed(where: str, old: Type | None, new: Type | None) -> Iterator[str]:
    assert old is not None
    if new is None:
        yield f"{where} is gone"
        return
    shape = [(kind.name, kind.optional, kind.array, kind.mapping) for kind in (old, new)]
    if shape[0] != shape[1] or not set(old.choices) <= set(new.choices):
        yield f"{where} is of another type"
    before, after = old.members or {}, new.members or {}
    for name, member in before.items():
        yield from changed(f"{where}.{name}", member, after.get(name))
    for name in after.keys() - before.keys():
        if not after[name].optional:
            yield f"{where}.{name} is new, and must be optional"


def test_an_interface_is_kept() -> None:
    assert KEPT


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_the_interface_only_grows(path: Path) -> None:
    assert list(taken_away(Parser(path.read_text()).interface(), SYSJOBS)) == []


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("method Show(id: string)", "method Shew(id: string)", ["Show is gone", "Show's reply is gone"]),
        ("method Show(id: string)", "method Show(id: string, mood: string)", ["Show.mood is new"]),
        ("method Show(id: string)", "method Show(id: string, mood: ?string)", []),
        ("method Show(id: string)", "method Show(id: int)", ["Show.id is of another type"]),
        ("method Show(id: string)", "method Show(id: ?string)", ["Show.id is of another type"]),
        ("(details: JobDetails)", "()", ["Show's reply.details is gone"]),
        ("name: ?string,", "", ["JobSpec.name is gone"]),
        ("name: ?string,", "name: string,", ["JobSpec.name is of another type"]),
        ("memory: ?string,", "memory: ?string, moons: ?string,", []),
        ("memory: ?string,", "memory: ?string, moons: string,", ["JobSpec.moons is new"]),
        ("command: ?[]string", "command: ?string", ["JobSpec.command is of another type"]),
        ("env: ?[string]string", "env: ?[]string", ["JobSpec.env is of another type"]),
        ("INIT, PENDING,", "PENDING,", ["Job.status is of another type"]),
        ("INIT, PENDING,", "INIT, HELD, PENDING,", []),
        ("error Denied(code: string,", "error Denied(", ["Denied.code is gone"]),
        ("method Show(", "method Ponder(id: string) -> () method Show(", []),
        ("type CancelResult (", "type Mood (today: string) type CancelResult (", []),
    ],
)
def test_what_counts_as_growing(old: str, new: str, found: list[str]) -> None:
    assert old in TEXT
    before, after = Parser(TEXT).interface(), Parser(TEXT.replace(old, new, 1)).interface()
    names = list(taken_away(before, after))
    assert len(names) == len(found), names
    assert all(name.startswith(begin) for name, begin in zip(names, found, strict=True)), names
