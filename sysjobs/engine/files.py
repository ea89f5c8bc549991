"""Files that a job needs to start and those that it leaves: scripts, traces, its log directory.

The directory of a job under /run is the daemon's. Its user can read the scripts in it and write to the
traces, which are there beforehand, and add, remove or rename nothing. What a user can take up there is
bounded: scripts have a share for each user, and traces that were made to grow are cut back once there is no
room left.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from sysjobs.engine import ConnectionLost, StartFailed, StartPostponed, Swept
from sysjobs.engine.script import STEPS, Files, Traces, run_script, setup_script
from sysjobs.jobs import Job, Reason
from sysjobs.payload import Payload
from sysjobs.resources import format_memory

log = logging.getLogger(__name__)

_SAFE_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*\$?")
_SMALL = 64
"""Bytes of a trace that are read, and that are left of it where room is needed."""

_PAGE = 4096

_SHARE = 4
"""A user's scripts may take up one part in so many of the file system that they are on."""

_SCRIPTS = (".run", ".setup")

_ACL = "system.posix_acl_access"
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_READ, _CHANGE = 4, 2
_NOBODY = 2**32 - 1

PASSING = frozenset(
    (errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO)
)
"""What is wrong with the machine rather than with one job, and may be right again later."""


class JobFiles:
    """Where jobs' files are: `scripts` on a tmpfs, `logs` on disk."""

    def __init__(self, scripts: Path, logs: Path) -> None:
        self._scripts = str(scripts)
        self._logs = str(logs)
        self._mark = f"{logs}/.last-job"
        # Bytes of scripts: by job, with whose they are, and by user.
        self._sizes: dict[int, tuple[int, int]] = {}
        self._held: Counter[int] = Counter()

    def files(self, job: Job) -> Files:
        return Files(f"{self._scripts}/{job.id}", job.attempt)

    def log_directory(self, job: Job) -> str:
        name = job.user if _SAFE_USER.fullmatch(job.user) else str(job.uid)
        return f"{self._logs}/{name}"

    def log(self, job: Job, *, setup: bool = False) -> str:
        """42.log, 42.setup.log; 42.2.log for attempt 2; 42_7.log of a task."""
        attempt = f".{job.attempt}" if job.attempt > 1 else ""
        return f"{self.log_directory(job)}/{job.label}{attempt}{'.setup' if setup else ''}.log"

    def highest_log(self) -> int:
        """The highest id of a job that was started with these logs, as far as that was noted."""
        with suppress(OSError, ValueError):
            return int(Path(self._mark).read_text("ascii"))
        return 0

    def _note(self, job: Job) -> None:
        # The logs themselves are in directories that are closed to the daemon.
        with suppress(OSError):
            if job.id > self.highest_log():
                fd = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                try:
                    os.write(fd, b"%d\n" % job.id)
                finally:
                    os.close(fd)

    def prepare(self, job: Job, payload: Payload) -> Files:
        """Write the scripts and see that the log directory is there. Raises StartFailed, StartPostponed."""
        files = self.files(job)
        scripts = {files.run: run_script(job, payload, files, self.log(job).encode())}
        if job.has_setup:
            scripts[files.setup] = setup_script(job, payload, files, self.log(job, setup=True).encode())
        try:
            self._own_log_directory(job)
            self._note(job)
            try:
                self._write_all(job, files, scripts)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self._make_room()
                self._write_all(job, files, scripts)
        except OSError as error:
            what = f"{error.filename or files.directory}: {error.strerror}."
            if error.errno in PASSING:
                raise StartPostponed(
                    Reason("no-files", f"Can't start now: {what} It is tried again.")
                ) from None
            raise StartFailed(Reason("no-files", f"Could not be started: {what}")) from None
        return files

    def _take(self, job: Job, size: int) -> None:
        """Count scripts against what their user may have."""
        info = os.statvfs(self._scripts)
        share = info.f_frsize * info.f_blocks // _SHARE
        if self._held[job.uid] + size > share:
            text = (
                f"Could not be started: its start script, which has its variables in it, takes "
                f"{format_memory(size)}; those of {job.user}'s running jobs take "
                f"{format_memory(self._held[job.uid])} of the {format_memory(share)} that a user may have."
            )
            raise StartFailed(Reason("too-many-scripts", text))
        self._count(job.id, job.uid, size)

    def _count(self, job_id: int, uid: int, size: int) -> None:
        self._sizes[job_id] = uid, size
        self._held[uid] += size

    def _write_all(self, job: Job, files: Files, scripts: dict[str, bytes]) -> None:
        self.clean(job)
        self._take(job, sum(map(len, scripts.values())))
        Path(files.directory).mkdir(0o700)
        for path, script in scripts.items():
            _write(path, script, job.uid, _READ)
        for path in (files.phase, files.failed, *((files.setup_code,) if job.has_setup else ())):
            # Not empty: what takes up room already can be written to however full it is.
            _write(path, b"\n", job.uid, _READ | _CHANGE)
        os.chown(files.directory, -1, job.gid)
        Path(files.directory).chmod(0o710)

    def _make_room(self) -> None:
        """Cut back traces that their users made grow: no script writes more than a line."""
        for directory in self._directories():
            for path in _files_in(directory):
                info = path.lstat()
                # In a directory of a version that gave it to its user there may be anything, links too.
                if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
                    continue
                if path.suffix not in _SCRIPTS and (info.st_size > _SMALL or info.st_blocks * 512 > _PAGE):
                    log.warning("user id %d filled %s; it is cut back", _user_of(path), path)
                    os.truncate(path, min(info.st_size, _SMALL))

    def _own_log_directory(self, job: Job) -> None:
        path = self.log_directory(job)
        if job.uid != os.geteuid() and _owner(path) == os.geteuid():
            # Made by one that died before it had given it away; what isn't empty is somebody else's.
            with suppress(OSError):
                Path(path).rmdir()
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
        self._remove(job.id)

    def _remove(self, job_id: int) -> None:
        uid, size = self._sizes.pop(job_id, (0, 0))
        self._held[uid] -= size
        directory = Path(self._scripts, str(job_id))
        # One of a version that gave it to its user is closed to us, and stays until the next boot.
        with suppress(FileNotFoundError, PermissionError):
            for path in directory.iterdir():
                path.unlink()
            directory.rmdir()

    def sweep(self, wanted: Callable[[int], bool]) -> Swept:
        """Remove the directories of jobs that nobody wants any more, as a crash can leave them."""
        self._sizes.clear()
        self._held.clear()
        removed: list[int] = []
        left: list[int] = []
        for directory in self._directories():
            job_id = int(directory.name)
            # Somebody may have put there what isn't of ours; one that can't be removed keeps no other.
            with suppress(OSError):
                if wanted(job_id):
                    self._count(job_id, *_scripts_in(directory))
                else:
                    self._remove(job_id)
            if not wanted(job_id):
                (left if os.path.lexists(directory) else removed).append(job_id)
        return Swept(tuple(sorted(removed)), tuple(sorted(left)))

    def _directories(self) -> Iterator[Path]:
        for directory in Path(self._scripts).iterdir():
            if directory.name.isascii() and directory.name.isdecimal():
                yield directory

    def mark_ending(self, job: Job) -> None:
        """Have the job's command not begin any more when its setup ends."""
        with suppress(OSError):
            os.close(os.open(self.files(job).ending, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o400))

    def traces(self, job: Job) -> Traces:
        """What the scripts of the job's attempt left, as far as it makes sense."""
        files = self.files(job)
        try:
            phase = _read(files.phase)
        except PermissionError:
            # Of a version that gave its directory to the user: it began, and that is all there is to know.
            return Traces("run")
        step, _, code = (_read(files.failed) or "").partition(" ")
        return Traces(
            phase=phase if phase in ("setup", "run") else None,
            failed_step=step if step in STEPS else None,
            failed_code=_code(code),
            setup_code=_code(_read(files.setup_code)),
        )


