"""What this machine must have: root, a few tools, Debian's archive, a cgroup v2 hierarchy."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.node.errors import NodeError, show_command, show_output

SUITES = ("bookworm", "trixie")

# Program: the package that brings it.
TOOLS = {
    "dpkg-deb": "dpkg",
    "mmdebstrap": "mmdebstrap",
    "mount": "mount",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
VM_TOOLS = {
    "mkfs.ext4": "e2fsprogs",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "ssh": "openssh-client",
}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def note(text: str) -> None:
    """Tell people what takes a while."""
    sys.stderr.write(f"node: {text}\n")
    sys.stderr.flush()


def host_run(
    command: Sequence[object], *, what: str, data: bytes = b"", env: Mapping[str, str] | None = None
) -> bytes:
    """Run a command on this machine; its output is shown only if it fails."""
    words = [str(word) for word in command]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as process:
        try:
            stdout, stderr = process.communicate(data)
        except BaseException:
            # Not SIGKILL: mmdebstrap ends its children and unmounts first.
            process.terminate()
            raise
    if process.returncode != 0:
        raise NodeError(
            f"{what} failed: {show_command(words)} ended with status {process.returncode}",
            show_output(stdout, stderr),
        )
    return stdout


def require_root() -> None:
    if os.geteuid() != 0:
        raise NodeError(
            f"a node needs root for its namespaces and mounts, but this is uid {os.geteuid()}",
            "Run it again with sudo.",
        )


def require_tools(suite: str, tools: Mapping[str, str] = TOOLS) -> None:
    """Install what is missing, so that one command does it all on a fresh Debian machine."""
    missing = {package for tool, package in tools.items() if shutil.which(tool) is None}
    # An old keyring doesn't know the keys of a younger suite.
    if not list(KEYRING.parent.glob(f"debian-archive-{suite}-stable.*")):
        missing.add("debian-archive-keyring")
    if not missing:
        return
    packages = sorted(missing)
    if shutil.which("apt-get") is None:
        raise NodeError(
            f"these programs' Debian packages are missing here: {', '.join(packages)}",
            "There is no apt-get to install them with; use a Debian 12 or 13 machine.",
        )
    note(f"installing {', '.join(packages)} with apt-get")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    host_run(["apt-get", "update"], what="reading the package lists", env=env)
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    host_run(install, what=f"installing {', '.join(packages)}", env=env)


def default_suite() -> str:
    try:
        codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    except OSError:
        codename = ""
    return codename if codename in SUITES else SUITES[-1]


def cgroup2_mount() -> Path:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        if tail.split()[0] == "cgroup2":
            return Path(fields.split()[4])
    raise NodeError(
        "no cgroup v2 file system is mounted on this machine",
        "Mount one: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified",
    )


def archive_sources(suite: str) -> list[str]:
    """apt source lines for a suite, from the mirrors that this machine's own apt uses."""
    targets = _debian_targets()
    if not targets:
        host_run(["apt-get", "update"], what="reading the package lists")
        targets = _debian_targets()
    lines = []
    for label, release in (("Debian", suite), ("Debian-Security", f"{suite}-security")):
        uri = next((uri for uri, name in targets if name == label), None)
        if uri is not None:
            lines.append(f"deb [signed-by={KEYRING}] {_plain_uri(uri)} {release} main")
        elif label == "Debian":
            raise NodeError(
                f"apt on this machine knows no Debian archive to take {suite} from",
                "Add one to /etc/apt/sources.list.d, then run apt-get update.",
            )
    return lines


def apt_options() -> list[str]:
    """How this machine's apt reaches the archive (a proxy, say), as options for another apt."""
    wanted = ("Acquire::http", "Acquire::https", "Acquire::Retries", "Acquire::Check-")
    dump = host_run(["apt-config", "dump"], what="reading apt's settings").decode()
    return [line for line in dumped_settings(dump) if line.startswith(wanted)]


def dumped_settings(dump: str) -> list[str]:
    """The settings of an `apt-config dump` that have a value."""
    return [line for line in dump.splitlines() if not line.endswith(' "";')]


def _debian_targets() -> list[tuple[str, str]]:
    layout = "$(REPO_URI) $(ORIGIN) $(LABEL)"
    listed = host_run(
        ["apt-get", "indextargets", "--format", layout, "Created-By: Packages"], what="reading apt's sources"
    )
    rows = [line.split() for line in listed.decode().splitlines()]
    return [(row[0], row[2]) for row in rows if len(row) == 3 and row[1] == "Debian"]


def _plain_uri(uri: str) -> str:
    # Debian's cloud images name a file that lists mirrors, which isn't there inside a new tree.
    scheme, _, path = uri.partition(":")
    if scheme != "mirror+file":
        return uri
    mirrors = [line.split()[0] for line in Path(path.rstrip("/")).read_text().splitlines() if line.strip()]
    return next(mirror for mirror in mirrors if not mirror.startswith("#"))
