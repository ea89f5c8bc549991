"""Tasks of arrays: those that have their turn, and those that haven't got an id yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sysjobs.conditions import Conditions
from sysjobs.indices import Indices, Places
from sysjobs.jobs import Job, Key, Reason, Status, Task
from sysjobs.ports import Storage
from sysjobs.transition import canceller, unstarted


def task_of(array: Job, index: int, job_id: int | None = None) -> Job:
    """A task of an array, as a job that waits for its turn. Without an id of its own it has the array's."""
    return replace(
        unstarted(array),
        id=array.id if job_id is None else job_id,
        conditions=Conditions(),
        hold=None,
        array=None,
        task=Task(array.id, index),
        status=Status.PENDING,
        reason=None,
        ended_at=None,
        main=None,
        cancellation=None,
    )


def is_without_turn(job: Job) -> bool:
    """Whether it is a task that had no turn (yet): it has no id, no unit and no log of its own."""
    return job.task is not None and job.task.array_id == job.id


def by_status(job: Job) -> dict[Status, Places]:
    """The tasks of an array that had no turn (yet)."""
    assert job.array is not None
    waiting = Status.PENDING if job.status is Status.RUNNING else job.status
    held = job.status if job.status.terminal else Status.INIT
    found: dict[Status, Places] = {waiting: job.array.waiting}
    found[held] = found.get(held, Places()) | (job.array.unstarted - job.array.waiting)
    for places, _ in job.array.cancelled:
        found[Status.CANCELLED] = found.get(Status.CANCELLED, Places()) | places
    return found


def without_turn(array: Job, place: int) -> Job:
    """A task that had no turn (yet): it waits, is held, or was given up."""
    assert array.array is not None
    task = task_of(array, array.array.indices.at(place))
    for places, cancellation in array.array.cancelled:
        if place in places:
            text = f"Cancelled before it started by {canceller(task, cancellation)}."
            return replace(
                task,
                status=Status.CANCELLED,
                reason=Reason("cancelled", text),
                cancellation=cancellation,
                ended_at=max(cancellation.at, task.submitted_at),
            )
    if array.status.terminal:
        # It was to come after what can never be.
        return replace(task, status=array.status, reason=array.reason, ended_at=array.ended_at)
    for places, hold in array.array.held:
        if place in places:
            return replace(task, status=Status.INIT, hold=hold)
    status = Status.INIT if array.status is Status.INIT else Status.PENDING
    return replace(task, status=status, hold=array.hold)


def given_up(array: Job, indices: Iterable[int]) -> list[Job]:
    """Those of these tasks of an array that are over without having had a turn."""
    if array.array is None or not (array.array.cancelled or array.status.terminal):
        return []
    gone = array.array.unstarted if array.status.terminal else Places()
    for those, _ in array.array.cancelled:
        gone |= those
    places = (array.array.indices.place(index) for index in indices)
    return [without_turn(array, place) for place in places if place is not None and place in gone]


def find(key: Key, jobs: Mapping[int, Job], tasks: LiveTasks, storage: Storage) -> Job | None:
    """A job by its key, as memory or else the database has it.

    Raises RowDamaged, or what the database raises.
    """
    if isinstance(key, int):
        return jobs.get(key) or storage.get(key)
    if (job_id := tasks.get(key)) is not None:
        return jobs[job_id]
    array_id, index = key
    array = jobs.get(array_id) or storage.get(array_id)
    if array is None or array.array is None or (place := array.array.indices.place(index)) is None:
        return None
    found = storage.find_tasks(array_id, Indices((range(index, index + 1),)))
    return find(found[index], jobs, tasks, storage) if found else without_turn(array, place)


class LiveTasks:
    """Tasks that had their turn and haven't ended: the ids of their jobs, by array and index."""

    def __init__(self) -> None:
        self._ids: dict[int, dict[int, int]] = {}

    def add(self, job: Job) -> None:
        if job.task is not None:
            self._ids.setdefault(job.task.array_id, {})[job.task.index] = job.id

    def discard(self, job: Job) -> None:
        if job.task is not None and (ids := self._ids.get(job.task.array_id)):
            ids.pop(job.task.index, None)
            if not ids:
                del self._ids[job.task.array_id]

    def of(self, array_id: int) -> list[int]:
        """In the order in which they had their turn."""
        return list(self._ids.get(array_id, {}).values())

    def get(self, key: tuple[int, int]) -> int | None:
        return self._ids.get(key[0], {}).get(key[1])
