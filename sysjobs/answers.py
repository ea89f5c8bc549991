"""What the daemon tells of a job, as the client shows it: checked and typed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar

from sysjobs.answer_parts import ArrayView, AttemptView, DeviceShare
from sysjobs.fields import Fields
from sysjobs.jobs import TERMINAL


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as the queue lists it. Times are microseconds since 1970 (UTC), memory is in bytes."""

    id: int
    name: str
    user: str
    uid: int
    # A text, for a newer daemon may know statuses that this client doesn't.
    status: str
    reason_code: str | None
    reason: str | None
    exit_code: int | None
    signal: int | None
    attempt: int
    submitted_at: int
    started_at: int | None
    ended_at: int | None
    cpus: float
    memory: int | None
    gpus: str | None
    resources: dict[str, int]
    priority: int
    # Seconds, bytes; None where it isn't known.
    cpu_time: float | None
    peak_memory: int | None
    io_read: int | None
    io_written: int | None
    unit: str
    log: str | None
    array: ArrayView | None
    # Of a task: its array's id, its own index there, and what it got of a sweep.
    array_id: int | None
    task: int | None
    params: dict[str, str]

    @property
    def label(self) -> str:
        """What it goes by: '42', or '42_7' for a task, which has an id of its own once it has its turn."""
        return str(self.id) if self.task is None else f"{self.array_id}_{self.task}"

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL or self.ended_at is not None

    @classmethod
    def from_wire(cls, raw: object) -> JobView:
        get = Fields(raw)
        return cls(
            id=get.integer("id"),
            name=get.text("name"),
            user=get.text("user"),
            uid=get.integer("uid"),
            status=get.text("status"),
            reason_code=get.text_or_none("reason_code"),
            reason=get.text_or_none("reason"),
            exit_code=get.integer_or_none("exit_code"),
            signal=get.integer_or_none("signal"),
            attempt=get.integer("attempt"),
            submitted_at=get.integer("submitted_at"),
            started_at=get.integer_or_none("started_at"),
            ended_at=get.integer_or_none("ended_at"),
            cpus=get.number("cpus"),
            memory=get.integer_or_none("memory"),
            gpus=get.text_or_none("gpus"),
            resources=get.counts("resources"),
            priority=get.integer_or_none("priority") or 0,
            cpu_time=get.number_or_none("cpu_time"),
            peak_memory=get.integer_or_none("peak_memory"),
            io_read=get.integer_or_none("io_read"),
            io_written=get.integer_or_none("io_written"),
            unit=get.text("unit"),
            log=get.text_or_none("log"),
            array=None if get.values.get("array") is None else ArrayView.from_wire(get.values["array"]),
            array_id=get.integer_or_none("array_id"),
            task=get.integer_or_none("task"),
            params=get.mapping("params"),
        )


