"""The queue on disk. Writes gather in one transaction until `commit()`; nothing is promised before that."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from sysjobs.conditions import dump_dependencies
from sysjobs.indices import Indices
from sysjobs.jobs import UNFINISHED, Job, Status
from sysjobs.payload import NewJob, Payload, dump_payload
from sysjobs.ports import RowDamaged, RowRefused
from sysjobs.resources import dump_others
from sysjobs.retry import dump_retry
from sysjobs.scheduling.fairshare import Use
from sysjobs.store import reserve, rows
from sysjobs.store.arrays import dump_spec, dump_state
from sysjobs.store.database import connect, queries
from sysjobs.store.sums import Sums, sums
from sysjobs.tasks import task_of

_SQL = queries()

USES = 100_000
"""Jobs that count for what users had; more would keep the daemon from its work."""

FILL_EVERY = 16
"""Jobs that are added between two looks at the reserve."""


class Kind(Enum):
    """Which of jobs, arrays and tasks of arrays."""

    ALL = "all"
    JOBS = "those that were submitted"
    ARRAYS = "arrays"
    UNITS = "those that run"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs `Store.find` gives: newest `limit` (0: all) of those that match everything set here."""

    uid: int | None = None
    ids: Sequence[range] | None = None
    kind: Kind = Kind.ALL
    statuses: Sequence[Status] | None = None
    limit: int = 0


