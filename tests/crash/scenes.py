"""What is done while daemons die, and what must come of it whenever they do.

A scene submits jobs as alice and says how each must end. Afterwards every job ended like that, its status
never changed again, it ran as often as it had to, the next one could start, and nothing of it is left.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from sysjobs.answers import JobView
from sysjobs.client import Client
from sysjobs.config import SYSTEM
from sysjobs.engine.bus import Bus
from tests.crash.model import OK, End
from tests.waiting import wait_until

ALICE = pwd.getpwnam("alice")
UNITS = "sysjobs-[0-9]*.service"


class Watcher:
    """What is told of jobs, which may not be taken back once it is final."""

    def __init__(self, client: Client, path: Path) -> None:
        self._client = client
        self._path = path
        self._final: dict[int, JobView] = {}

    def watch(self, jobs: Collection[int]) -> None:
        """Until all have ended."""
        if jobs:
            for view in self._client.watch(jobs):
                self._see(view)

    def look(self, jobs: Collection[int]) -> list[JobView]:
        """All of them as they are now."""
        views = self._client.list(jobs, limit=0).jobs if jobs else []
        for view in views:
            self._see(view)
        assert [view.id for view in views] == sorted(jobs)
        return views

    def _see(self, view: JobView) -> None:
        if view.ended:
            assert self._final.setdefault(view.id, view) == view
        else:
            assert view.id not in self._final, f"{view} had ended: {self._final[view.id]}"

    def begun(self, job_id: int) -> int:
        """How often its command began, which says so in a file."""
        told = self._path / f"begun.{job_id}"
        return len(told.read_bytes()) if told.exists() else 0


class Scene:
    """Jobs of alice, whose files are in `path`, and the ends that they must have."""

    def __init__(self, client: Client, systemd: Bus, path: Path) -> None:
        self._client = client
        self._systemd = systemd
        self.path = path
        self._ends: dict[int, tuple[End, ...]] = {}

    def job(self, text: str, *ends: End, **options: object) -> int:
        """Submit a job that must end in one of these ways."""
        options = {"cpus": 0, "workdir": self.path} | options
        whose = "${SYSJOBS_ARRAY_JOB_ID-$SYSJOBS_JOB_ID}"
        text = f"echo >>{self.path}/begun.{whose}; {text}"
        job_id = self._client.submit(shell=text, **options)  # type: ignore[arg-type]
        self._ends[job_id] = ends
        return job_id

    def until(self, name: str) -> None:
        """Wait for a file of a job's."""
        wait_until((self.path / name).exists)

    @property
    def waits_to_go(self) -> str:
        return f"until [ -e {self.path}/go ]; do sleep 0.01; done"

    def go(self) -> None:
        (self.path / "go").touch()

    def signal(self, job_id: int, name: str) -> str:
        """What became of a signal."""
        return self._client.signal([job_id], name).results[0].outcome

    def requeue(self, job_id: int) -> str:
        """What became of a requeue."""
        return self._client.requeue([job_id]).results[0].outcome

    def release(self, job_id: int) -> str:
        """What became of a release."""
        return self._client.release([job_id]).results[0].outcome

    def cancel(self, job_id: int, grace: float) -> str:
        """What became of a cancel."""
        return self._client.cancel([job_id], grace=grace).results[0].outcome

    def end(self) -> None:
        """Wait for the last job's end, and check everything."""
        watcher = Watcher(self._client, self.path)
        watcher.watch(self._ends)
        with as_root():
            wait_until(lambda: is_clean(self._systemd))
        for view in watcher.look(self._ends):
            seen = End(view.status, view.exit_code, view.signal, watcher.begun(view.id))
            assert seen in self._ends[view.id], f"{view} is {seen}, not {self._ends[view.id]}"


Act = Callable[[Scene], None]


def is_clean(systemd: Bus) -> bool:
    """No unit of a job is left, and no file of a start."""
    return not any(SYSTEM.scripts.iterdir()) and not systemd.list_units(UNITS)


