"""Files that a job needs to start and those that it leaves: scripts, markers, its log directory.

The daemon is root and the jobs' users own these directories, so nothing in them is trusted: no link is
followed, nothing but a small regular file is read, and what is made is given away only when it is complete.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sysjobs.engine import StartFailed
from sysjobs.engine.script import STEPS, Files, Traces, run_script, setup_script
from sysjobs.jobs import Job, Reason
from sysjobs.payload import Payload

_SAFE_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*\$?")
_SMALL = 64
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class JobFiles:
    """Where jobs' files are: `scripts` on a tmpfs, `logs` on disk."""

    def __init__(self, scripts: Path, logs: Path) -> None:
        self._scripts = str(scripts)
        self._logs = str(logs)

    def files(self, job: Job) -> Files:
        return Files(f"{self._scripts}/{job.id}", job.attempt)

    def log_directory(self, job: Job) -> str:
        name = job.user if _SAFE_USER.fullmatch(job.user) else str(job.uid)
        return f"{self._logs}/{name}"

    def log(self, job: Job, *, setup: bool = False) -> str:
        """42.log, 42.setup.log; 42.2.log for attempt 2."""
        attempt = f".{job.attempt}" if job.attempt > 1 else ""
        return f"{self.log_directory(job)}/{job.id}{attempt}{'.setup' if setup else ''}.log"

    def prepare(self, job: Job, payload: Payload) -> Files:
        """Write the scripts and see that the log directory is there. Raises StartFailed."""
        files = self.files(job)
        try:
            self._own_log_directory(job)
            self.clean(job)
            Path(files.directory).mkdir(0o700)
            scripts = {files.run: run_script(job, payload, files, self.log(job).encode())}
            if job.has_setup:
                scripts[files.setup] = setup_script(job, payload, files, self.log(job, setup=True).encode())
            for path, script in scripts.items():
                _write(path, script, job)
            os.chown(files.directory, job.uid, job.gid)
        except OSError as error:
            text = f"Could not be started: {error.filename or files.directory}: {error.strerror}."
            raise StartFailed(Reason("no-files", text)) from None
        return files

    def _own_log_directory(self, job: Job) -> None:
        path = self.log_directory(job)
        try:
            info = Path(path).lstat()
        except FileNotFoundError:
            Path(path).mkdir(0o700)
            os.chown(path, job.uid, job.gid)
            return
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != job.uid:
            raise OSError(0, "is not a directory that belongs to the job's user", path)

    def clean(self, job: Job) -> None:
        """Remove the job's directory under /run."""
        directory = f"{self._scripts}/{job.id}"
        doomed = f"{directory}.old"
        # One that was interrupted may have left that.
        _remove(doomed)
        with suppress(FileNotFoundError):
            # Moved first, so that its owner can't fill it faster than it is emptied under its old name.
            Path(directory).rename(doomed)
            _remove(doomed)

    def sweep(self, wanted: Callable[[int], bool]) -> None:
        """Remove the directories of jobs that nobody wants any more, as a crash can leave them."""
        for directory in Path(self._scripts).iterdir():
            digits = directory.name.removesuffix(".old")
            if digits.isascii() and digits.isdecimal() and not wanted(int(digits)):
                _remove(str(directory))

    def mark_ending(self, job: Job) -> None:
        """Have the job's command not begin any more when its setup ends."""
        with suppress(OSError):
            os.close(os.open(self.files(job).ending, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o400))

    def traces(self, job: Job) -> Traces:
        """What the scripts of the job's attempt left, as far as it makes sense."""
        files = self.files(job)
        phase = _read(files.phase)
        step, _, code = (_read(files.failed) or "").partition(" ")
        return Traces(
            phase=phase if phase in ("setup", "run") else None,
            failed_step=step if step in STEPS else None,
            failed_code=_code(code),
            setup_code=_code(_read(files.setup_code)),
        )


def _remove(path: str) -> None:
    """Remove a directory that a user could fill at will, as far as that goes.

    Not shutil.rmtree(): its recursion ends in an error where directories are nested deeply enough. Here what
    is in a directory moves up to the top, so that nothing is ever deep.
    """
    with suppress(OSError):
        top = os.open(path, _DIRECTORY)
        try:
            # Not to be foreseen, so that nobody has a directory in its way.
            moved = (f"{os.urandom(8).hex()}.{number}" for number in itertools.count())
            names = _names(top)
            while names:
                name = names.pop()
                with suppress(IsADirectoryError):
                    os.unlink(name, dir_fd=top)
                    continue
                inner = os.open(name, _DIRECTORY, dir_fd=top)
                try:
                    for child in _names(inner):
                        names.append(next(moved))
                        os.rename(child, names[-1], src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        Path(path).rmdir()


def _names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def _write(path: str, text: bytes, job: Job) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o400)
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(fd, view) :]
        os.fchown(fd, job.uid, job.gid)
    finally:
        os.close(fd)


def _read(path: str) -> str | None:
    """The line in a small file that somebody else may have put there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return os.read(fd, _SMALL).decode("ascii", "replace").strip()
    finally:
        os.close(fd)


def _code(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,3}", text, re.ASCII) else None
