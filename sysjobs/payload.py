"""What a job runs and in what surroundings, byte for byte, and its form in the database."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sysjobs.conditions import Conditions, Dependency, Hold
from sysjobs.indices import Indices
from sysjobs.jobs import Array, Notice, Status
from sysjobs.resources import Amount
from sysjobs.retry import Retry
from sysjobs.sweep import Param, values_of
from sysjobs.wire import Wire, from_wire, to_wire


@dataclass(frozen=True, slots=True)
class Payload:
    """A command and where it was submitted.

    `environment` holds the submitter's NAME=VALUE entries, None for a clean environment; `env` is added to
    it. `limits` are soft limits by name, -1 for unlimited. `shell` is the text of -c, which `command` has
    in it already, kept for people.
    """

    command: tuple[bytes, ...]
    shell: bytes | None = None
    setup: bytes | None = None
    workdir: bytes = b"/"
    env: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    umask: int | None = None
    limits: dict[str, int] = field(default_factory=dict)
    environment: tuple[bytes, ...] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job before it has an id. A `key` makes a repeated submit the same job."""

    uid: int
    gid: int
    user: str
    name: str
    amount: Amount
    time_limit: float | None
    grace: float
    submitted_at: int
    payload: Payload
    priority: int = 0
    conditions: Conditions = Conditions()  # noqa: RUF009 - it is frozen
    hold: Hold | None = None
    hard_cpus: bool = False
    notice: Notice | None = None
    array: Array | None = None
    retry: Retry | None = None

    def after(self, more: Sequence[Dependency]) -> NewJob:
        """The same, and after these too."""
        dependencies = (*self.conditions.dependencies, *more)
        return replace(self, conditions=replace(self.conditions, dependencies=dependencies))

    @property
    def status(self) -> Status:
        """Whether it may wait for its turn at once."""
        return Status.INIT if self.hold or self.conditions else Status.PENDING

    key: str | None = None


def dump_payload(payload: Payload) -> str:
    """Everything but the environment, which the database keeps once for all jobs that share it."""
    data: dict[str, object] = {"command": [to_wire(arg) for arg in payload.command]}
    if payload.shell is not None:
        data["shell"] = to_wire(payload.shell)
    if payload.setup is not None:
        data["setup"] = to_wire(payload.setup)
    data["workdir"] = to_wire(payload.workdir)
    if payload.env:
        data["env"] = [[to_wire(name), to_wire(value)] for name, value in payload.env]
    if payload.umask is not None:
        data["umask"] = payload.umask
    if payload.limits:
        data["limits"] = payload.limits
    return json.dumps(data, separators=(",", ":"))


def load_payload(text: str, environment: bytes | None) -> Payload:
    """The payload as `dump_payload` wrote it, with the environment's entries, each ended by NUL.

    Raises ValueError for what it didn't write.
    """
    try:
        return _payload(json.loads(text), environment)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a payload: {error!r}") from None


def _payload(data: dict[str, Any], environment: bytes | None) -> Payload:
    def optional(value: Wire | None) -> bytes | None:
        return None if value is None else _argument(value)

    command = tuple(_argument(arg) for arg in data["command"])
    umask, limits = data.get("umask"), data.get("limits", {})
    if not command or not isinstance(umask, int | None):
        raise ValueError("not a payload: there is no command, or the umask isn't one")
    if not all(isinstance(value, int) for value in limits.values()):
        raise ValueError("not a payload: limits are numbers")
    return Payload(
        command=command,
        shell=optional(data.get("shell")),
        setup=optional(data.get("setup")),
        workdir=_argument(data["workdir"]),
        env=tuple((_argument(name), _argument(value)) for name, value in data.get("env", ())),
        umask=umask,
        limits=limits,
        environment=None if environment is None else tuple(environment.split(b"\0")[:-1]),
    )


def _argument(value: object) -> bytes:
    data = from_wire(value)
    if b"\0" in data:
        raise ValueError("not a payload: a string has a NUL in it")
    return data


def payload_of_task(
    payload: Payload, array_id: int, indices: Indices, params: Sequence[Param], index: int
) -> Payload:
    """What one task runs: the array's command with its values in place of {name}.

    Variables have the values too, and say which task it is, in Slurm's words as well.
    """
    values = values_of(params, index)
    numbers = {
        b"JOB_ID": array_id, b"TASK_ID": index, b"TASK_COUNT": len(indices), b"TASK_MIN": indices.lowest,
        b"TASK_MAX": indices.highest, b"TASK_STEP": indices.step,
    }  # fmt: skip
    variables = [
        (b"%s_ARRAY_%s" % (system, name), b"%d" % number)
        for system in (b"SYSJOBS", b"SLURM")
        for name, number in numbers.items()
    ]
    env = (*payload.env, *values.items(), *variables)
    if not values:
        return replace(payload, env=env)
    names = b"|".join(map(re.escape, values))
    # ${name} is the shell's, and finds the variable.
    pattern = re.compile(rb"(?<!\$)\{(%s)\}" % names)

    def filled(text: bytes) -> bytes:
        return pattern.sub(lambda match: values[match[1]], text)

    return replace(
        payload,
        command=tuple(map(filled, payload.command)),
        shell=None if payload.shell is None else filled(payload.shell),
        setup=None if payload.setup is None else filled(payload.setup),
        env=env,
    )
