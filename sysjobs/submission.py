"""Pure: a submit request as it came over the wire -> a job that can be run, or a refusal that says why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sysjobs.conditions import Conditions, Dependency, Hold, When
from sysjobs.devices import parse_gpus
from sysjobs.engine.script import SHELL
from sysjobs.errors import Refused
from sysjobs.indices import Indices, parse_array
from sysjobs.jobs import Array, Job, Notice
from sysjobs.naming import name_of
from sysjobs.payload import NewJob, Payload, payload_of_task
from sysjobs.protocol import Params
from sysjobs.resources import (
    DEFAULT_CPUS,
    MAX_PRIORITY,
    MAX_SECONDS,
    Amount,
    format_duration,
    parse_cpus,
    parse_duration,
    parse_memory,
    parse_others,
)
from sysjobs.retry import Retry, parse_retry
from sysjobs.selectors import MAX_ID
from sysjobs.signalnames import signal_number
from sysjobs.sweep import combinations, longest, parse_params

SPEC_KEYS = frozenset(
    (
        "command",
        "shell",
        "name",
        "cpus",
        "memory",
        "gpus",
        "resources",
        "cpu_limit",
        "signal",
        "priority",
        "time",
        "grace",
        "setup",
        "workdir",
        "env",
        "hold",
        "begin",
        "after",
        "afterok",
        "afterany",
        "afternotok",
        "singleton",
        "array",
        "params",
        "retries",
        "retry_delay",
        "retry_on",
    )
)
CONTEXT_KEYS = frozenset(("environment", "umask", "limits"))

MAX_KEY = 200
MAX_PATH = 4095
MAX_STRING = 131_071
"""Bytes that the kernel takes as one argument or variable (MAX_ARG_STRLEN, less its NUL)."""

_STACK = 8 << 20
_MAX_STRINGS = 6 << 20
_OVERHEAD = 16_384
"""Room for what the job's own variables and the start script add to the arguments."""


@dataclass(frozen=True, slots=True)
class Submitter:
    uid: int
    gid: int
    user: str


def new_job(
    by: Submitter,
    spec: Params,
    context: Params,
    key: str | None,
    *,
    default_grace: float,
    now: int,
) -> NewJob:
    """The job that these parameters ask for. Raises Refused or ProtocolError."""
    payload = _payload(spec, context)
    time = spec.amount("time")
    grace = spec.amount("grace")
    limit = None if time is None else parse_duration(time, "--time")
    if limit == 0:
        raise Refused(
            "--time 0 leaves the job no time.",
            "Give a positive time, or none for no limit.",
            code="bad-duration",
        )
    if key is not None and not (0 < len(key) <= MAX_KEY and key.isprintable()):
        raise Refused(
            f"The key {key!r:.80} can't be used.",
            f"Give 1 to {MAX_KEY} printable characters.",
            code="bad-key",
        )
    amount = _amount(spec)
    return NewJob(
        uid=by.uid,
        gid=by.gid,
        user=by.user,
        name=name_of(spec.text("name"), payload),
        amount=amount,
        time_limit=limit,
        grace=default_grace if grace is None else parse_duration(grace, "--grace"),
        submitted_at=now,
        payload=payload,
        key=key,
        priority=_priority(spec.integer("priority") or 0),
        conditions=Conditions(_begin(spec.integer("begin"), now)),
        hold=Hold(by.uid, by.user) if spec.flag("hold") else None,
        hard_cpus=_is_hard(spec.text("cpu_limit"), amount),
        notice=_notice(spec.text("signal"), limit),
        retry=_retry(spec),
        array=_array(spec.text("array"), spec.datas("params"), payload),
    )


