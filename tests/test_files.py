"""Files of a job: where they are, and that nothing which the job's user can write there fools the daemon."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sysjobs.engine import StartFailed, Swept
from sysjobs.engine.files import JobFiles
from sysjobs.engine.script import Traces
from sysjobs.jobs import Job
from sysjobs.payload import Payload
from tests.models import queued

PAYLOAD = Payload((b"true",), setup=b"make")


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    for name in ("scripts", "logs"):
        (tmp_path / name).mkdir()
    return JobFiles(tmp_path / "scripts", tmp_path / "logs")


@pytest.fixture
def job() -> Job:
    return queued(uid=os.getuid(), gid=os.getgid(), has_setup=True)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


LOGS: list[tuple[dict[str, Any], bool, str]] = [
    ({}, False, "alice/42.log"),
    ({}, True, "alice/42.setup.log"),
    ({"attempt": 2}, False, "alice/42.2.log"),
    ({"attempt": 2}, True, "alice/42.2.setup.log"),
    ({"user": "DOMAIN\\alice"}, False, "1000/42.log"),
    ({"user": "a.b-c@d"}, False, "a.b-c@d/42.log"),
    ({"user": ".."}, False, "1000/42.log"),
    ({"user": "a/b"}, False, "1000/42.log"),
    ({"user": "-x"}, False, "1000/42.log"),
    ({"user": ""}, False, "1000/42.log"),
]


@pytest.mark.parametrize(("fields", "setup", "expected"), LOGS)
def test_logs(files: JobFiles, tmp_path: Path, fields: dict[str, Any], setup: bool, expected: str) -> None:
    assert files.log(queued(**fields), setup=setup) == f"{tmp_path}/logs/{expected}"


def test_prepare(files: JobFiles, job: Job, tmp_path: Path) -> None:
    made = files.prepare(job, PAYLOAD)
    modes = {
        path: oct(stat.S_IMODE(Path(path).stat().st_mode))
        for path in (made.directory, made.run, made.setup, made.phase, files.log_directory(job))
    }
    assert list(modes.values()) == ["0o710", "0o600", "0o600", "0o600", "0o700"]
    assert names(Path(made.directory)) == ["1.failed", "1.phase", "1.run", "1.setup", "1.setup-code"]
    assert files.traces(job) == Traces()


def test_what_somebody_else_may_do(files: JobFiles, tmp_path: Path) -> None:
    """Read scripts, read and write traces: nothing is given away."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    made = files.prepare(queued(uid=1000, gid=1000), Payload((b"true",)))
    paths = [Path(made.directory), Path(made.run), Path(made.phase), Path(made.failed)]
    assert {path.stat().st_uid for path in paths} == {0}
    for directory in (*tmp_path.parents, tmp_path, tmp_path / "scripts"):
        if directory.is_relative_to("/tmp/"):
            directory.chmod(0o711)
    for uid, modes in ((1000, ["-x", "r-", "rw", "rw"]), (1001, ["--", "--", "--", "--"])):
        command = 'for f; do [ -r "$f" ] && printf r || printf -; [ -w "$f" ] && printf w || printf -; done'
        done = subprocess.run(
            ["sh", "-c", command, "sh", *paths], user=uid, group=1000, extra_groups=[], stdout=-1, check=True
        )
        assert done.stdout.decode() == "".join(modes).replace("x", "-")


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of a small file system."""
    values = list(os.statvfs("/"))
    values[1:3] = [4096, 40]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(values))
    return 40 * 4096


def test_scripts_that_take_up_more_than_a_users_share(files: JobFiles, job: Job, room: int) -> None:
    payload = Payload((b"true",), env=((b"A", b"x" * (room // 20)),))
    for number in range(1, 5):
        files.prepare(replace(job, id=number, has_setup=False), payload)
    with pytest.raises(StartFailed) as caught:
        files.prepare(replace(job, id=5, has_setup=False), payload)
    assert caught.value.reason.code == "too-many-scripts"
    assert caught.value.reason.text.endswith(" of the 40K that a user may have.")
    # A crash between the two changes nothing.
    again = JobFiles(*(Path(path).parent for path in (files.files(job).directory, files.log_directory(job))))
    again.sweep(lambda job_id: job_id != 4)
    again.prepare(replace(job, id=5, has_setup=False), payload)
    with pytest.raises(StartFailed):
        again.prepare(replace(job, id=6, has_setup=False), payload)
    again.clean(replace(job, id=5))
    again.prepare(replace(job, id=6, has_setup=False), payload)


def test_room_that_has_to_be_made(
    files: JobFiles, job: Job, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is none at first, and a trace that was made to grow has it."""
    grown = files.files(replace(job, id=1)).phase
    files.prepare(replace(job, id=1), PAYLOAD)
    Path(grown).write_bytes(b"run\n" + bytes(1 << 20))
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if Path(grown).stat().st_size > 1 << 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)
    made = files.prepare(replace(job, id=2), PAYLOAD)
    assert Path(made.run).read_bytes()
    assert Path(grown).stat().st_size == 64
    assert files.traces(replace(job, id=1)) == Traces("run")
    # What had to be tried again is counted, and once.
    with suppress(StartFailed):
        for number in range(3, 100):
            files.prepare(replace(job, id=number), PAYLOAD)
    scripts = [*tmp_path.glob("scripts/*/1.run"), *tmp_path.glob("scripts/*/1.setup")]
    total = sum(path.stat().st_size for path in scripts)
    assert room // 4 - total * 2 // len(scripts) < total <= room // 4


