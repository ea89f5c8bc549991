"""What systemd says of signals that it was asked to send, and whom it concerns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.engine.evidence import SLACK, Entry, Victim
from sysjobs.engine.requests import Requests

JOB = Victim("/sysjobs.slice/sysjobs-42.service", 127, 10, 90, all_of_it=False, signal=15, invocation="ab")


def said(
    signal: str = "TERM", pid: int = 127, *, job: int = 42, whom: str = "main", name: str = "bash"
) -> str:
    """As systemd 252 and 257 log it."""
    return (
        f"sysjobs-{job}.service: Sent signal SIG{signal} to {whom} process {pid} ({name}) on client request."
    )


def entry(text: str, **fields: object) -> Entry:
    return replace(Entry(50, "systemd", text, "ab"), **fields)  # type: ignore[arg-type]


REST = "sysjobs-42.service: Sending signal SIGTERM to process 128 (sleep) on client request."
CGROUP = "sysjobs-42.service: Killed unit cgroup with SIGKILL on client request."
FAILED = "Failed to send signal SIGTERM to main process 127 (bash) on client request: No such process"
LINES = [
    ("to the main process", [entry(said())], True),
    ("to setup", [entry(said(whom="control"))], True),
    ("as one of all", [entry(REST), entry(said()), entry(CGROUP)], True),
    ("after another one", [entry(said("INT")), entry(said())], True),
    ("an odd name", [entry(said(name=") x\n(\ufffd"))], True),
    ("a moment after it ended", [entry(said(), at=90 + SLACK)], True),
    ("another one", [entry(said("INT"))], False),
    ("one that there is not", [entry(said("TERMS"))], False),
    ("to another process", [entry(said(pid=128))], False),
    ("to others of its processes", [entry(REST.replace("128", "127")), entry(CGROUP)], False),
    ("to another job", [entry(said(job=421))], False),
    ("to another run of the unit", [entry(said(), invocation="cd")], False),
    ("to nobody knows which run", [entry(said(), invocation="")], False),
    ("before it began", [entry(said(), at=9)], False),
    ("long after it ended", [entry(said(), at=91 + SLACK)], False),
    ("in vain", [entry(f"sysjobs-42.service: {FAILED}")], False),
    ("told by somebody else", [entry(said(), source="earlyoom"), entry(said(), source="")], False),
    ("told in a name", [entry(f"Started {said()}"), entry(f"sysjobs-42.service: {said()}")], False),
    ("told before something else", [entry(f"{said()} x")], False),
    ("nothing", [], False),
]


@pytest.mark.parametrize(("log", "ended"), [row[1:] for row in LINES], ids=[row[0] for row in LINES])
def test_who_was_ended_by_one(log: list[Entry], ended: bool) -> None:
    assert Requests(log).ended(JOB) is ended


NAMES = [(1, "HUP"), (6, "ABRT"), (9, "KILL"), (10, "USR1"), (31, "SYS"), (34, "RTMIN+0"), (64, "RTMIN+30")]


@pytest.mark.parametrize(("number", "name"), NAMES)
def test_systemd_s_names_of_signals(number: int, name: str) -> None:
    requests = Requests([entry(said(name))])
    assert requests.ended(replace(JOB, signal=number))
    assert not requests.ended(replace(JOB, signal=number + 1))


@pytest.mark.parametrize("name", ["TERM", "no signal"])
def test_what_no_signal_ended(name: str) -> None:
    assert not Requests([entry(said(name))]).ended(replace(JOB, signal=None))


@pytest.mark.parametrize(("at", "ended"), [(49, False), (50, True), (51, True)])
def test_what_may_have_been_ours(at: int, ended: bool) -> None:
    assert Requests([entry(said(), at=at)]).ended(replace(JOB, ours_until=50)) is ended


@given(st.lists(st.builds(Entry, st.just(50), st.just("systemd"), st.text(), st.just("ab"))))
def test_whatever_systemd_says(log: list[Entry]) -> None:
    assert not Requests(log).ended(JOB)
