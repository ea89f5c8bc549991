"""Pure: what is asked of the journal about the end of a job, and the lines that it answers with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

KERNEL, MANAGER, OOMD, EARLYOOM = "kernel", "systemd", "systemd-oomd", "earlyoom"
"""Whose lines are of interest."""

SLACK = 10_000_000
"""Microseconds that a line may take to the journal, which may date it when it comes there."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the journal, and when it was sent or came there (microseconds since 1970).

    `invocation`: the run of a unit that it is about, if whoever wrote it says so.
    """

    at: int
    source: str
    text: str
    invocation: str = ""


@dataclass(frozen=True, slots=True)
class Victim:
    """Who is looked for: a cgroup (a path of the kernel's, from the root), or the process that the job was.

    `all_of_it`: systemd says that its memory ran out, whichever of its processes was killed. `signal`: what
    ended the process, in this `invocation` of its unit. Signals until `ours_until` may have been our own.
    """

    cgroup: str
    pid: int
    since: int
    until: int
    all_of_it: bool
    signal: int | None = None
    invocation: str = ""
    ours_until: int = 0

    @property
    def unit(self) -> str:
        return self.cgroup.rpartition("/")[2]


def timely(found: Iterable[Entry], victim: Victim) -> list[Entry]:
    """Those from while the job ran."""
    return [entry for entry in found if victim.since <= entry.at <= victim.until + SLACK]


def entries(output: bytes) -> list[Entry]:
    """What `journalctl --output=json` gives. A line that makes no sense is left out."""
    found = []
    for line in output.splitlines():
        try:
            fields = json.loads(line)
            text = fields["MESSAGE"]
            if isinstance(text, list):
                # Not UTF-8: a process may have any name.
                text = bytes(text).decode("utf-8", "replace")
            at = int(fields.get("_SOURCE_REALTIME_TIMESTAMP") or fields["__REALTIME_TIMESTAMP"])
            source, invocation = _source(fields), fields.get("INVOCATION_ID")
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if isinstance(text, str):
            found.append(Entry(at, source, text, invocation if isinstance(invocation, str) else ""))
    return found


def _source(fields: dict[str, object]) -> str:
    """The kernel's lines are its own by their way; others may say of themselves whatever they like."""
    if fields.get("_TRANSPORT") == KERNEL:
        return KERNEL
    name = fields.get("SYSLOG_IDENTIFIER")
    return name if isinstance(name, str) and name in (MANAGER, OOMD, EARLYOOM) else ""
