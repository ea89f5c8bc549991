"""What an emulated machine boots from: a disk that no node writes to, a kernel, and a key to enter with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tests.node.cache import cached
from tests.node.host import host_run, note

SIZE = "4G"


@dataclass(frozen=True)
class Image:
    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd"

    @property
    def key(self) -> Path:
        return self.folder / "key"


def image(layers: str, suite: str) -> Image:
    """The image of these directories, the uppermost first."""

    def build(draft: Path) -> None:
        note(f"making the disk of emulated machines for {suite}")
        made = Image(draft)
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "node", "-f", made.key]
        host_run(keygen, what="making a key")
        home = draft / "key-layer" / "root" / ".ssh"
        home.mkdir(parents=True)
        for folder in (home, home.parent):
            folder.chmod(0o700)
        home.parent.parent.chmod(0o755)
        (home / "authorized_keys").write_bytes(Path(f"{made.key}.pub").read_bytes())
        (draft / "root").mkdir()
        # The mount ends with its namespace.
        script = """
            mount -t overlay overlay -o "lowerdir=$1" "$2/root"
            cp "$2"/root/boot/vmlinuz-* "$2/vmlinuz"
            cp "$2"/root/boot/initrd.img-* "$2/initrd"
            mkfs.ext4 -q -F -d "$2/root" "$2/disk" "$3"
        """
        lower = f"{draft / 'key-layer'}:{layers}"
        command = ["unshare", "-m", "sh", "-euc", script, "sh", lower, draft, SIZE]
        host_run(command, what=f"making the disk for {suite}")
        (draft / "root").rmdir()

    key = hashlib.sha256(layers.encode()).hexdigest()[:16]
    return Image(cached("disks", f"{suite}-{key}", build))
