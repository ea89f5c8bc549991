"""What a watching client is told: what is on disk, and nothing that the queue only thinks so far."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sysjobs.engine.files import JobFiles
from sysjobs.handlers import Handlers
from sysjobs.jobs import Status
from sysjobs.protocol import Call
from sysjobs.store import Store
from sysjobs.watchers import Watchers
from tests.models import new_job
from tests.test_store import FAILED, states


def test_no_end_is_told_before_it_is_on_disk(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "sysjobs.db")) as store:
        job = store.add(new_job())
        ended = states(job)[FAILED]
        running = replace(job, status=Status.RUNNING, started_at=job.submitted_at, boot_id="b", shard=0)
        queue: Any = SimpleNamespace(jobs={job.id: running}, watchers=Watchers(), online=True)
        queue.find = queue.jobs.get
        clock: Any = SimpleNamespace(monotonic=lambda: 0)
        nothing: Any = None
        files = JobFiles(tmp_path, tmp_path)
        handlers = Handlers(queue, store, nothing, files, nothing, clock, nothing, nothing, nothing)
        followed: list[Any] = []
        peer = SimpleNamespace(uid=job.uid, is_root=False, may_read=lambda uid: True)
        exchange: Any = SimpleNamespace(
            peer=peer, hold=len, when_over=id, follow=followed.append, pump=lambda: None
        )
        exchange.hold = lambda size: None
        handlers.watch(exchange, Call("io.sysjobs.Watch", {"ids": [str(job.id)]}, more=True, oneway=False))
        (news,) = followed
        # It has changed twice: the first is written, the second is not.
        running = replace(running, running_at=job.submitted_at)
        queue.jobs[job.id] = ended
        queue.watchers.tell(running)
        message, is_last = news()
        assert (message["job"]["status"], is_last) == ("RUNNING", False)
        assert news() == (None, False)
        queue.watchers.tell(ended)
        message, is_last = news()
        assert (message["job"]["status"], is_last) == (ended.status, True)
