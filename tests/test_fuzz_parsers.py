"""Every parser, with whatever a user, a file or a kernel may give it: a value, or its documented error."""

from __future__ import annotations

import contextlib
import json
import string
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sysjobs.answers import JobDetails, JobView
from sysjobs.cli.envfile import parse_env
from sysjobs.config import Settings, read_settings
from sysjobs.engine.evidence import Entry, Victim, entries
from sysjobs.engine.files import JobFiles
from sysjobs.engine.oom import Killer, OomKill, find_kill
from sysjobs.engine.script import STEPS, run_script, setup_script
from sysjobs.errors import ConfigError, Refused, SysjobsError
from sysjobs.payload import Payload, dump_payload, load_payload
from sysjobs.protocol import Call, Params, ProtocolError
from sysjobs.selectors import nothing_found, parse_selector
from sysjobs.submission import CONTEXT_KEYS, SPEC_KEYS, Submitter, new_job
from sysjobs.wire import WireError, decode, encode, from_wire, to_wire
from tests.jobs import job as wire_job
from tests.models import queued

ALICE = Submitter(1000, 1000, "alice")

# Integers beyond 64 bits, NUL, lone surrogates and all.
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=12)
    | st.sampled_from(["true", "1", "@", "3-9", "64M", "30s", "/", "A=1", "\ud800", "\0", 10**400])
    | st.fixed_dictionaries({"b64": st.text("QA=/!", max_size=8)})
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


def objects(*keys: str) -> st.SearchStrategy[dict[str, object]]:
    """With some of these keys, and now and then another one."""
    return st.dictionaries(st.sampled_from(keys), VALUES, max_size=6) | st.dictionaries(
        st.text(max_size=8), VALUES, max_size=3
    )


@given(
    st.binary(max_size=200) | st.text(max_size=50).map(str.encode) | VALUES.map(json.dumps).map(str.encode)
)
def test_frames(frame: bytes) -> None:
    with contextlib.suppress(WireError):
        message = decode(frame)
        call = Call.of(message)
        assert isinstance(call.method, str)
        assert call.interface in call.method


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
def test_messages_survive(message: dict[str, object]) -> None:
    data = encode(message)
    assert data.count(b"\0") == 1
    assert decode(data[:-1]) == message


@given(st.binary(max_size=50) | st.text(st.characters(), max_size=20))
def test_strings_survive(value: bytes | str) -> None:
    with contextlib.suppress(UnicodeEncodeError):
        # A surrogate that stands for no byte is no string that a program can have.
        data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
        assert from_wire(to_wire(value)) == data


@given(VALUES)
def test_strings(value: object) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(from_wire(value), bytes)


GETTERS = (
    "has",
    "text",
    "required_text",
    "data",
    "flag",
    "integer",
    "amount",
    "texts",
    "datas",
    "mapping",
    "env",
)


@given(st.sampled_from(GETTERS), objects("name"))
def test_parameters(getter: str, values: dict[str, object]) -> None:
    with contextlib.suppress(ProtocolError, Refused):
        getattr(Params(values, frozenset(("name",))), getter)("name")


@given(objects(*SPEC_KEYS), objects(*CONTEXT_KEYS), st.none() | st.text(st.characters(), max_size=8))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_submissions(spec: dict[str, object], context: dict[str, object], key: str | None) -> None:
    """Refused, or a job that comes out of the database as it went in, and has scripts."""
    with contextlib.suppress(ProtocolError, Refused):
        new = new_job(
            ALICE,
            Params(spec, SPEC_KEYS, "job."),
            Params(context, CONTEXT_KEYS, "context."),
            key,
            default_grace=30.0,
            now=0,
        )
        assert new.name.isprintable()
        assert new.amount.cpus >= 0
        survives(new.payload)


def survives(payload: Payload) -> None:
    environment = None
    if payload.environment is not None:
        environment = b"".join(entry + b"\0" for entry in payload.environment)
    assert load_payload(dump_payload(payload), environment) == payload
    job = queued(has_setup=payload.setup is not None)
    files = JobFiles(Path("/run/sysjobs/jobs"), Path("/var/log/sysjobs")).files(job)
    assert b"\0" not in run_script(job, payload, files, b"/log")
    if payload.setup is not None:
        assert b"\0" not in setup_script(job, payload, files, b"/log")


SPECS = st.fixed_dictionaries(
    {"command": st.lists(st.text(max_size=8).map(to_wire) | st.binary(max_size=8).map(to_wire), min_size=1)},
    optional={
        "name": st.text(st.characters(), max_size=20),
        "cpus": st.floats(0, 100).map(lambda cpus: round(cpus, 3)),
        "memory": st.integers(1, 10**6).map("{}M".format),
        "time": st.integers(1, 10**6),
        "setup": st.binary(max_size=20).map(to_wire),
        "workdir": st.binary(max_size=20).map(lambda path: to_wire(b"/" + path)),
        "env": st.dictionaries(st.text(max_size=5), st.binary(max_size=5).map(to_wire), max_size=3),
    },
)


@given(SPECS)
def test_submissions_that_are_nearly_right(spec: dict[str, object]) -> None:
    with contextlib.suppress(Refused, ProtocolError):
        new = new_job(
            ALICE, Params(spec, SPEC_KEYS), Params({}, CONTEXT_KEYS), None, default_grace=30.0, now=0
        )
        survives(new.payload)


