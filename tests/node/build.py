"""The package from the working tree: the .deb, and what its installation changes in a base."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from tests.node.base import REPO, build_base
from tests.node.cache import cached
from tests.node.errors import NodeError
from tests.node.host import host_run, note

ROOT_SCRIPT = Path(__file__).with_name("root.sh")
# Built into the package by nobody: a change there needs no new package.
NOT_PACKAGED = {".ci", ".github", "tests"}
NOT_SOURCE = {".git", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__", "build", "dist"}


def tree_files() -> list[Path]:
    """The working tree's files, relative: what git tracks or would; all that lies there if it's an export."""
    # The owner may be another than root, which git refuses to serve unless told.
    command = ["git", "-c", f"safe.directory={REPO}", "-C", str(REPO)]
    command += ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (REPO / ".git").exists() and shutil.which("git"):
        listed = host_run(command, what="listing the working tree's files").split(b"\0")
        names = {Path(os.fsdecode(name)) for name in listed if name}
    else:
        names = {
            (Path(folder) / name).relative_to(REPO)
            for folder, subfolders, files in os.walk(REPO)
            if not _prune(subfolders)
            for name in files
        }
    # git lists deleted files and nested repositories too.
    return sorted(name for name in names if (REPO / name).is_symlink() or (REPO / name).is_file())


def build_deb(suite: str) -> Path:
    files = tree_files()
    base = build_base(suite)
    digest = hashlib.sha256(base.parent.name.encode())
    for name in files:
        if name.parts[0] not in NOT_PACKAGED:
            digest.update(_fingerprint(name))

    def build(draft: Path) -> None:
        note(f"building the package for {suite}")
        source = _overlay(draft) / "build" / "sysjobs"
        for name in files:
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / name, target, follow_symlinks=False)
            if not target.is_symlink():
                target.chmod(0o755 if os.access(target, os.X_OK) else 0o644)
        script = "cd /build/sysjobs && dpkg-buildpackage --build=binary --no-sign 2>&1"
        in_chroot(base, draft, script, what=f"building the package for {suite}")
        for deb in (draft / "upper" / "build").glob("*.deb"):
            deb.rename(draft / deb.name)
        _clean(draft, "upper", "work", "root")

    entry = cached("debs", f"{suite}-{digest.hexdigest()[:16]}", build)
    debs = sorted(entry.glob("*.deb"))
    if len(debs) != 1:
        raise NodeError(f"building the package for {suite} left {len(debs)} .deb files in {entry}, not 1")
    return debs[0]


def layers(base: Path, deb: Path) -> str:
    """The lower directories of a node: what installing the package changes, over the base."""
    digest = hashlib.sha256(base.parent.name.encode())
    digest.update(deb.read_bytes())

    def build(draft: Path) -> None:
        _overlay(draft)
        # Offline and as root: apt's own user can't read what root put in /tmp.
        install = "apt-get -o APT::Sandbox::User=root install -y /tmp/sysjobs.deb 2>&1"
        script = f"cat >/tmp/sysjobs.deb && {install}"
        in_chroot(
            base, draft, script, what=f"installing the package on {base.parent.name}", data=deb.read_bytes()
        )
        _clean(draft, "work", "root")

    layer = cached("layers", f"{base.parent.name}-{digest.hexdigest()[:16]}", build) / "upper"
    return f"{layer}:{base}"


def lint(suite: str, deb: Path) -> bytes:
    """What lintian says about the package; an empty answer is a clean one."""
    draft = deb.parent / f"lint-{os.getpid()}"
    _overlay(draft)
    try:
        script = f"cat >/tmp/{deb.name} && lintian --allow-root --fail-on none /tmp/{deb.name} 2>&1"
        return in_chroot(build_base(suite), draft, script, what="lintian", data=deb.read_bytes())
    finally:
        shutil.rmtree(draft)


def in_chroot(base: Path, draft: Path, script: str, *, what: str, data: bytes = b"") -> bytes:
    """Run a shell script in a base, offline; its changes go to DRAFT/upper."""
    namespaces = ["unshare", "-m", "-p", "-n", "-f", "--kill-child"]
    command = [*namespaces, "sh", ROOT_SCRIPT, "chroot", base, draft, "-", "sh", "-euc", script]
    return host_run(command, what=what, data=data)


def _overlay(draft: Path) -> Path:
    for name in ("upper", "work", "root"):
        (draft / name).mkdir(parents=True)
    # Becomes the root folder inside, whatever our umask is.
    (draft / "upper").chmod(0o755)
    return draft / "upper"


def _clean(draft: Path, *names: str) -> None:
    for name in names:
        shutil.rmtree(draft / name)


def _prune(subfolders: list[str]) -> bool:
    subfolders[:] = [name for name in subfolders if name not in NOT_SOURCE and not name.endswith(".egg-info")]
    return False


def _fingerprint(name: Path) -> bytes:
    path = REPO / name
    if path.is_symlink():
        kind, content = b"link", os.fsencode(path.readlink())
    else:
        kind, content = (b"program" if os.access(path, os.X_OK) else b"file"), path.read_bytes()
    return b"\0".join([os.fsencode(name), kind, hashlib.sha256(content).digest()])