def test_room_is_made_of_our_files_alone(files: JobFiles, job: Job, tmp_path: Path, monkeypatch: Any) -> None:
    """In a directory that an older version gave to its user, there may be anything."""
    files.prepare(replace(job, id=1), PAYLOAD)
    anothers = tmp_path / ("long" * 50)
    anothers.write_bytes(bytes(1000))
    Path(files.files(replace(job, id=1)).directory, "link").symlink_to(anothers)
    write = os.write
    # The first thing that is written says which job was the last, and may fail.
    full = [OSError(errno.ENOSPC, "No space left on device")] * 2

    def fail_once(fd: int, data: bytes) -> int:
        if full:
            raise full.pop()
        return write(fd, data)

    monkeypatch.setattr(os, "write", fail_once)
    files.prepare(replace(job, id=2), PAYLOAD)
    assert not full
    assert anothers.stat().st_size == 1000


def test_prepare_again_leaves_nothing_of_before(files: JobFiles, job: Job) -> None:
    made = files.prepare(job, PAYLOAD)
    Path(made.phase).write_text("run\n")
    files.prepare(job, PAYLOAD)
    assert files.traces(job) == Traces()


def test_clean(files: JobFiles, job: Job, tmp_path: Path) -> None:
    files.prepare(job, PAYLOAD)
    files.clean(job)
    files.clean(job)
    assert names(tmp_path / "scripts") == []
    assert names(tmp_path / "logs") == [".last-job", "alice"]


def test_a_log_directory_that_is_a_link(files: JobFiles, job: Job, tmp_path: Path) -> None:
    (tmp_path / "logs" / "alice").symlink_to(tmp_path)
    with pytest.raises(StartFailed) as caught:
        files.prepare(job, PAYLOAD)
    assert caught.value.reason.code == "no-files"
    assert "logs/alice" in caught.value.reason.text


def test_a_log_directory_that_cannot_be_made(files: JobFiles, job: Job, tmp_path: Path) -> None:
    (tmp_path / "logs").rmdir()
    with pytest.raises(StartFailed, match=r"logs/alice: No such file or directory\.$"):
        files.prepare(job, PAYLOAD)


TRACES = [
    ({"phase": "run\n"}, Traces("run")),
    ({"phase": "setup\n", "setup-code": "7\n"}, Traces("setup", setup_code=7)),
    ({"phase": "run\n", "failed": "command 127\n"}, Traces("run", "command", 127)),
    ({"phase": "run\n", "failed": "log 2"}, Traces("run", "log", 2)),
    ({"phase": "", "failed": "", "setup-code": ""}, Traces()),
    ({"phase": "ended\n"}, Traces()),
    ({"failed": "heart 5\n"}, Traces(None, None, 5)),
    ({"failed": "command\n"}, Traces(None, "command")),
    ({"failed": "command many\n", "setup-code": "-1\n"}, Traces(None, "command")),
    ({"setup-code": "1234\n"}, Traces()),
    ({"setup-code": "\u0663\n"}, Traces()),
    ({"phase": "run" * 10_000_000}, Traces()),
    ({"phase": "run\nup\n", "failed": "log 2\n 7\n"}, Traces("run", "log", 2)),
]


@pytest.mark.parametrize(("left", "traces"), TRACES)
def test_traces(files: JobFiles, job: Job, left: dict[str, str], traces: Traces) -> None:
    """The user may have written anything there."""
    made = files.prepare(job, PAYLOAD)
    for name, text in left.items():
        Path(made.directory, f"1.{name}").write_text(text)
    assert files.traces(job) == traces


def test_a_trace_that_is_a_fifo(files: JobFiles, job: Job) -> None:
    """Nobody is waited for, whether somebody has it open or not."""
    made = files.prepare(job, PAYLOAD)
    Path(made.phase).unlink()
    os.mkfifo(made.phase)
    assert files.traces(job) == Traces()
    writer = os.open(made.phase, os.O_RDWR)
    assert files.traces(job) == Traces()
    os.close(writer)


def test_traces_are_written_over(files: JobFiles, job: Job) -> None:
    made = files.prepare(job, PAYLOAD)
    for phase in ("setup", "run"):
        subprocess.run(["sh", "-c", f"echo {phase} 1<>{made.phase}"], check=True)
        assert files.traces(job) == Traces(phase)


def test_sweep_leaves_what_is_wanted(tmp_path: Path) -> None:
    for name in ("1", "2", "3", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.run").touch()
    swept = JobFiles(tmp_path, tmp_path).sweep(lambda job_id: job_id == 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "other"]
    assert swept == Swept(removed=(1, 2))


def test_what_can_not_be_swept_keeps_nothing_else(tmp_path: Path) -> None:
    for number in range(1, 30):
        (tmp_path / str(number)).mkdir()
    for number in (7, 8):
        (tmp_path / str(number) / "of somebody").mkdir()
    for name in ("31", "32"):
        (tmp_path / name).touch()
    swept = JobFiles(tmp_path, tmp_path).sweep(lambda job_id: job_id in (8, 32))
    assert swept == Swept(tuple({*range(1, 30)} - {7, 8}), left=(7, 31))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["31", "32", "7", "8"]
