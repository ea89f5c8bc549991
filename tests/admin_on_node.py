"""What root sees of the queue on a node: the daemon, units, cgroups; and a place for jobs and their files."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.node import Machine, Node
from tests.queue_on_node import QueueOnNode

DAEMON = "sysjobsd.service"
SETTINGS = "/etc/sysjobs/sysjobs.toml"
UNITS = "sysjobs-[0-9]*.service"

SUBMIT_MANY = """
import json, sys
from sysjobs.client import Client

with Client() as client:
    for spec in json.load(sys.stdin):
        print(client.submit(**spec), flush=True)
"""

CANCEL_ALL = """
from sysjobs.client import Client

with Client() as client:
    client.cancel(all_jobs=True, all_users=True, grace=0)
    live = [job.id for job in client.list(all_users=True, unfinished=True, limit=0).jobs]
    for _ in client.watch(live) if live else ():
        pass
"""


class Place(QueueOnNode):
    """A user with a directory of their own, which is where their jobs run. "up" in its files' names is what
    jobs make there once they have begun."""

    def __init__(self, node: Machine, user: str = "alice") -> None:
        super().__init__(node, user)
        name = secrets.token_hex(4)
        self.path = node.sh(f"cd; mkdir {name}; cd {name}; pwd", user=user).strip()

    def start(self, *arguments: str, count: int = 1) -> int:
        """Submit a job and wait until it, or its setup, has made `count` files up*."""
        job = self.submit("-C", self.path, *arguments)
        self.until(f"[ $(ls | grep -c '^up') -ge {count} ]")
        return job

    def submit_many(self, specs: Sequence[Mapping[str, object]]) -> list[int]:
        """Submit jobs in one go, by the installed Python client."""
        data = json.dumps(specs).encode()
        done = self.node.run(
            ["python3", "-c", SUBMIT_MANY], user=self.user, cwd=self.path, input=data, timeout=120
        )
        return [int(line) for line in done.stdout.split()]

    def shell(self, script: str, *, timeout: float = 60) -> str:
        return self.node.sh(f"cd {self.path}; {script}", user=self.user, timeout=timeout)

    def until(self, condition: str, *, timeout: float = 30) -> None:
        self.node.wait_for(f"cd {self.path} && {condition}", user=self.user, timeout=timeout)

    def file(self, name: str) -> str:
        """What a file has; empty if it isn't there."""
        return self.shell(f"cat {name} 2>/dev/null || :")

    def jobs(self, *arguments: str) -> dict[int, dict[str, Any]]:
        """Jobs as `sysjobs queue` lists them, by id."""
        listed = json.loads(self.run("queue", "--json", "--limit", "0", *arguments).stdout)
        return {job["id"]: job for job in listed}


@contextmanager
def place(node: Machine, user: str = "alice") -> Iterator[Place]:
    """A place, and an empty queue afterwards."""
    there = Place(node, user)
    try:
        yield there
    finally:
        clear(node, then=f"rm -rf {there.path}")


def clear(node: Machine, *, then: str = ":") -> None:
    """Have no job left, and no process of one. In one command, as each costs an emulated machine seconds."""
    some = f"systemctl list-units --no-legend --state active,deactivating '{UNITS}' | grep . >/dev/null"
    node.sh(f"python3 -c {shlex.quote(CANCEL_ALL)}; while {some}; do sleep 0.02; done; {then}")


def multiply(node: Machine, job: int, number: int) -> None:
    """Have as many more jobs like this one, which waits. The daemon is another one then."""
    node.sh(
        f"""
        systemctl stop sysjobsd.socket {DAEMON}
        sqlite3 /var/lib/sysjobs/sysjobs.db 'CREATE TEMP TABLE one AS SELECT * FROM jobs WHERE id = {job};
            UPDATE one SET id = NULL, key = NULL;
            INSERT INTO jobs SELECT one.* FROM one, generate_series(1, {number})'
        systemctl start sysjobsd.socket {DAEMON}
        """
    )


def unit(node: Machine, job: int, name: str) -> str:
    """A property of a job's unit."""
    return node.run(["systemctl", "show", "-P", name, f"sysjobs-{job}"]).stdout.decode().strip()


def put_settings(node: Machine, text: str) -> None:
    node.put(SETTINGS, text.encode())
    node.run(["systemctl", "reload", DAEMON])


def cgroup(node: Machine, job: int) -> str:
    path = unit(node, job, "ControlGroup")
    assert path.endswith(f"/sysjobs-{job}.service"), path
    return f"/sys/fs/cgroup{path}"


def wait_empty(node: Machine, cgroup: str, timeout: float) -> None:
    """Wait until no process is left in a cgroup."""
    node.wait_for(f"! grep -qs 'populated 1' {cgroup}/cgroup.events", timeout=timeout)


def daemon(node: Machine, name: str) -> str:
    """A property of the daemon's unit."""
    return node.run(["systemctl", "show", "-P", name, DAEMON]).stdout.decode().strip()


def kill_daemon(node: Machine) -> None:
    """SIGKILL, and wait until there is another one that serves."""
    before = daemon(node, "MainPID")
    node.run(["kill", "-KILL", before])
    node.wait_for(
        f'[ "$(systemctl show -P MainPID {DAEMON})" != {before} ] && systemctl -q is-active {DAEMON}'
    )


@contextmanager
def stopped(node: Machine) -> Iterator[None]:
    """SIGSTOP for the daemon, and SIGCONT."""
    pid = daemon(node, "MainPID")
    node.run(["kill", "-STOP", pid])
    try:
        yield
    finally:
        node.run(["kill", "-CONT", pid])


@contextmanager
def systemd_stopped(node: Node) -> Iterator[None]:
    """SIGSTOP for systemd, which then answers nobody, and SIGCONT."""
    os.kill(node.state.init, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.state.init, signal.SIGCONT)


@contextmanager
def drop_in(node: Machine, text: str) -> Iterator[None]:
    """Run the daemon with these settings of its unit."""
    path = f"/run/systemd/system/{DAEMON}.d/test.conf"
    node.put(path, f"[Service]\n{text}\n".encode())
    try:
        node.sh(f"systemctl daemon-reload; systemctl restart {DAEMON}")
        yield
    finally:
        node.sh(f"rm -f {path}; systemctl daemon-reload; systemctl restart {DAEMON}")


def daemon_files(node: Machine) -> int:
    """How many descriptors the daemon has."""
    return int(node.sh(f"ls /proc/{daemon(node, 'MainPID')}/fd | wc -l"))


def daemon_memory(node: Machine) -> int:
    """Bytes that the daemon has in memory."""
    status = node.get(f"/proc/{daemon(node, 'MainPID')}/status").decode()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


def daemon_seconds(node: Machine) -> float:
    """CPU time that the daemon has used."""
    return int(daemon(node, "CPUUsageNSec")) / 1e9
