"""Pure: what somebody wants changed of a job that was submitted, and of which jobs that can be had."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sysjobs.devices import parse_gpus
from sysjobs.errors import Refused
from sysjobs.indices import MAX_TASKS
from sysjobs.jobs import Job
from sysjobs.protocol import Params
from sysjobs.resources import MAX_PRIORITY, Amount, format_duration, parse_cpus, parse_duration, parse_memory

KEYS = frozenset(("ids", "priority", "time", "cpus", "memory", "gpus", "array_limit"))

NONE = "none"
"""In place of a time limit."""


@dataclass(frozen=True, slots=True)
class Adjustment:
    """None: as it was. `time_limit` 0.0 and `array_limit` 0 mean that there is none."""

    priority: int | None = None
    time_limit: float | None = None
    cpus: int | None = None
    memory: int | None = None
    gpus: tuple[int, str] | None = None
    array_limit: int | None = None

    @property
    def is_for_waiting(self) -> bool:
        """Whether it has what is settled once a job has started."""
        return any(each is not None for each in (self.priority, self.cpus, self.memory, self.gpus))

    def amount(self, before: Amount) -> Amount:
        gpus, model = self.gpus or (before.gpus, before.model)
        return replace(
            before,
            cpus=before.cpus if self.cpus is None else self.cpus,
            memory=before.memory if self.memory is None else self.memory,
            gpus=gpus,
            model=model,
        )

    def limit(self, job: Job) -> float | None:
        """The job's time limit then. Raises Refused where its signal before that would have no time."""
        limit = job.time_limit if self.time_limit is None else self.time_limit or None
        if job.notice is not None and (limit is None or job.notice.before >= limit):
            what = "no time limit" if limit is None else f"a time limit of {format_duration(limit)}"
            raise Refused(
                f"Job {job.label} is to get a signal before its time limit ({job.notice}), and would have "
                f"{what}.",
                "Give it more time than that.",
                code="bad-signal",
            )
        return limit


def parse_adjustment(params: Params) -> Adjustment:
    """Raises Refused, ProtocolError."""
    time, cpus, memory, gpus = (params.amount(name) for name in ("time", "cpus", "memory", "gpus"))
    found = Adjustment(
        priority=params.integer("priority"),
        time_limit=None if time is None else _time(time),
        cpus=None if cpus is None else parse_cpus(cpus),
        memory=None if memory is None else parse_memory(memory),
        gpus=None if gpus is None else parse_gpus(gpus),
        array_limit=params.integer("array_limit"),
    )
    if found == Adjustment():
        raise Refused("Nothing to set was named.", "Say what, such as --priority 10.", code="nothing-to-set")
    if found.priority is not None and not -MAX_PRIORITY <= found.priority <= MAX_PRIORITY:
        raise Refused(
            f"--priority {found.priority} is out of range.",
            f"Give a number from -{MAX_PRIORITY} to {MAX_PRIORITY}; the highest starts first.",
            code="bad-priority",
        )
    if found.array_limit is not None and not 0 <= found.array_limit <= MAX_TASKS:
        raise Refused(
            f"--array-limit {found.array_limit} is out of range.",
            f"Give a number from 1 to {MAX_TASKS:,}, or 0 for no limit.",
            code="bad-array-limit",
        )
    return found


def _time(text: str) -> float:
    if text == NONE:
        return 0.0
    seconds = parse_duration(text, "--time")
    if not seconds:
        raise Refused(
            "--time 0 leaves the job no time.",
            "Give a positive time, or none for no limit.",
            code="bad-duration",
        )
    return seconds