@contextmanager
def as_root() -> Iterator[None]:
    """The rig is alice, by its effective ids; that is who the daemon sees."""
    os.seteuid(0)
    os.setegid(0)
    try:
        yield
    finally:
        become_alice()


def become_alice() -> None:
    os.setegid(ALICE.pw_gid)
    os.seteuid(ALICE.pw_uid)


def ends_well(scene: Scene) -> None:
    scene.job("exit 0", OK)


def comes_as_it_starts(scene: Scene) -> None:
    scene.job("exit 0", OK)


def fails(scene: Scene) -> None:
    scene.job("exit 3", End("FAILED", 3))


def ends_by_a_signal(scene: Scene) -> None:
    scene.job("kill -SEGV $$", End("FAILED", None, 11))


def is_killed(scene: Scene) -> None:
    scene.job("kill -KILL $$", End("FAILED_DRIVER", None, 9))


def has_a_setup(scene: Scene) -> None:
    scene.job("exit 0", OK, setup="sleep 0.02")


def has_a_setup_that_fails(scene: Scene) -> None:
    scene.job("exit 0", End("FAILED_SETUP", begun=0), setup="exit 5")


def has_no_directory(scene: Scene) -> None:
    gone = scene.path / "gone"
    gone.mkdir(exist_ok=True)
    scene.job(f"{scene.waits_to_go}; rmdir {gone}", OK, cpus=os.cpu_count())
    scene.job("exit 0", End("FAILED_DRIVER", begun=0), cpus=os.cpu_count(), workdir=gone)
    scene.go()


def leaves_children(scene: Scene) -> None:
    scene.job("setsid sleep 1000 & exit 4", End("FAILED", 4))


def wait_for_each_other(scene: Scene) -> None:
    """Each needs the whole machine: what one doesn't give back, the next one waits for in vain."""
    for _ in range(3):
        scene.job("exit 0", OK, cpus=os.cpu_count())


def is_cancelled(scene: Scene) -> None:
    job = scene.job(f"touch {scene.path}/up; exec sleep 1000", End("CANCELLED", None, 15))
    scene.until("up")
    assert scene.cancel(job, grace=30) in ("cancelling", "ended")


def is_cancelled_and_ignores_it(scene: Scene) -> None:
    text = f"trap '' TERM; touch {scene.path}/up; sleep 1000; sleep 1000"
    job = scene.job(text, End("CANCELLED", None, 9))
    scene.until("up")
    assert scene.cancel(job, grace=0.05) in ("cancelling", "ended")


def is_cancelled_in_setup(scene: Scene) -> None:
    job = scene.job("exit 0", End("CANCELLED", begun=0), setup=f"touch {scene.path}/up; exec sleep 1000")
    scene.until("up")
    assert scene.cancel(job, grace=30) in ("cancelling", "ended")


def is_cancelled_while_it_waits(scene: Scene) -> None:
    scene.job(scene.waits_to_go, OK, cpus=os.cpu_count())
    waits = scene.job("exit 0", End("CANCELLED", begun=0), cpus=os.cpu_count())
    assert scene.cancel(waits, grace=0) in ("cancelled", "ended")
    scene.go()


def is_cancelled_as_it_starts(scene: Scene) -> None:
    """Whatever comes first: it ends in one of these ways."""
    job = scene.job(
        "exec sleep 1000", *(End("CANCELLED", None, sig, begun) for sig in (None, 15) for begun in (0, 1))
    )
    scene.cancel(job, grace=30)


def come_after_another(scene: Scene) -> None:
    first = scene.job(scene.waits_to_go, OK)
    last = scene.job("exit 0", OK, afterok=[first])
    never = scene.job("exit 0", End("CANCELLED", begun=0), afternotok=[first])
    scene.job("exit 0", OK, afterany=[last, never])
    scene.go()


def is_held_and_released(scene: Scene) -> None:
    job = scene.job("exit 0", OK, hold=True)
    # A release whose answer was lost is made again.
    assert scene.release(job) in ("released", "not_held", "started", "ended")


