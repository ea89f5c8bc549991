"""Which boot of the machine this is, and a note for the next one: that it was shut down."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from sysjobs.engine import Boot

log = logging.getLogger(__name__)

_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot(note: Path) -> Boot:
    """This boot, and the one that a daemon left a note of."""
    shut_down = ""
    # A note that can't be read is no proof of anything.
    with suppress(OSError, ValueError):
        shut_down = note.read_text("ascii").strip()
    return Boot(_ID.read_text("ascii").strip(), shut_down=shut_down)


def leave_note(note: Path, boot: Boot) -> None:
    try:
        note.write_text(f"{boot.id}\n", "ascii")
    except OSError as error:
        log.warning("that the machine is shut down can't be noted: %s: %s", note, error.strerror)