class Store:
    """The database of one daemon, which alone may have it open."""

    failure = sqlite3.Error

    def __init__(self, path: Path) -> None:
        self._path = path
        self._added = 0
        reserve.take_up(path)
        self._db = connect(path)
        self._rows = rows.Rows(self._db)
        reserve.fill(self._db, path)

    def close(self) -> None:
        reserve.leave(self._path)
        self._db.close()

    def check(self) -> str | None:
        """What is wrong with the database, if anything is."""
        said: str = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        return None if said == "ok" else said

    def write_copy(self, path: Path) -> None:
        """Write all of it to another file, whole or not at all, when nothing is to be committed.

        Raises OSError, sqlite3.Error.
        """
        made = path.with_name(f"{path.name}.new")
        made.unlink(missing_ok=True)
        self._db.execute("VACUUM INTO ?", (str(made),))
        made.rename(path)
        reserve.forget_log(path)

    def _begin(self) -> None:
        if not self._db.in_transaction:
            self._db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make all writes so far durable; raises sqlite3.Error and keeps none of them if that fails."""
        if self._db.in_transaction:
            sys.audit("sysjobs.commit")
            try:
                self._db.execute("COMMIT")
            except sqlite3.Error:
                self.rollback()
                raise
        if self._added >= FILL_EVERY or (self._added and reserve.is_low(self._db)):
            self._added = 0
            reserve.fill(self._db, self._path)

    def rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def find_key(self, uid: int, key: str) -> int | None:
        """The id of the job that this user submitted under this key."""
        row = self._db.execute(_SQL["find_key"], {"uid": uid, "key": key}).fetchone()
        return None if row is None else row[0]

    def add(self, new: NewJob) -> Job:
        self._begin()
        self._added += 1
        payload = new.payload
        row = {
            "uid": new.uid,
            "gid": new.gid,
            "user": new.user,
            "name": new.name,
            "key": new.key,
            "payload": dump_payload(payload),
            "environment_id": self._environment(payload.environment),
            "cpus": new.amount.cpus,
            "memory": new.amount.memory,
            "gpus": new.amount.gpus,
            "gpu_model": new.amount.model,
            "others": dump_others(new.amount.others),
            "hard_cpus": new.hard_cpus,
            "notice_signal": new.notice and new.notice.signal,
            "notice_before": new.notice and new.notice.before,
            "has_setup": payload.setup is not None,
            "time_limit": new.time_limit,
            "grace": new.grace,
            "submitted_at": new.submitted_at,
            "priority": new.priority,
            "begin_at": new.conditions.begin_at,
            "dependencies": dump_dependencies(new.conditions.dependencies),
            "held_uid": new.hold and new.hold.uid,
            "held_user": new.hold and new.hold.user,
            "status": new.status.value,
            "retry": dump_retry(new.retry),
            "array_spec": new.array and dump_spec(new.array),
            "array_state": new.array and dump_state(new.array),
        }
        (job_id,) = self._db.execute(_SQL["add_job"], row).fetchone()
        return Job(
            id=job_id,
            uid=new.uid,
            gid=new.gid,
            user=new.user,
            name=new.name,
            amount=new.amount,
            has_setup=payload.setup is not None,
            time_limit=new.time_limit,
            grace=new.grace,
            submitted_at=new.submitted_at,
            priority=new.priority,
            conditions=new.conditions,
            hold=new.hold,
            hard_cpus=new.hard_cpus,
            notice=new.notice,
            retry=new.retry,
            array=new.array,
            status=new.status,
        )

    def add_task(self, array: Job, index: int) -> Job:
        """The row of one of its tasks, which has its turn."""
        self._begin()
        self._added += 1
        (job_id,) = self._db.execute(_SQL["add_task"], {"id": array.id, "task": index}).fetchone()
        return task_of(array, index, job_id)

    def find_tasks(self, array_id: int, indices: Indices) -> dict[int, int]:
        """The ids of those tasks that had their turn, by their indices, in order of these."""
        ranges = json.dumps(_merged([range(each[0], each[-1] + 1) for each in indices.ranges]))
        found = dict(self._db.execute(_SQL["tasks"], {"id": array_id, "ranges": ranges}))
        return {index: found[index] for index in sorted(found) if indices.place(index) is not None}

    def _environment(self, environment: Iterable[bytes] | None) -> int | None:
        if environment is None:
            return None
        data = b"".join(entry + b"\0" for entry in environment)
        digest = hashlib.sha256(data).digest()
        row = self._db.execute(_SQL["environment"], {"hash": digest}).fetchone()
        if row is None:
            row = self._db.execute(_SQL["add_environment"], {"hash": digest, "data": data}).fetchone()
        environment_id: int = row[0]
        return environment_id

    def save(self, job: Job) -> None:
        """Write everything of a job that can change."""
        self._begin()
        try:
            self._db.execute(_SQL["save_job"], rows.changeable(job))
        except sqlite3.IntegrityError as error:
            raise RowRefused(str(error)) from None

    def reserve(self, job_id: int) -> None:
        """Let no job that is added from now on have this id or a lower one."""
        self._begin()
        self._db.execute(_SQL["begin_ids"])
        self._db.execute(_SQL["reserve_ids"], {"id": job_id})

    def payload(self, job_id: int) -> Payload:
        """What a job runs. Raises RowDamaged."""
        return rows.payload(job_id, self._row("payload", job_id))

    def get(self, job_id: int) -> Job | None:
        """Raises RowDamaged."""
        row = self._row("job", job_id)
        return None if row is None else self._rows.job(row)

    def _row(self, statement: str, job_id: int) -> sqlite3.Row | None:
        """What there is of one job. A page that is damaged is its misfortune alone: RowDamaged."""
        try:
            row: sqlite3.Row | None = self._db.execute(_SQL[statement], {"id": job_id}).fetchone()
        except sqlite3.OperationalError:
            # Of the disk, and may pass.
            raise
        except sqlite3.DatabaseError as error:
            raise RowDamaged(job_id, str(error)) from None
        return row

    def unfinished(self) -> Iterator[Job | RowDamaged]:
        return self._read(self._db.execute(_SQL["unfinished"]))

    def _read(self, found: Iterable[sqlite3.Row]) -> Iterator[Job | RowDamaged]:
        for row in found:
            try:
                yield self._rows.job(row)
            except RowDamaged as error:
                yield error

    def uses(self, now: float) -> Iterator[Use]:
        """What users had of the CPUs by their last jobs, those that run until `now` (seconds since 1970)."""
        rows = self._db.execute(_SQL["uses"], {"jobs": USES})
        for uid, cpus, started_at, ended_at in rows:
            yield Use(uid, cpus, started_at / 1e6, now if ended_at is None else ended_at / 1e6)

    def sums(
        self, by: str, ids: range, since: int, until: int | None, uid: int | None
    ) -> list[tuple[str, Sums]]:
        """See `sums.sums`."""
        return [*sums(self._db, by, ids, since, until, uid)]

    def last_id(self) -> int:
        """The highest id that was given to a job, or reserved."""
        row = self._db.execute(_SQL["last_id"]).fetchone()
        return 0 if row is None else row[0]

    def find(self, wanted: Filter) -> tuple[list[Job], int]:
        """The jobs in order of their ids, and how many older ones the limit leaves out."""
        ids, left_out = self.find_ids(wanted)
        return self.get_all(ids)[0], left_out

    def find_ids(self, wanted: Filter) -> tuple[array[int], int]:
        """The same, without reading the jobs."""
        source, values = _source(wanted)
        limit = wanted.limit or -1
        # As one text, since a row for each takes many times longer.
        text = self._db.execute(
            f"SELECT json_group_array(id) FROM (SELECT jobs.id FROM {source} ORDER BY jobs.id DESC LIMIT ?)",
            [*values, limit],
        ).fetchone()[0]
        ids = array("q", sorted(json.loads(text)))
        left_out = 0
        if len(ids) == limit:
            count = self._db.execute(f"SELECT count(*) FROM {source}", values).fetchone()[0]
            left_out = count - len(ids)
        return ids, left_out

    def get_all(self, ids: Iterable[int]) -> tuple[list[Job], list[int]]:
        """The jobs that have these ids, in order of them, and the ids of those whose rows are damaged."""
        wanted = [*ids]
        try:
            found = [*self._read(self._db.execute(_SQL["jobs"], {"ids": json.dumps(wanted)}))]
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            # The page that is damaged has few of them; the others are read one by one.
            found = [each for job_id in sorted(wanted) if (each := self._get(job_id)) is not None]
        jobs = [each for each in found if isinstance(each, Job)]
        return jobs, [each.job_id for each in found if isinstance(each, RowDamaged)]

    def _get(self, job_id: int) -> Job | RowDamaged | None:
        try:
            return self.get(job_id)
        except RowDamaged as error:
            return error


def _source(wanted: Filter) -> tuple[str, list[object]]:
    """What follows FROM, and its parameters."""
    source = "jobs"
    terms: list[str] = []
    values: list[object] = []
    if wanted.ids is not None:
        # One parameter however many they are: SQLite bounds the size of a statement.
        source = (
            "(SELECT value ->> 0 AS first, value ->> 1 AS last FROM json_each(?)) "
            "CROSS JOIN jobs ON jobs.id BETWEEN first AND last"
        )
        values.append(json.dumps(_merged(wanted.ids)))
    if wanted.uid is not None:
        terms.append("uid = ?")
        values.append(wanted.uid)
    if wanted.kind is Kind.JOBS:
        # An array may have a million tasks, which are passed over by an index.
        terms.append("array_id IS NULL")
        if wanted.ids is None:
            source = f"jobs INDEXED BY {'jobs_task' if wanted.uid is None else 'jobs_of_user'}"
            terms.append("task IS NULL")
    if wanted.kind is Kind.ARRAYS:
        terms.append("array_spec IS NOT NULL")
    if wanted.kind is Kind.UNITS:
        terms.append("array_spec IS NULL")
    if wanted.statuses is not None:
        if set(wanted.statuses) <= set(UNFINISHED):
            # Said in the index's own words, so that SQLite uses it however many jobs have ended.
            terms.append("status IN ('INIT', 'PENDING', 'SETTING_UP', 'RUNNING')")
        terms.append(f"status IN ({', '.join('?' * len(wanted.statuses))})")
        values += [status.value for status in wanted.statuses]
    return (f"{source} WHERE {' AND '.join(terms)}" if terms else source), values


def _merged(ranges: Sequence[range]) -> list[list[int]]:
    """First and last of each, none of which overlaps another."""
    merged: list[list[int]] = []
    for ids in sorted(ranges, key=lambda ids: ids.start):
        if merged and ids.start <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], ids.stop - 1)
        else:
            merged.append([ids.start, ids.stop - 1])
    return merged
