"""A node on an emulated machine of its own: with a kernel, all controllers, real reboots and power cuts.

It is slower than a `Node` by a factor of ten or more. This machine reaches it over ssh on the loopback
interface; it reaches nothing.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.node.base import vm_base
from tests.node.build import layers
from tests.node.disk import Image, image
from tests.node.enter import Account, as_account
from tests.node.errors import NodeError
from tests.node.host import VM_TOOLS, default_suite, host_run, require_tools
from tests.node.machine import Machine

BOOT_SECONDS = 300.0
BOOTS = 3
"""How often a boot is begun."""
MEMORY_MIB = 1024

ENTER = "enter.json"
"""In the folder of a machine that was kept: the command, as far as the command line to run there."""

_OPTIONS = (
    "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes",
    "ConnectTimeout=10", "IdentitiesOnly=yes", "ServerAliveInterval=0",
)  # fmt: skip

_KERNEL = "console=ttyS0 root=/dev/vda rw panic=-1 quiet mitigations=off systemd.unit=multi-user.target"


class Vm(Machine):
    """`with Vm("trixie") as vm: vm.run(["systemctl", "status"])`"""

    SHUTDOWN_SECONDS = 180.0

    def __init__(self, suite: str | None = None, *, keep: bool = False) -> None:
        if platform.machine() != "x86_64":
            raise NodeError(f"the emulated machine is an x86-64 one, and this is {platform.machine()}")
        require_tools(suite or default_suite(), VM_TOOLS)
        super().__init__(suite, keep=keep)
        self._image: Image = image(layers(vm_base(self.suite), self.deb), self.suite)
        self._disk = self.state.folder / "disk.qcow2"
        command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", self._image.disk, self._disk]
        host_run(command, what=f"making the disk of {self.name}")
        # A socket's path may have 107 bytes only, so it isn't in the node's folder.
        self._folder = Path(tempfile.mkdtemp(prefix="sysjobs-vm-"))
        self._master: subprocess.Popen[bytes] | None = None
        self._port = 0
        # Where the console's text begins that is of this boot.
        self._switched_on = 0

    def boot(self) -> None:
        if self._process is not None:
            raise NodeError(f"node {self.name} is on already")
        for _ in range(BOOTS - 1):
            self._power_on()
            try:
                self._connect()
                break
            except NodeError:
                if not self.panicked:
                    raise
                self.kill()
        else:
            self._power_on()
            self._connect()
        # How it ends says whether a unit failed, which is not for us to judge.
        self.run(["systemctl", "is-system-running", "--wait"], check=False, timeout=BOOT_SECONDS)

    @property
    def panicked(self) -> bool:
        """Whether its kernel has given up since it was switched on, for a fault that isn't ours.

        An emulated processor can run into code that the kernel is rewriting on another one, as it does while
        it boots and when it wakes up.
        """
        return b"Kernel panic" in self.state.console.read_bytes()[self._switched_on :]

    def reconnect(self) -> None:
        """Reach it again where the connection broke."""
        if self._master is None or self._master.poll() is not None:
            self._disconnect()
            self._connect()

    def _power_on(self) -> None:
        self._port = _free_port()
        self._switched_on = self.state.console.stat().st_size if self.state.console.exists() else 0
        tied = [] if self.keep else ["setpriv", "--pdeathsig", "KILL"]
        with self.state.console.open("ab") as console:
            self._process = subprocess.Popen(
                [*tied, *self._emulator()],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                pass_fds=[self.state.lock_fd],
            )
        self.state.init = self._process.pid

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._ended(10)

    def _leave(self) -> None:
        # What it takes to enter it without this process's connection.
        where = ["ssh", "-F", "none", *_options(_OPTIONS), *self._where()]
        (self.state.folder / ENTER).write_text(json.dumps(where))
        super()._leave()
        self._disconnect()
        shutil.rmtree(self._folder)

    def remove(self) -> None:
        super().remove()
        shutil.rmtree(self._folder)

    def _enter(
        self,
        command: Sequence[str | bytes],
        account: Account,
        env: Mapping[str, str] | None,
        cwd: str | None,
    ) -> list[str | bytes]:
        # A death by signal is 255 then, as ssh has it.
        text = shlex.join(os.fsdecode(word) for word in as_account(command, account, env=env, cwd=cwd))
        return [*self._ssh(), os.fsencode(f"exec {text}")]

    def _emulator(self) -> list[str]:
        network = f"user,model=virtio-net-pci,restrict=on,hostfwd=tcp:127.0.0.1:{self._port}-:22"
        return [
            "qemu-system-x86_64",
            # What it can do beyond the least costs: more state at each switch, wide registers in each copy.
            *("-accel", "tcg,thread=multi", "-cpu", "qemu64", "-smp", "2", "-m", str(MEMORY_MIB)),
            *("-display", "none", "-monitor", "none", "-serial", "stdio"),
            # Its end is ours to see, and then to begin again.
            "-no-reboot",
            *("-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd)),
            *("-append", _KERNEL),
            *("-drive", f"file={self._disk},if=virtio,format=qcow2", "-device", "virtio-rng-pci"),
            *("-nic", network),
        ]

    def _ssh(self) -> list[str | bytes]:
        """Through the connection of `_connect`, or not at all: there is no other way to this name."""
        return [
            "ssh", "-F", "none", "-S", str(self._folder / "ssh"), "-o", "ControlMaster=no",
            "-o", "ProxyCommand=false", "root@node",
        ]  # fmt: skip

    def _connect(self) -> None:
        """Wait until sshd answers; all commands share that connection."""
        assert self._process is not None
        deadline = time.monotonic() + BOOT_SECONDS
        master_of = ["-M", "-N", "-S", str(self._folder / "ssh"), *_options(_OPTIONS)]
        command = ["setpriv", "--pdeathsig", "KILL", "ssh", "-F", "none", *master_of, *self._where()]
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise NodeError(f"node {self.name} did not boot", self._console_tail())
            with self.state.console.open("ab") as console:
                master = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
            while time.monotonic() < deadline:
                check = [*self._ssh()[:-1], "-O", "check", "root@node"]
                if subprocess.run(check, capture_output=True, check=False).returncode == 0:
                    self._master = master
                    return
                with suppress(subprocess.TimeoutExpired):
                    master.wait(0.2)
                    break
            master.kill()
            master.wait()
        raise NodeError(f"node {self.name} was not up after {BOOT_SECONDS:g} s", self._console_tail())

    def _where(self) -> list[str]:
        return ["-i", str(self._image.key), "-p", str(self._port), "root@127.0.0.1"]

    def _gone(self) -> None:
        self._disconnect()

    def _disconnect(self) -> None:
        if self._master is not None:
            self._master.kill()
            self._master.wait()
            self._master = None
            (self._folder / "ssh").unlink(missing_ok=True)


def _options(options: Sequence[str]) -> list[str]:
    return [word for option in options for word in ("-o", option)]


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
