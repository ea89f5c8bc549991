"""Whether the node is drained: a file beside the database, since that says nothing of any job."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from sysjobs.scheduling.waiting import Drain


def read_drain(path: Path) -> Drain | None:
    """A file that can't be read has been written all the same: then no job starts either."""
    try:
        data = json.loads(path.read_text("utf-8"))
        drain = Drain(**data)
        if not (isinstance(drain.user, str) and type(drain.at) is int and isinstance(drain.reason, str)):
            raise ValueError(data)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        return Drain("somebody", 0, f"{path} can't be read")
    return drain


def write_drain(path: Path, drain: Drain | None) -> None:
    """On disk when this returns. Raises OSError, and then it is as it was."""
    if drain is None:
        path.unlink(missing_ok=True)
    else:
        made = path.with_name(f"{path.name}.new")
        with made.open("w", encoding="utf-8") as file:
            json.dump(asdict(drain), file)
            file.flush()
            os.fsync(file.fileno())
        made.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
