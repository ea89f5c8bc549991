"""Parts of what the daemon tells of a job: its tasks, devices and attempts, as the client shows them."""

from __future__ import annotations

from dataclasses import dataclass

from sysjobs.fields import Fields


@dataclass(frozen=True, slots=True)
class ArrayView:
    """The tasks of an array: which there are, wait and are held (as texts such as '3-99'), and how many run.

    `limit` is how many may run at a time; `ended` has how many ended in which way.
    """

    indices: str
    count: int
    limit: int | None
    waiting: str | None
    held: str | None
    running: int
    ended: dict[str, int]

    @classmethod
    def from_wire(cls, raw: object) -> ArrayView:
        get = Fields(raw)
        return cls(
            indices=get.text("indices"),
            count=get.integer("count"),
            limit=get.integer_or_none("limit"),
            waiting=get.text_or_none("waiting"),
            held=get.text_or_none("held"),
            running=get.integer("running"),
            ended=get.counts("ended"),
        )


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """What a job has of a device: all of it, 1, or less."""

    name: str
    share: float
    model: str | None
    uuid: str | None

    @classmethod
    def from_wire(cls, raw: object) -> DeviceShare:
        get = Fields(raw)
        return cls(get.text("name"), get.number("share"), get.text_or_none("model"), get.text_or_none("uuid"))


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt of a job that was followed by another one; as JobView has it of the last."""

    number: int
    status: str
    reason_code: str | None
    reason: str | None
    exit_code: int | None
    signal: int | None
    started_at: int
    ended_at: int
    cpu_time: float | None
    peak_memory: int | None
    io_read: int | None
    io_written: int | None
    log: str | None

    @classmethod
    def from_wire(cls, raw: object) -> AttemptView:
        get = Fields(raw)
        return cls(
            number=get.integer("number"),
            status=get.text("status"),
            reason_code=get.text_or_none("reason_code"),
            reason=get.text_or_none("reason"),
            exit_code=get.integer_or_none("exit_code"),
            signal=get.integer_or_none("signal"),
            started_at=get.integer("started_at"),
            ended_at=get.integer("ended_at"),
            cpu_time=get.number_or_none("cpu_time"),
            peak_memory=get.integer_or_none("peak_memory"),
            io_read=get.integer_or_none("io_read"),
            io_written=get.integer_or_none("io_written"),
            log=get.text_or_none("log"),
        )
