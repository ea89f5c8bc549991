"""What one commit covers: changed jobs, the answers that wait for it, and what is to be done about them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextlib import suppress

from sysjobs.engine import ConnectionLost
from sysjobs.errors import SysjobsError
from sysjobs.jobs import Job
from sysjobs.ports import RowRefused, Storage, StorageFailed, storage_refusal

log = logging.getLogger(__name__)

Reply = Callable[[SysjobsError | None], None]
Effect = Callable[[], object]


class Batch:
    """Gathers in one round of the loop; is written whole or not at all; only then is answered and acted.

    `wake` is called when there is something in it.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.changed: dict[int, Job] = {}
        self.replies: list[Reply] = []
        # What is to be done about the changes; and what follows from an earlier commit, whatever becomes of
        # this one.
        self.effects: list[Effect] = []
        self.due: list[Effect] = []
        # Why a row of it couldn't even be added.
        self.broken: Exception | None = None

    def reply(self, reply: Reply) -> None:
        """Call it once everything so far is on disk, with the error if that failed."""
        self.replies.append(reply)
        self._wake()

    def do(self, action: Callable[..., object], *arguments: object) -> None:
        """Once all that has changed is on disk."""
        self.effects.append(functools.partial(action, *arguments))
        self._wake()

    def when_written(self, job: Job, action: Callable[..., object], *arguments: object) -> None:
        """Do what follows from a job as it is, once that is on disk; mostly it has long been."""
        actions = self.effects if job.id in self.changed else self.due
        actions.append(functools.partial(action, *arguments))
        self._wake()

    def write(self, storage: Storage) -> None:
        """Commit, and answer. Raises StorageFailed; then nothing since the last commit has happened."""
        try:
            if self.broken is not None:
                raise self.broken
            for job in self.changed.values():
                _save(storage, job)
            storage.commit()
        except storage.failure as error:
            storage.rollback()
            self.refuse(str(error))
            raise StorageFailed(str(error)) from error
        for reply in self.replies:
            reply(None)

    def refuse(self, why: str) -> None:
        for reply in self.replies:
            reply(storage_refusal(why))

    def act(self) -> None:
        """Do what is to be done, once it is written. Raises ConnectionLost."""
        for effect in self.due + self.effects:
            _act(effect)

    def act_on_what_was_due(self) -> None:
        """Do what doesn't wait for this batch, which couldn't be written."""
        with suppress(ConnectionLost):
            for effect in self.due:
                _act(effect)


def _save(storage: Storage, job: Job) -> None:
    try:
        storage.save(job)
    except RowRefused as error:
        # A fault of ours; it must not keep the others from being written.
        log.error("job %d can't be written as %s: %s", job.id, job.status, error)


def _act(effect: Effect) -> None:
    try:
        effect()
    except ConnectionLost:
        raise
    except Exception:
        # Whatever is wrong with one job stays with it.
        log.exception("an action failed: %s", effect)
