"""A job's start scripts, run for real by this machine's sh, or by bash under that name, as Debian allows."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from sysjobs.engine.files import JobFiles
from sysjobs.engine.script import Traces, job_variables
from sysjobs.payload import Payload
from tests.models import queued

# What systemd gives to a unit with User=.
SYSTEMD = {
    "HOME": "/home/alice",
    "INVOCATION_ID": "0123",
    "JOURNAL_STREAM": "8:9",
    "LANG": "C.UTF-8",
    "LOGNAME": "alice",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
    "SHELL": "/bin/bash",
    "SYSTEMD_EXEC_PID": "7",
    "USER": "alice",
}
PATH = b"PATH=/usr/bin:/bin"
ODD = b"BASH_FUNC_f%%=() {  echo f\n}"


SHELLS = ("sh", "bash as sh")


class Attempt:
    """A job of the user who runs these tests, started as systemd would."""

    def __init__(self, shell: str, top: Path) -> None:
        self.shell = Path("/bin/sh")
        if shell != "sh":
            self.shell = top / "sh"
            self.shell.symlink_to(shutil.which("bash") or "")
        self.scripts, self.logs = top / "scripts", top / "logs with 'quotes'"
        for directory in (self.scripts, self.logs):
            directory.mkdir(exist_ok=True)
        self.files = JobFiles(self.scripts, self.logs)
        self.job = queued(uid=os.getuid(), gid=os.getgid())

    def start(self, payload: Payload, *, setup: bool = False) -> subprocess.Popen[bytes]:
        self.job = replace(self.job, has_setup=setup)
        for log in (self.log, self.setup_log):
            log.unlink(missing_ok=True)
        files = self.files.prepare(self.job, payload)
        return self._start(files.setup if setup else files.run)

    def _start(self, script: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self.shell, script],
            cwd="/",
            env=SYSTEMD,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, payload: Payload, *, setup: bool = False) -> int:
        """Its exit code; it says nothing beside its log."""
        process = self.start(payload, setup=setup)
        output, _ = process.communicate(timeout=60)
        assert output == b""
        return process.returncode

    def again(self) -> int:
        """The exit code of the same script, run once more."""
        process = self._start(self.files.files(self.job).run)
        process.communicate(timeout=60)
        return process.returncode

    @property
    def traces(self) -> Traces:
        return self.files.traces(self.job)

    @property
    def log(self) -> Path:
        return Path(self.files.log(self.job))

    @property
    def setup_log(self) -> Path:
        return Path(self.files.log(self.job, setup=True))

    def output(self, payload: Payload) -> bytes:
        """What its command wrote, which has to succeed."""
        assert self.run(payload) == 0, self.log.read_bytes()
        assert self.traces == Traces("run")
        return self.log.read_bytes()

    def environ(self, payload: Payload) -> dict[bytes, bytes]:
        """Its variables, less those that the unit, the job's number and the shell are known for."""
        output = self.output(replace(payload, command=(b"/bin/cat", b"/proc/self/environ")))
        entries = output.split(b"\0")[:-1]
        found = dict(entry.split(b"=", 1) for entry in entries)
        assert len(found) == len(entries), "each name once"
        own = job_variables(self.job)
        assert {name: found.pop(name) for name in own} == own
        assert found.pop(b"INVOCATION_ID") == b"0123"
        if self.shell != Path("/bin/sh"):
            # bash counts its level down before exec, and tells a command its path.
            found.pop(b"SHLVL", None)
            found.pop(b"_", None)
        return found
