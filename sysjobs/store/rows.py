"""Rows of the table of jobs and what they mean; a row that can't be what sysjobs wrote is refused by name."""

from __future__ import annotations

import sqlite3
from typing import Any

from sysjobs.conditions import Conditions, Hold, dump_dependencies, load_dependencies
from sysjobs.devices import dump_shares, load_shares
from sysjobs.jobs import Cancellation, Exit, Job, Notice, Reason, Sent, Status, Task, Usage
from sysjobs.payload import Payload, load_payload, payload_of_task
from sysjobs.ports import RowDamaged
from sysjobs.resources import Amount, load_others
from sysjobs.retry import load_retry
from sysjobs.store.arrays import dump_state, load_array, load_spec
from sysjobs.store.attempts import dump_past, dump_wish, load_past, load_wish

_TYPES: dict[str, type] = {"INTEGER": int, "TEXT": str, "REAL": float, "BLOB": bytes}


class Rows:
    """Reads the rows of one database, whose columns have the types that it says."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._types = {
            name: (_TYPES[kind],) if needed or key else (_TYPES[kind], type(None))
            for _, name, kind, needed, _, key in connection.execute("PRAGMA table_info(jobs)")
        }

    def job(self, found: sqlite3.Row) -> Job:
        """Raises RowDamaged."""
        # Of itself it compares a name with those of all columns.
        row = dict(zip(found.keys(), found, strict=True))
        try:
            self._check(row)
            return _job(row)
        except ValueError as error:
            raise RowDamaged(row["id"], str(error)) from None

    def _check(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            if type(value) not in self._types[name]:
                raise ValueError(f"its {name} is {value!r}")
        for name in ("status", "user", "name"):
            if not row[name].isascii():
                # Bytes that aren't UTF-8 were let through, so that they spoil this row alone.
                row[name].encode()
        for names in _TOGETHER:
            if len({row.get(name) is None for name in names}) > 1:
                raise ValueError(f"of {', '.join(names)} only some are there")
        status = Status(row["status"])
        if status.terminal != (row["ended_at"] is not None):
            raise ValueError(f"it is {status}, but its end is {row['ended_at']}")
        if status.launched and row["boot_id"] is None:
            raise ValueError(f"it is {status}, but was never started")
        if status is not Status.INIT and row.get("held_uid") is not None:
            raise ValueError(f"it is {status}, but held")


_TOGETHER = (
    ("reason_code", "reason"),
    ("boot_id", "shard", "started_at"),
    ("cancel_at", "cancel_uid", "cancel_user", "cancel_reason", "cancel_grace"),
    ("held_uid", "held_user"),
    ("notice_signal", "notice_before"),
    ("sent_signal", "sent_user", "sent_at"),
    ("array_spec", "array_state"),
    ("array_id", "task"),
)


def _job(row: dict[str, Any]) -> Job:
    cancelled = row["cancel_at"] is not None
    return Job(
        id=row["id"],
        uid=row["uid"],
        gid=row["gid"],
        user=row["user"],
        name=row["name"],
        amount=Amount(
            row["cpus"],
            row["memory"],
            row.get("gpus", 0),
            row.get("gpu_model", ""),
            load_others(row.get("others")),
        ),
        has_setup=bool(row["has_setup"]),
        time_limit=row["time_limit"],
        grace=row["grace"],
        submitted_at=row["submitted_at"],
        status=Status(row["status"]),
        reason=Reason(row["reason_code"], row["reason"]) if row["reason"] is not None else None,
        attempt=row["attempt"],
        boot_id=row["boot_id"],
        shard=row["shard"],
        started_at=row["started_at"],
        deadline=row["deadline"],
        shares=load_shares(row.get("devices")),
        invocation_id=row["invocation_id"],
        running_at=row["running_at"],
        ended_at=row["ended_at"],
        main=_exit(row["exit_code"], row["signal"], row["dumped"]),
        setup=_exit(row["setup_exit_code"], row["setup_signal"], row["setup_dumped"]),
        # Earlier schemas haven't got these, and may have to be repaired.
        usage=Usage(row.get("cpu_time"), row.get("peak_memory"), row.get("io_read"), row.get("io_written")),
        priority=row.get("priority", 0),
        conditions=Conditions(row.get("begin_at"), load_dependencies(row.get("dependencies"))),
        hold=None if row.get("held_uid") is None else Hold(row["held_uid"], row["held_user"]),
        cancellation=Cancellation(
            row["cancel_uid"], row["cancel_user"], row["cancel_reason"], row["cancel_at"], row["cancel_grace"]
        )
        if cancelled
        else None,
        timed_out=bool(row["timed_out"]),
        hard_cpus=bool(row.get("hard_cpus")),
        notice=None
        if row.get("notice_signal") is None
        else Notice(row["notice_signal"], row["notice_before"]),
        noticed=bool(row.get("noticed")),
        sent=None
        if row.get("sent_signal") is None
        else Sent(
            row["sent_signal"],
            row["sent_user"],
            row["sent_at"],
            bool(row["sent_everybody"]),
            bool(row["sent_due"]),
        ),
        kill_at=row["kill_at"],
        array=load_array(row.get("array_spec"), row.get("array_state")),
        retry=load_retry(row.get("retry")),
        past=load_past(row.get("past")),
        over=bool(row.get("over")),
        requeue=load_wish(row.get("requeue")),
        task=None if row.get("array_id") is None else Task(row["array_id"], row["task"]),
    )


def _exit(code: int | None, signal: int | None, dumped: int) -> Exit | None:
    return None if code is None and signal is None else Exit(code, signal, bool(dumped))


def payload(job_id: int, row: sqlite3.Row | None) -> Payload:
    """What a job runs, from a row of the statement `payload`. Raises RowDamaged."""
    try:
        if row is None:
            raise ValueError("it is gone")
        if row["data"] is None and row["environment_id"] is not None:
            raise ValueError("its environment is gone")
        found = load_payload(row["payload"], row["data"])
        if row["task"] is None:
            return found
        indices, params = load_spec(row["array_spec"])
        return payload_of_task(found, row["id"], indices, params, row["task"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RowDamaged(job_id, f"what it runs can't be read ({error})") from None


def changeable(job: Job) -> dict[str, object]:
    """The columns of what can change of a job."""
    reason, main, setup, cancellation = (
        job.reason,
        job.main or Exit(),
        job.setup or Exit(),
        job.cancellation,
    )
    return {
        "id": job.id,
        "status": job.status.value,
        "reason_code": reason and reason.code,
        "reason": reason and reason.text,
        "attempt": job.attempt,
        "boot_id": job.boot_id,
        "shard": job.shard,
        "started_at": job.started_at,
        "deadline": job.deadline,
        "devices": dump_shares(job.shares),
        "invocation_id": job.invocation_id,
        "running_at": job.running_at,
        "ended_at": job.ended_at,
        "exit_code": main.code,
        "signal": main.signal,
        "dumped": main.dumped,
        "setup_exit_code": setup.code,
        "setup_signal": setup.signal,
        "setup_dumped": setup.dumped,
        "cpu_time": job.usage.cpu_time,
        "peak_memory": job.usage.peak_memory,
        "io_read": job.usage.read,
        "io_written": job.usage.written,
        "cancel_uid": cancellation and cancellation.uid,
        "cancel_user": cancellation and cancellation.user,
        "cancel_reason": cancellation and cancellation.reason,
        "cancel_at": cancellation and cancellation.at,
        "cancel_grace": cancellation and cancellation.grace,
        "timed_out": job.timed_out,
        "kill_at": job.kill_at,
        "noticed": job.noticed,
        "sent_signal": job.sent and job.sent.signal,
        "sent_user": job.sent and job.sent.user,
        "sent_at": job.sent and job.sent.at,
        "sent_everybody": job.sent is not None and job.sent.everybody,
        "sent_due": job.sent is not None and job.sent.due,
        "dependencies": dump_dependencies(job.conditions.dependencies),
        "held_uid": job.hold and job.hold.uid,
        "held_user": job.hold and job.hold.user,
        "array_state": job.array and dump_state(job.array),
        "begin_at": job.conditions.begin_at,
        "past": dump_past(job.past),
        "over": job.over,
        "requeue": dump_wish(job.requeue),
        "priority": job.priority,
        "cpus": job.amount.cpus,
        "memory": job.amount.memory,
        "gpus": job.amount.gpus,
        "gpu_model": job.amount.model,
        "time_limit": job.time_limit,
    }
