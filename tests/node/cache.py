"""Trees that are slow to make, kept outside the repository, made once however many processes want them."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

UNUSED_DAYS = 14


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    root = Path(base) / "sysjobs" / "nodes"
    # Private: the trees hold setuid programs and the state of nodes.
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root


@contextmanager
def locked(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def cached(kind: str, key: str, build: Callable[[Path], None]) -> Path:
    """The folder KIND/KEY of the cache, filled by `build` if it isn't there yet."""
    folder = cache_root() / kind
    folder.mkdir(exist_ok=True)
    entry = folder / key
    with locked(folder / f"{key}.lock"):
        if not entry.exists():
            draft = folder / f"{key}.new"
            # What a build that was killed left behind.
            remove_tree(draft)
            draft.mkdir()
            try:
                build(draft)
                draft.rename(entry)
            except BaseException:
                remove_tree(draft)
                raise
            _forget_unused(folder)
        # The time of last use, for _forget_unused.
        os.utime(folder / f"{key}.lock")
    return entry


def remove_tree(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)


def _forget_unused(folder: Path) -> None:
    oldest = time.time() - UNUSED_DAYS * 86400
    for lock in folder.glob("*.lock"):
        if lock.stat().st_mtime < oldest:
            remove_tree(lock.with_suffix(""))
            lock.unlink()
