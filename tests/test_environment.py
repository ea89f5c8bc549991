"""What a job inherits of its submitter's environment is a contract."""

from __future__ import annotations

import pytest

from sysjobs.environment import inherited


@pytest.mark.parametrize(
    "name",
    [
        b"PATH",
        b"HOME",
        b"LANG",
        b"DISPLAY",
        b"XDG_CONFIG_HOME",
        b"XDG_DATA_DIRS",
        b"VIRTUAL_ENV",
        b"CUDA_VISIBLE_DEVICES",
        b"BASH_FUNC_f%%",
        b"SSHPASS",
        b"MY_SYSJOBS_X",
        b"\xff\xfe",
        b"",
    ],
)
def test_inherited(name: bytes) -> None:
    assert inherited({name: b"\xffvalue=1\n"}) == [name + b"=\xffvalue=1\n"]


@pytest.mark.parametrize(
    "name",
    [
        b"XDG_RUNTIME_DIR",
        b"XDG_SESSION_ID",
        b"XDG_SESSION_TYPE",
        b"XDG_SEAT",
        b"XDG_VTNR",
        b"DBUS_SESSION_BUS_ADDRESS",
        b"SSH_AUTH_SOCK",
        b"SSH_AGENT_PID",
        b"SSH_CONNECTION",
        b"SSH_CLIENT",
        b"SSH_TTY",
        b"INVOCATION_ID",
        b"JOURNAL_STREAM",
        b"SYSTEMD_EXEC_PID",
        b"MEMORY_PRESSURE_WATCH",
        b"NOTIFY_SOCKET",
        b"LISTEN_FDS",
        b"WATCHDOG_USEC",
        b"MAINPID",
        b"MANAGERPID",
        b"SYSJOBS_SOCKET",
        b"SYSJOBS_JOB_ID",
        b"SKYPILOT_TASK_ID",
    ],
)
def test_not_inherited(name: bytes) -> None:
    assert inherited({b"A": b"1", name: b"x", b"B": b"2"}) == [b"A=1", b"B=2"]


@pytest.mark.parametrize("name", [b"CUDA_VISIBLE_DEVICES", b"ROCR_VISIBLE_DEVICES"])
def test_devices_of_a_job_stay_with_it(name: bytes) -> None:
    assert inherited({name: b"GPU-1", b"SYSJOBS_JOB_ID": b"42"}) == []