def _array(text: str | None, texts: Sequence[bytes] | None, payload: Payload) -> Array | None:
    """The tasks that are asked for: by numbers, one for each combination of parameters, or some of those."""
    if text is None and not texts:
        return None
    params = parse_params(texts or ())
    indices, limit = (None, None) if text is None else parse_array(text)
    count = combinations(params)
    if indices is None:
        if not count:
            raise Refused(
                f"--array {text!r:.80} names no tasks.",
                "Give their numbers before the %, as 0-99%10, or --param.",
                code="bad-array",
            )
        indices = Indices((range(count),))
    elif params and indices.highest >= count:
        raise Refused(
            f"--array {text!r:.80}: the parameters have {count:,} combinations, from 0 to {count - 1:,}.",
            "Name some of these, or leave the numbers out for all: --array %10 is their limit alone.",
            code="bad-array",
        )
    if params:
        # The longest there can be.
        _check_sizes(payload_of_task(payload, MAX_ID, indices, params, longest(params)))
    return Array(indices, indices.all, limit, params)


def _retry(spec: Params) -> Retry | None:
    delay = spec.amount("retry_delay")
    seconds = None if delay is None else parse_duration(delay, "--retry-delay")
    return parse_retry(spec.integer("retries"), seconds, spec.texts("retry_on") or ())


def _is_hard(asked: str | None, amount: Amount) -> bool:
    if asked not in (None, "soft", "hard"):
        raise Refused(f"--cpu-limit {asked!r:.80} is none.", "Give soft or hard.", code="bad-cpu-limit")
    if asked == "hard" and not amount.cpus:
        raise Refused(
            "--cpu-limit hard with --cpus 0 leaves the job no CPU.",
            "Give it more, or no hard limit.",
            code="bad-cpu-limit",
        )
    return asked == "hard"


_NOTICE = re.compile(r"(?:SIG)?([A-Z][A-Z0-9+-]{1,9}|\d{1,2})@(.{1,40})", re.ASCII)


def _notice(asked: str | None, limit: float | None) -> Notice | None:
    """'USR1@60': which signal, how long before the time limit."""
    if asked is None:
        return None
    match = _NOTICE.fullmatch(asked.strip().upper())
    number = None if match is None else signal_number(match[1])
    if match is not None and number is None:
        raise Refused(
            f"--signal {asked!r:.80}: there is no signal {match[1]}.",
            "Give one such as USR1, INT or 10; `kill -l` lists them.",
            code="bad-signal",
        )
    if match is None or number is None:
        raise Refused(
            f"--signal {asked!r:.80} is not a signal and a time before the time limit.",
            "Give SIG@SECONDS, such as USR1@60 or TERM@5m.",
            code="bad-signal",
        )
    before = parse_duration(match[2].lower(), "--signal")
    if not before:
        raise Refused(
            f"--signal {asked!r:.80} comes no sooner than the time limit.",
            "Give a time before it, such as USR1@60.",
            code="bad-signal",
        )
    if limit is None:
        raise Refused(
            f"--signal {asked!r:.80} is sent before a time limit, and there is none.",
            "Give --time, too; `sysjobs signal` sends one at any time.",
            code="bad-signal",
        )
    if before >= limit:
        raise Refused(
            f"--signal {asked!r:.80} comes before the time limit, which is {format_duration(limit)}.",
            "Give a longer --time, or a shorter time in --signal.",
            code="bad-signal",
        )
    return Notice(number, before)


def _amount(spec: Params) -> Amount:
    cpus, memory, gpus = spec.amount("cpus"), spec.amount("memory"), spec.amount("gpus")
    count, model = (0, "") if gpus is None else parse_gpus(gpus)
    return Amount(
        DEFAULT_CPUS if cpus is None else parse_cpus(cpus),
        0 if memory is None else parse_memory(memory),
        count,
        model,
        parse_others(spec.mapping("resources")),
    )


def _begin(asked: int | None, now: int) -> int | None:
    if asked is not None and not 0 <= asked <= now + MAX_SECONDS * 1_000_000:
        raise Refused(
            f"--begin {asked} (microseconds since 1970) is no time that a job can wait for.",
            "Give a moment since 1970, no more than 100 years from now.",
            code="bad-begin",
        )
    return asked


