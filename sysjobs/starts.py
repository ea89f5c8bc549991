"""To ask for a job's unit; what keeps it from starting is its own fault, or passes."""

from __future__ import annotations

import logging

from sysjobs.engine import Engine, StartFailed, StartPostponed, StartResult
from sysjobs.jobs import Job, Reason
from sysjobs.ports import RowDamaged, Storage

log = logging.getLogger(__name__)


def start(engine: Engine, storage: Storage, job: Job) -> StartResult:
    """Raises StartFailed, StartPostponed, ConnectionLost."""
    try:
        payload = storage.payload(job.id)
    except RowDamaged as error:
        log.error("%s", error.message)
        text = "Could not be started: its record in the database is damaged."
        raise StartFailed(Reason("damaged", text)) from None
    except storage.failure as error:
        raise StartPostponed(Reason("no-database", f"The database can't be read: {error}.")) from None
    return engine.start(job, payload)