ROWS = st.builds(
    lambda good, other: good | other,
    st.just({"command": ["true"], "workdir": "/"}),
    objects("command", "shell", "setup", "workdir", "env", "umask", "limits"),
)


@given(VALUES.map(json.dumps) | ROWS.map(json.dumps), st.binary())
def test_payloads_of_a_damaged_database(text: str, environment: bytes) -> None:
    with contextlib.suppress(ValueError):
        payload = load_payload(text, environment)
        survives(payload)


@given(st.text(st.characters(), max_size=30) | st.from_regex(r"[@~0-9-]{1,25}", fullmatch=True))
def test_selectors(text: str) -> None:
    with contextlib.suppress(Refused):
        parse_selector(text)
        assert len(nothing_found(text)) < 200


LINES = st.sampled_from(
    [
        "[node]", "[jobs]", "[limits]", "cpus = 2", "cpus = 'x'", "memory = '4G'", "grace = 5",
        "keep-failed = 7", "pending-per-user = 9", "node.cpus = 1", "node = 5", "[[node]]", "[node.x]",
        "unit-messages = 'all'", "x = [", "# y", "a = 1979-05-27", "cpus = {a = 1}", "cpus = inf",
    ]
)  # fmt: skip


@given(st.lists(LINES, max_size=6).map("\n".join).map(str.encode) | st.binary(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_settings(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "sysjobs.toml"
    path.write_bytes(text)
    with contextlib.suppress(ConfigError):
        assert isinstance(read_settings(path), Settings)


@given(st.binary(max_size=60) | st.text(" =#'\"\\\nAB\t", max_size=30).map(str.encode))
def test_env_files(data: bytes) -> None:
    with contextlib.suppress(Refused):
        env = parse_env(data, "FILE")
        assert all(name and "=" not in name and b"\0" not in value for name, value in env.items())


@given(
    st.text(string.ascii_letters + "_", min_size=1),
    st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=20),
)
def test_env_files_say_what_they_mean(name: str, value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_env(f'export {name}="{quoted}" # why\n'.encode(), "FILE") == {name: value.encode()}


JOURNAL = st.sampled_from(
    [
        "oom-kill:constraint=CONSTRAINT_MEMCG", ",oom_memcg=/a", ",task_memcg=/a", ",task=x", ",pid=1",
        ",uid=0", "Killed process 1 (x) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:1kB",
        "(", ")", "\n", ",pid=99999999999", "a: systemd-oomd killed 1 process", "Killed /a due to (",
        "9" * 5000, "sending SIGTERM to process ", "1", ' uid 1 "x": ', ", VmRSS ", " MiB",
    ]
)  # fmt: skip


LINES = st.lists(JOURNAL | st.text(max_size=5), max_size=12).map("".join)
ENTRIES = st.builds(Entry, st.just(1), st.sampled_from(["systemd", *Killer]), LINES)


@given(st.lists(ENTRIES, max_size=3), st.booleans())
def test_lines_of_the_journal(log: list[Entry], all_of_it: bool) -> None:
    found = find_kill(log, Victim("/a", 1, since=0, until=2, all_of_it=all_of_it))
    assert found is None or isinstance(found, OomKill)


FIELDS = st.sampled_from(
    ["MESSAGE", "_TRANSPORT", "SYSLOG_IDENTIFIER", "INVOCATION_ID", "__REALTIME_TIMESTAMP"]
)


@given(st.lists(st.dictionaries(FIELDS, VALUES).map(json.dumps) | st.text(max_size=9), max_size=3))
def test_output_of_journalctl(lines: list[str]) -> None:
    for entry in entries("\n".join(lines).encode("utf-8", "surrogatepass")):
        assert isinstance(entry.at, int)
        assert isinstance(entry.text, str)


@given(st.dictionaries(st.sampled_from(["phase", "failed", "setup-code"]), st.binary(max_size=100)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_traces(tmp_path: Path, left: dict[str, bytes]) -> None:
    """They are the user's to write."""
    files = JobFiles(tmp_path, tmp_path)
    job = queued()
    directory = tmp_path / str(job.id)
    directory.mkdir(exist_ok=True)
    for name in ("phase", "failed", "setup-code"):
        (directory / f"1.{name}").write_bytes(left.get(name, b"\n"))
    traces = files.traces(job)
    assert traces.phase in (None, "setup", "run")
    assert traces.failed_step in (None, *STEPS)
    for code in (traces.failed_code, traces.setup_code):
        assert code is None or 0 <= code <= 999


@pytest.mark.parametrize("cls", [JobView, JobDetails])
@given(st.data())
def test_answers_of_another_daemon(cls: Any, data: st.DataObject) -> None:
    """What the client takes a newer or a broken daemon's answer for."""
    good = wire_job() if cls is JobView else {"job": wire_job(), "grace": 1.0}
    names = [field.name for field in fields(cls)]
    raw = data.draw(VALUES) if data.draw(st.booleans()) else good | data.draw(objects(*names))
    with contextlib.suppress(WireError, SysjobsError):
        assert isinstance(cls.from_wire(raw), cls)
