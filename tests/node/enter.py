"""Command lines that run something inside a booted node."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int
    home: str
    shell: str

    @classmethod
    def from_passwd(cls, line: str) -> Account:
        name, _, uid, gid, _, home, shell = line.strip().split(":")
        return cls(name, int(uid), int(gid), home, shell)


ROOT = Account("root", 0, 0, "/root", "/bin/bash")

WITHOUT = ("--bounding-set", "-sys_time,-sys_module")
"""For setpriv: no namespace keeps this machine's clock and kernel modules from being changed from a node."""


def enter_command(
    init: int,
    cgroup: Path,
    command: Sequence[str | bytes],
    *,
    account: Account = ROOT,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> list[str | bytes]:
    return [
        # A process that enters is in a cgroup of the node, where it can be seen from inside, and not in ours.
        *("sh", "-c", 'echo 0 >"$0" && exec "$@"', str(cgroup / "entered" / "cgroup.procs")),
        *("nsenter", "-t", str(init), "-m", "-p", "-C", "-u", "-i", "-n", "-r", "-w", "--"),
        # nsenter waits outside: without a signal, killing it would leave what it started running.
        *as_account(command, account, env=env, cwd=cwd, setpriv=(*WITHOUT, "--pdeathsig", "KILL")),
    ]


def as_account(
    command: Sequence[str | bytes],
    account: Account,
    *,
    env: Mapping[str, str] | None,
    cwd: str | None,
    setpriv: Sequence[str] = (),
) -> list[str | bytes]:
    """The command as this account runs it after a login, from a process that is root."""
    variables = {
        "HOME": account.home,
        "LANG": "C.UTF-8",
        "LOGNAME": account.name,
        "PATH": PATH if account.uid == 0 else USER_PATH,
        "SHELL": account.shell,
        "USER": account.name,
        **(env or {}),
    }
    return [
        *("env", "-i", "-C", cwd or account.home),
        *(f"{name}={value}" for name, value in variables.items()),
        *("prlimit", "--nofile=1024:", "--core=0:"),
        *(
            "setpriv",
            *setpriv,
            "--reuid",
            str(account.uid),
            "--regid",
            str(account.gid),
            "--init-groups",
            "--",
        ),
        *command,
    ]


def on_terminal(command: Sequence[str | bytes]) -> list[str | bytes]:
    """The same command on a terminal of the node's own: this machine's is unknown to programs in there."""
    words = [arg if isinstance(arg, str) else os.fsdecode(arg) for arg in command]
    return ["script", "--quiet", "--return", "--command", f"exec {shlex.join(words)}", "/dev/null"]
