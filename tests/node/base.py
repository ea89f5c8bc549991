"""The unpacked Debian trees that nodes and package builds start from, made once for each suite."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tests.node.cache import cached
from tests.node.host import apt_options, archive_sources, host_run, note, require_root, require_tools

REPO = Path(__file__).resolve().parents[2]

# fmt: off
NODE_PACKAGES = [
    "systemd", "systemd-sysv", "dbus", "libpam-systemd", "python3",
    # For the tests: programs to run as jobs, and tools that look at them.
    "acl", "attr", "bash", "gcc", "iproute2", "less", "libc6-dev", "login", "man-db", "netcat-openbsd",
    "openssh-server", "passwd", "procps", "psmisc", "sqlite3", "strace", "sudo", "util-linux", "xz-utils",
    "zstd",
]
# fmt: on
BUILD_PACKAGES = ["build-essential", "dpkg-dev", "fakeroot", "lintian"]

# Why each: the machine id is a node's own; the resolver is this machine's; sshd is for tests that start it;
# the masked units fail for lack of modules, or would show this machine's kernel; journals must outlive a
# reboot; ProtectProc= gives the daemon a fresh /proc, where only this drop-in shows the node's own boot id; a
# user's manager ends with the last session, not 10 seconds later.
COMMON_SETUP = """
    for user in alice:1000 bob:1001; do
        useradd --create-home --shell /bin/bash --uid "${user#*:}" "${user%:*}"
    done
    : >/etc/machine-id
    : >/etc/resolv.conf
    mkdir -p /var/log/journal /etc/systemd/journald.conf.d /etc/systemd/logind.conf.d
    printf '[Journal]\\nStorage=persistent\\n' >/etc/systemd/journald.conf.d/node.conf
    printf '[Login]\\nUserStopDelaySec=0\\n' >/etc/systemd/logind.conf.d/node.conf
"""
NODE_SETUP = (
    COMMON_SETUP
    + """
    systemctl disable ssh.service ssh.socket
    systemctl mask systemd-udevd.service systemd-modules-load.service \\
        sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount
    mkdir -p /etc/systemd/system/sysjobsd.service.d
    printf '[Service]\\nBindReadOnlyPaths=/run/boot-id:/proc/sys/kernel/random/boot_id\\n' \\
        >/etc/systemd/system/sysjobsd.service.d/node-boot-id.conf
"""
)

VM_PACKAGES = [*NODE_PACKAGES, "earlyoom", "kmod", "linux-image-cloud-amd64", "systemd-oomd", "udev"]
# An emulated machine is entered over its network, by ssh; what would only delay its boot is off, and so is
# what kills for want of memory: a test that is about that starts it.
VM_SETUP = (
    COMMON_SETUP
    + """
    echo node >/etc/hostname
    printf '127.0.0.1 localhost node\\n::1 localhost node\\n' >/etc/hosts
    printf '[Match]\\nName=en* eth*\\n[Network]\\nAddress=10.0.2.15/24\\n' >/etc/systemd/network/node.network
    printf 'UsePAM no\\nUseDNS no\\nMaxSessions 1000\\nPermitRootLogin prohibit-password\\n' \\
        >/etc/ssh/sshd_config.d/node.conf
    systemctl disable ssh.socket earlyoom.service systemd-oomd.service systemd-oomd.socket
    systemctl enable ssh.service systemd-networkd.service
    systemctl mask systemd-networkd-wait-online.service getty@tty1.service serial-getty@ttyS0.service \\
        apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \\
        fstrim.timer man-db.timer
"""
)


def node_base(suite: str) -> Path:
    """A whole system without our package: what a node boots from. The network is out of reach later, so that
    the package's dependencies are part of it."""
    packages = NODE_PACKAGES + control_packages("Depends")
    return _tree(suite, "node", packages, NODE_SETUP)


def vm_base(suite: str) -> Path:
    """The same with a kernel: what an emulated machine boots from."""
    packages = VM_PACKAGES + control_packages("Depends")
    return _tree(suite, "vm", packages, VM_SETUP)


def build_base(suite: str) -> Path:
    """A system to build the package in."""
    return _tree(suite, "build", BUILD_PACKAGES + control_packages("Build-Depends"), "")


def control_packages(field: str) -> list[str]:
    """The packages that debian/control names in a field; substitution variables are left out."""
    text = (REPO / "debian" / "control").read_text()
    found = re.search(rf"^{field}:(.*(?:\n[ \t].*)*)", text, re.MULTILINE)
    items = found.group(1).split(",") if found else []
    names = [item.split("|")[0].split("(")[0].strip() for item in items]
    return [name for name in names if name and not name.startswith("${")]


def _tree(suite: str, purpose: str, packages: list[str], setup: str) -> Path:
    require_root()
    require_tools(suite)
    names = sorted(set(packages))
    key = hashlib.sha256("\0".join([*names, setup]).encode()).hexdigest()[:12]

    def build(draft: Path) -> None:
        note(f"making the {purpose} system for {suite}; this takes about a minute, once")
        tree = draft / "tree"
        command = ["mmdebstrap", "--quiet", "--variant=minbase", "--format=directory", "--mode=root"]
        command += [f"--aptopt={option}" for option in apt_options()]
        command += [f"--include={','.join(names)}"]
        if setup:
            command += [f"--customize-hook=chroot \"$1\" sh -eu <<'END'\n{setup}\nEND\n"]
        command += [suite, str(tree), *archive_sources(suite)]
        host_run(command, what=f"making the {purpose} system for {suite}")

    return cached("bases", f"{suite}-{purpose}-{key}", build) / "tree"