@dataclass(frozen=True, slots=True)
class JobDetails:
    """A job with all that is known of it. What belongs to the submitter alone is None for others."""

    job: JobView
    warnings: list[str]
    spec: dict[str, Any] | None
    time_limit: float | None
    grace: float
    setup_log: str | None
    setup_exit_code: int | None
    setup_signal: int | None
    running_at: int | None
    core_dumped: bool | None
    peak_memory: int | None
    # Which one of how many that wait for their turn, where priorities and numbers decide.
    position: int | None
    pending: int | None
    invocation_id: str | None
    boot_id: str | None
    slice: str | None
    cancelled_by: str | None
    cancel_reason: str | None
    cancel_requested_at: int | None
    held_by: str | None
    begin_at: int | None
    dependencies: list[str]
    devices: list[DeviceShare]
    cpu_limit: str | None
    signal_before_limit: str | None
    sent_signal: int | None
    sent_by: str | None
    sent_at: int | None
    # Such as '3 times after any failure, first in 1s'; and the attempts before this one.
    retry: str | None
    attempts: list[AttemptView]

    @classmethod
    def from_wire(cls, raw: object) -> JobDetails:
        get = Fields(raw)
        spec, core_dumped = get.values.get("spec"), get.values.get("core_dumped")
        return cls(
            job=JobView.from_wire(get.values.get("job")),
            warnings=get.texts("warnings"),
            spec=spec if isinstance(spec, dict) else None,
            time_limit=get.number_or_none("time_limit"),
            grace=get.number("grace"),
            setup_log=get.text_or_none("setup_log"),
            setup_exit_code=get.integer_or_none("setup_exit_code"),
            setup_signal=get.integer_or_none("setup_signal"),
            running_at=get.integer_or_none("running_at"),
            core_dumped=core_dumped if isinstance(core_dumped, bool) else None,
            peak_memory=get.integer_or_none("peak_memory"),
            position=get.integer_or_none("position"),
            pending=get.integer_or_none("pending"),
            invocation_id=get.text_or_none("invocation_id"),
            boot_id=get.text_or_none("boot_id"),
            slice=get.text_or_none("slice"),
            cancelled_by=get.text_or_none("cancelled_by"),
            cancel_reason=get.text_or_none("cancel_reason"),
            cancel_requested_at=get.integer_or_none("cancel_requested_at"),
            held_by=get.text_or_none("held_by"),
            begin_at=get.integer_or_none("begin_at"),
            dependencies=get.texts("dependencies"),
            devices=[DeviceShare.from_wire(each) for each in get.values.get("devices") or ()],
            cpu_limit=get.text_or_none("cpu_limit"),
            signal_before_limit=get.text_or_none("signal_before_limit"),
            sent_signal=get.integer_or_none("sent_signal"),
            sent_by=get.text_or_none("sent_by"),
            sent_at=get.integer_or_none("sent_at"),
            retry=get.text_or_none("retry"),
            attempts=[AttemptView.from_wire(each) for each in get.values.get("attempts") or ()],
        )


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What became of one job, or of tasks of an array (`label`: '42', '42_7', '42_[3-9]').

    `outcome` is cancelled, given_up, cancelling, requeued, held, released, signalled, set, not_held,
    held_by_root, array_held, no_array, has_begun, part, unstarted, too_often, ending, waits, sets_up,
    started, ended or denied.
    """

    id: int
    name: str
    status: str
    outcome: str
    label: str

    @classmethod
    def from_wire(cls, raw: object) -> ChangeResult:
        get = Fields(raw)
        job_id = get.integer("id")
        label = get.text_or_none("label") or str(job_id)
        return cls(job_id, get.text("name"), get.text("status"), get.text("outcome"), label)


@dataclass(frozen=True, slots=True)
class NodeUser:
    """What a user has of the node: CPUs, bytes of memory, GPUs."""

    user: str
    uid: int
    running: int
    waiting: int
    cpus: float
    memory: int
    gpus: float

    @classmethod
    def from_wire(cls, raw: object) -> NodeUser:
        get = Fields(raw)
        return cls(
            get.text("user"), get.integer("uid"), get.integer("running"), get.integer("waiting"),
            get.number("cpus"), get.integer("memory"), get.number_or_none("gpus") or 0.0,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """A device of the node: how much of it is in use, from 0 to 1, or why it is out of use."""

    name: str
    model: str
    uuid: str | None
    used: float
    out_of_use: str | None

    @classmethod
    def from_wire(cls, raw: object) -> NodeDevice:
        get = Fields(raw)
        return cls(
            get.text("name"), get.text("model"), get.text_or_none("uuid"), get.number("used"),
            get.text_or_none("out_of_use"),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeState:
    """What the node has for jobs, and who uses it; who drained it, when and why, if it is."""

    cpus: float
    memory: int
    cpus_used: float
    memory_used: int
    devices: list[NodeDevice]
    resources: dict[str, int]
    resources_used: dict[str, int]
    running: int
    waiting: int
    users: list[NodeUser]
    drained_by: str | None
    drained_at: int | None
    drained_for: str | None

    @classmethod
    def from_wire(cls, raw: object) -> NodeState:
        get = Fields(raw)
        return cls(
            cpus=get.number("cpus"),
            memory=get.integer("memory"),
            cpus_used=get.number("cpus_used"),
            memory_used=get.integer("memory_used"),
            devices=[NodeDevice.from_wire(each) for each in get.values.get("devices") or ()],
            resources=get.counts("resources"),
            resources_used=get.counts("resources_used"),
            running=get.integer("running"),
            waiting=get.integer("waiting"),
            users=[NodeUser.from_wire(user) for user in get.values.get("users") or ()],
            drained_by=get.text_or_none("drained_by"),
            drained_at=get.integer_or_none("drained_at"),
            drained_for=get.text_or_none("drained_for"),
        )


@dataclass(frozen=True, slots=True)
class ReportRow:
    """Sums of jobs that ended, of one user, name or day (`key`): counts, seconds, bytes.

    `cpu_time` is what the CPUs were busy with them; `cpu_held` and `gpu_held` what they had, times how long.
    """

    key: str
    jobs: int
    succeeded: int
    failed: int
    cancelled: int
    cpu_time: float
    cpu_held: float
    gpu_held: float
    ran: float
    waited: float
    peak_memory: int | None

    @classmethod
    def from_wire(cls, raw: object) -> ReportRow:
        get = Fields(raw)
        return cls(
            key=get.text(next((name for name in ("user", "name", "day") if name in get.values), "user")),
            jobs=get.integer("jobs"),
            succeeded=get.integer("succeeded"),
            failed=get.integer("failed"),
            cancelled=get.integer("cancelled"),
            cpu_time=get.number("cpu_time"),
            cpu_held=get.number("cpu_held"),
            gpu_held=get.number("gpu_held"),
            ran=get.number("ran"),
            waited=get.number("waited"),
            peak_memory=get.integer_or_none("peak_memory"),
        )

    def to_json(self, by: str) -> dict[str, object]:
        fields = asdict(self)
        return {by: fields.pop("key"), **fields}


class Changed(NamedTuple):
    """What became of the jobs that were meant, those of the ids that mean none, and the ids of jobs whose
    records are damaged."""

    results: list[ChangeResult]
    missing: list[str]
    damaged: list[int]


class Listing(NamedTuple):
    """Jobs by id, how many older ones the limit left out, and the ids of those whose records are damaged."""

    jobs: list[JobView]
    left_out: int
    damaged: list[int]


View = TypeVar("View", JobView, JobDetails, ChangeResult, NodeState, ReportRow)