def is_sent_a_signal(scene: Scene) -> None:
    """It comes though the daemon dies after it was promised, perhaps twice."""
    text = f"trap 'exit 5' USR1; touch {scene.path}/up; while :; do sleep 0.01; done"
    job = scene.job(text, End("FAILED", 5))
    scene.until("up")
    assert scene.signal(job, "USR1") in ("signalled", "ended")


def is_tried_again(scene: Scene) -> None:
    scene.job("exit 3", End("FAILED", 3, begun=3), retries=2, retry_delay=0)


def succeeds_at_last(scene: Scene) -> None:
    scene.job("[ $SYSJOBS_ATTEMPT = 2 ]", End("SUCCEEDED", 0, begun=2), retries=3, retry_delay=0.01)


def is_requeued(scene: Scene) -> None:
    """A requeue whose answer was lost is made again."""
    text = f"[ $SYSJOBS_ATTEMPT -gt 1 ] || {{ touch {scene.path}/up; exec sleep 1000; }}"
    job = scene.job(text, End("SUCCEEDED", 0, begun=2), End("SUCCEEDED", 0, begun=3))
    scene.until("up")
    assert scene.requeue(job) in ("requeued", "unstarted", "ended")


def is_requeued_and_cancelled(scene: Scene) -> None:
    text = f"touch {scene.path}/up; exec sleep 1000"
    ends = [End("CANCELLED", None, sig, begun) for sig in (None, 15) for begun in (1, 2)]
    job = scene.job(text, *ends)
    scene.until("up")
    scene.requeue(job)
    assert scene.cancel(job, grace=30) in ("cancelled", "cancelling", "ended")


def runs_out_of_time(scene: Scene) -> None:
    # On a busy machine the time is up before the command begins.
    ends = [End("FAILED", None, 15, begun) for begun in (0, 1)]
    scene.job("exec sleep 1000", *ends, time=0.2)


def are_tasks_of_an_array(scene: Scene) -> None:
    """Two at a time; each runs once, whatever is remembered of which had its turn."""
    fails = End("FAILED", begun=3)
    scene.job("exit $((SYSJOBS_ARRAY_TASK_ID / 2))", fails, array="0-2%2", cpus=0, name="tasks")


def are_tasks_that_are_given_up(scene: Scene) -> None:
    array = scene.job(
        f"touch {scene.path}/up; exec sleep 1000", End("CANCELLED", begun=1), array="0-9%1", cpus=0
    )
    scene.until("up")
    assert scene.cancel(array, grace=30) in ("cancelling", "ended")


def come_all_at_once(scene: Scene) -> None:
    stays = scene.job(f"touch {scene.path}/up; exec sleep 1000", End("CANCELLED", None, 15))
    for text, end in (
        ("exit 0", OK),
        ("exit 3", End("FAILED", 3)),
        ("kill -KILL $$", End("FAILED_DRIVER", None, 9)),
    ):
        scene.job(text, end)
    scene.job("exit 0", End("FAILED_SETUP", begun=0), setup="exit 5")
    scene.until("up")
    scene.cancel(stays, grace=30)


SCENES: tuple[Act, ...] = (
    ends_well,
    comes_as_it_starts,
    fails,
    ends_by_a_signal,
    is_killed,
    has_a_setup,
    has_a_setup_that_fails,
    has_no_directory,
    leaves_children,
    wait_for_each_other,
    is_cancelled,
    is_cancelled_and_ignores_it,
    is_cancelled_in_setup,
    is_cancelled_while_it_waits,
    is_cancelled_as_it_starts,
    come_after_another,
    is_held_and_released,
    is_sent_a_signal,
    is_tried_again,
    succeeds_at_last,
    is_requeued,
    is_requeued_and_cancelled,
    runs_out_of_time,
    are_tasks_of_an_array,
    are_tasks_that_are_given_up,
    come_all_at_once,
)

AT_A_START = (comes_as_it_starts,)
"""Scenes that a daemon starts into. Where there is nothing to take up yet, its steps are always the same."""
