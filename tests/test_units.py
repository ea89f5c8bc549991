"""A job's unit as properties for systemd, and what systemd says of it as a typed value."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.devices import Share
from sysjobs.engine.units import (
    LOG_LEVELS,
    Confines,
    Unit,
    cgroup_path,
    job_id_of,
    printable,
    properties,
    slice_name,
    updated,
)
from sysjobs.jobs import Job, Status, unit_name
from sysjobs.resources import Amount
from tests.models import queued

RUN, SETUP, LOG = (
    "/run/sysjobs/jobs/42/1.run",
    "/run/sysjobs/jobs/42/1.setup",
    "/var/log/sysjobs/alice/42.log",
)
JOB = queued(Status.RUNNING, shard=3)


def wanted(
    job: Job = JOB, setup: str | None = None, log: str = LOG, allowed: tuple[str, ...] | None = None
) -> dict[str, Any]:
    listed = properties(job, RUN, setup, log, Confines(50, allowed))
    values = {name: value for name, _, value in listed}
    assert len(values) == len(listed), "each property once"
    return values


PROPERTIES = [
    ("Description", "sysjobs job 42: train (alice)"),
    ("Documentation", ("file:/var/log/sysjobs/alice/42.log",)),
    ("Slice", "sysjobs-u1000-3.slice"),
    ("Type", "exec"),
    ("RemainAfterExit", True),
    ("User", "1000"),
    ("Group", "1000"),
    ("ExecStart", (("/bin/sh", ("/bin/sh", RUN), False),)),
    ("TimeoutStartUSec", 2**64 - 1),
    ("TimeoutStopUSec", 30_000_000),
    ("MemoryMax", 1 << 30),
    ("MemorySwapMax", 0),
    ("DefaultDependencies", False),
    ("Conflicts", ("shutdown.target",)),
    ("Before", ("shutdown.target",)),
    ("OOMPolicy", "stop"),
    ("IgnoreSIGPIPE", False),
    ("LogLevelMax", 5),
    ("CPUWeight", 50),
]


@pytest.mark.parametrize(("name", "value"), PROPERTIES)
def test_properties(name: str, value: object) -> None:
    assert wanted()[name] == value


def test_what_systemd_may_say_of_it() -> None:
    listed = properties(JOB, RUN, None, LOG, Confines(50, log_level=LOG_LEVELS["all"]))
    assert ("LogLevelMax", "i", 6) in listed


def test_a_setup_is_run_before() -> None:
    assert "ExecStartPre" not in wanted()
    assert wanted(setup=SETUP)["ExecStartPre"] == (("/bin/sh", ("/bin/sh", SETUP), False),)


def test_without_memory_there_is_no_limit() -> None:
    assert not {"MemoryMax", "MemorySwapMax"} & wanted(replace(JOB, amount=Amount(500, 0))).keys()


def test_a_hard_limit_of_cpus_is_a_quota() -> None:
    assert "CPUQuotaPerSecUSec" not in wanted()
    assert wanted(replace(JOB, hard_cpus=True))["CPUQuotaPerSecUSec"] == 500_000


@pytest.mark.parametrize(("cores", "mask"), [([0], b"\x01"), ([1, 9], b"\x02\x02"), ([15], b"\x00\x80")])
def test_cpus_that_it_is_kept_to(cores: list[int], mask: bytes) -> None:
    assert "AllowedCPUs" not in wanted(replace(JOB, shares=(Share("gpu0", 1000),)))
    shares = tuple(Share(f"cpu{core}", 500) for core in cores)
    assert wanted(replace(JOB, shares=shares))["AllowedCPUs"] == mask


def test_devices_are_kept_from_jobs_only_where_there_are_some() -> None:
    assert not {"DevicePolicy", "DeviceAllow"} & wanted().keys()
    values = wanted(allowed=("block-*", "/dev/nvidia0"))
    assert values["DevicePolicy"] == "closed"
    assert values["DeviceAllow"] == (("block-*", "rwm"), ("/dev/nvidia0", "rwm"))
    assert wanted(allowed=())["DeviceAllow"] == ()


def test_no_grace_is_the_shortest_time_and_not_systemds_forever() -> None:
    assert wanted(replace(JOB, grace=0.0))["TimeoutStopUSec"] == 1


def test_nothing_of_the_command_or_environment_is_in_a_property() -> None:
    """Anybody may read them."""
    assert not {"Environment", "PassEnvironment", "WorkingDirectory", "LogExtraFields"} & wanted().keys()


SIGNATURES = {
    "s": str,
    "b": bool,
    "t": int,
    "i": int,
    "as": tuple,
    "a(sasb)": tuple,
    "a(ss)": tuple,
    "ay": bytes,
}


def test_values_have_the_types_of_their_signatures_and_can_be_hashed() -> None:
    hard = replace(JOB, hard_cpus=True, shares=(Share("cpu3", 500),))
    confines = Confines(50, ("/dev/nvidia0", "char-input"), io=True)
    for name, signature, value in properties(hard, RUN, SETUP, LOG, confines):
        assert type(value) is SIGNATURES[signature], name
        hash(value)


@given(st.text(max_size=20), st.text(alphabet=st.characters(codec="utf-8"), max_size=20))
def test_no_name_breaks_a_line_or_a_path(name: str, user: str) -> None:
    values = wanted(replace(JOB, name=name, user=user), log=f"/var/log/sysjobs/{user}/42.log")
    assert values["Description"].isprintable()
    (url,) = values["Documentation"]
    assert re.fullmatch(r"file:[A-Za-z0-9/._~%-]+", url)


PRINTABLE = [
    ("train", "train"),
    ("zwölf € 日本", "zwölf € 日本"),
    ("a\nb", "a\\nb"),
    ("\x1b[2J", "\\x1b[2J"),
    ("\u202e", "\\u202e"),
    ("\udcff", "\\udcff"),
]


@pytest.mark.parametrize(("text", "shown"), PRINTABLE)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


NOT_OURS = [
    "sysjobs-.service",
    "sysjobs-042.service",
    "sysjobs-0.service",
    "sysjobs--1.service",
    "sysjobs-4 2.service",
    "sysjobs-42.scope",
    "sysjobs-42.service.service",
    "sysjobs-sysjobs-42.service",
    "sysjobs-\u0664\u0662.service",
    "sysjobs-\u00b2.service",
    "sysjobs-99999999999999999999.service",
    "sysjobs-42",
    "42.service",
    "x-sysjobs-42.service",
    "sysjobs-42.service\n",
    "sysjobsd.service",
    "sysjobs.slice",
    "",
]


@pytest.mark.parametrize("unit", NOT_OURS)
def test_units_of_others(unit: str) -> None:
    assert job_id_of(unit) is None


@given(st.integers(1, 10**18 - 1))
def test_the_job_of_a_unit(job_id: int) -> None:
    assert job_id_of(unit_name(job_id)) == job_id


def test_slices() -> None:
    assert slice_name(1000, 0) == "sysjobs-u1000-0.slice"
    assert cgroup_path(JOB) == "sysjobs.slice/sysjobs-u1000.slice/sysjobs-u1000-3.slice/sysjobs-42.service"


UPDATES: list[tuple[dict[str, object], dict[str, object]]] = [
    ({}, {}),
    ({"MemoryCurrent": 7, "Names": [b"x"]}, {}),
    ({"ActiveState": b"active", "SubState": b"running"}, {"active_state": "active", "sub_state": "running"}),
    ({"Result": b"oom-kill"}, {"result": "oom-kill"}),
    ({"Job": (0, b"/")}, {"has_job": False}),
    ({"Job": (7, b"/org/freedesktop/systemd1/job/7")}, {"has_job": True}),
    ({"InvocationID": [0xAB, *range(15)]}, {"invocation_id": "ab000102030405060708090a0b0c0d0e"}),
    ({"InvocationID": []}, {"invocation_id": None}),
    (
        {"ExecMainPID": 7, "ExecMainCode": 2, "ExecMainStatus": 15},
        {"main_pid": 7, "main_code": 2, "main_status": 15},
    ),
    (
        {"ExecMainStartTimestamp": 5, "ExecMainExitTimestamp": 0},
        {"main_started_at": 5, "main_exited_at": None},
    ),
    ({"StateChangeTimestamp": 9}, {"changed_at": 9}),
    ({"LogLevelMax": -1}, {"log_level": -1}),
    ({"ExecStartPre": []}, {}),
    (
        {"ExecStartPre": [(b"sh", [b"sh"], False, 1, 1, 2, 2, 3, 1, 7)]},
        {"setup_pid": 3, "setup_code": 1, "setup_status": 7},
    ),
]


@pytest.mark.parametrize(("changes", "fields"), UPDATES)
def test_updated(changes: dict[str, object], fields: dict[str, Any]) -> None:
    before = Unit("activating", "start", invocation_id="1", main_started_at=1, has_job=True)
    assert updated(before, changes) == replace(before, **fields)
