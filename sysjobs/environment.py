"""Which variables of the submitter's environment a job inherits: all but those that mean a session."""

from __future__ import annotations

from collections.abc import Mapping

_SESSION = frozenset(
    (
        b"XDG_RUNTIME_DIR",
        b"XDG_SEAT",
        b"XDG_VTNR",
        b"SSH_AUTH_SOCK",
        b"SSH_AGENT_PID",
        b"SSH_CONNECTION",
        b"SSH_CLIENT",
        b"SSH_TTY",
        b"INVOCATION_ID",
        b"JOURNAL_STREAM",
        b"SYSTEMD_EXEC_PID",
        b"NOTIFY_SOCKET",
        b"MAINPID",
        b"MANAGERPID",
    )
)
_SESSION_PREFIXES = (
    b"XDG_SESSION_",
    b"DBUS_",
    b"MEMORY_PRESSURE_",
    b"LISTEN_",
    b"WATCHDOG_",
    b"SYSJOBS_",
    b"SKYPILOT_",
)
# What a job was given is its own: a job that it submits gets devices of its own.
_DEVICES = frozenset((b"CUDA_VISIBLE_DEVICES", b"ROCR_VISIBLE_DEVICES"))


def inherited(environ: Mapping[bytes, bytes]) -> list[bytes]:
    """The NAME=VALUE pairs that a job submitted from this environment gets."""
    inside_job = b"SYSJOBS_JOB_ID" in environ
    return [
        name + b"=" + value
        for name, value in environ.items()
        if name not in _SESSION
        and not name.startswith(_SESSION_PREFIXES)
        and not (inside_job and name in _DEVICES)
    ]