def _owner(path: str) -> int | None:
    with suppress(OSError):
        return os.lstat(path).st_uid
    return None


def _files_in(directory: Path) -> list[Path]:
    with suppress(PermissionError):
        return list(directory.iterdir())
    return []


def _scripts_in(directory: Path) -> tuple[int, int]:
    """Whose they are, and how many bytes."""
    scripts = [path for path in directory.iterdir() if path.suffix in _SCRIPTS]
    uid = max(map(_user_of, scripts), default=0)
    return uid, sum(path.lstat().st_size for path in scripts)


def _write(path: str, text: bytes, uid: int, permissions: int) -> None:
    """Make a file that stays ours, whatever its user may do: an owner can do anything."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(fd, view) :]
        if uid != os.geteuid():
            os.setxattr(fd, _ACL, _acl(uid, permissions))
    finally:
        os.close(fd)


def _acl(uid: int, permissions: int) -> bytes:
    """acl(5), as the kernel has it: the owner, this user, the group, the mask, others."""
    entries = (
        (_OWNER, _READ | _CHANGE, _NOBODY), (_USER, permissions, uid), (_GROUP, 0, _NOBODY),
        (_MASK, permissions, _NOBODY), (_OTHERS, 0, _NOBODY),
    )  # fmt: skip
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def _user_of(path: Path) -> int:
    """Who may read a file beside us."""
    try:
        acl = os.getxattr(path, _ACL)
    except OSError:
        return os.geteuid()
    return int(next(who for tag, _, who in struct.iter_unpack("<HHI", acl[4:]) if tag == _USER))


def _read(path: str) -> str | None:
    """The first line of a small file in which its user may have written anything."""
    try:
        # Not to wait for who writes to a FIFO: an older version gave the directory to its user.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError:
        raise
    except OSError as error:
        _fail_if_scarce(error)
        return None
    try:
        return os.read(fd, _SMALL).partition(b"\n")[0].decode("ascii", "replace").strip()
    except BlockingIOError:
        return None
    finally:
        os.close(fd)


def _fail_if_scarce(error: OSError) -> None:
    """What the daemon lacks for now says nothing about a job: it is looked at again later."""
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise ConnectionLost(f"{error.filename}: {error.strerror}") from None


def _code(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,3}", text, re.ASCII) else None