def namesakes(new: NewJob, live: Iterable[Job]) -> list[Dependency]:
    """What --singleton waits for: the user's unfinished jobs of this name, in order.

    One of them that does so too stands for all before it: else many that do would name each other.
    """
    found: list[Dependency] = []
    for job in sorted(live, key=lambda job: job.id):
        if (job.uid, job.name) != (new.uid, new.name) or job.status.terminal or job.task:
            continue
        if any(each.when is When.SINGLETON for each in job.conditions.dependencies):
            found.clear()
        found.append(Dependency(When.SINGLETON, job.id))
    return found


def _priority(asked: int) -> int:
    if not -MAX_PRIORITY <= asked <= MAX_PRIORITY:
        raise Refused(
            f"--priority {asked} is out of range.",
            f"Give a number from -{MAX_PRIORITY} to {MAX_PRIORITY}; the highest starts first.",
            code="bad-priority",
        )
    return asked


def _payload(spec: Params, context: Params) -> Payload:
    command, shell = spec.datas("command"), spec.data("shell")
    if (command is None) == (shell is None):
        raise Refused(
            "A job has either a command or a shell text.",
            "Give a command with its arguments, or -c TEXT.",
            code="bad-command",
        )
    if shell is not None:
        command = (SHELL, b"-c", shell)
    if not command or not command[0]:
        raise Refused(
            "The command is empty.", "Give a command with its arguments, or -c TEXT.", code="bad-command"
        )
    workdir = spec.data("workdir") or b"/"
    if not workdir.startswith(b"/") or len(workdir) > MAX_PATH:
        raise Refused(
            f"The working directory {_shown(workdir)} is not an absolute path of at most {MAX_PATH} bytes.",
            "Give the directory's full path.",
            code="bad-workdir",
        )
    umask = context.integer("umask")
    if umask is not None and not 0 <= umask <= 0o777:
        raise Refused(f"The umask {umask} is not one.", "Give a number from 0 to 0777.", code="bad-umask")
    payload = Payload(
        command=command, shell=shell, setup=spec.data("setup"), workdir=workdir, env=spec.env("env"),
        umask=umask, limits=_limits(context), environment=context.datas("environment"),
    )  # fmt: skip
    _check_variables(payload)
    _check_sizes(payload)
    return payload


def _limits(context: Params) -> dict[str, int]:
    limits = {}
    for name, value in context.mapping("limits").items():
        if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 2**63:
            raise Refused(
                f"The limit {name}={value!r} is not a number.",
                "Give a number, or -1 for none.",
                code="bad-limit",
            )
        limits[name] = value
    return limits


def _check_variables(payload: Payload) -> None:
    for entry in payload.environment or ():
        if b"=" not in entry:
            raise Refused(
                f"{_shown(entry)} is not a variable.",
                "Each entry of the environment is NAME=VALUE.",
                code="bad-env",
            )
    for name, _ in payload.env:
        if not name or b"=" in name:
            raise Refused(
                f"{_shown(name)} can't be a variable's name.", "Give --env NAME=VALUE.", code="bad-env"
            )


def _check_sizes(payload: Payload) -> None:
    """Refuse what execve(2) would refuse when the job starts."""
    variables = [*(payload.environment or ()), *(name + b"=" + value for name, value in payload.env)]
    # Setup runs with a little text of ours before it.
    strings = [*payload.command, *variables, (payload.setup or b"") + b" " * 256]
    for text in strings:
        if len(text) > MAX_STRING:
            raise Refused(
                f"{_shown(text)} has {len(text):,} bytes; the kernel takes at most {MAX_STRING:,} in one "
                "argument or variable.",
                "Pass it in a file.",
                code="too-long",
            )
    total = sum(len(text) + 9 for text in strings) + _OVERHEAD
    stack = payload.limits.get("stack", _STACK)
    room = _MAX_STRINGS if stack < 0 else max(min(stack // 4, _MAX_STRINGS), 131_072)
    if total > room:
        raise Refused(
            f"Arguments and environment have {total:,} bytes together; the kernel takes at most {room:,}.",
            "Pass large data in files, or submit with --export none.",
            code="too-long",
        )


def _shown(data: bytes) -> str:
    """The beginning of a string, for a message."""
    text = data[:60].decode("utf-8", "replace")
    return repr(text + ("…" if len(data) > 60 else ""))
