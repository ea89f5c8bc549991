"""Pure: signals that systemd sent because somebody asked it to, as `systemctl kill` does, by its own word.

It has that only of units whose LogLevelMax= lets it, in the same words in systemd 252 and 257, and not who
asked: what we have it send is no different.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from sysjobs.engine.evidence import MANAGER, Entry, Victim, timely
from sysjobs.signalnames import signal_number

MATTER = "Sent signal SIG"

# To the process that a unit is about, the main one or its setup's. Each of the others has another line.
_WHOM = r"to (?:main|control) process (\d{1,12}) \(.*\)"
_ASKED = " on client request."
_SENT = re.compile(rf"(sysjobs-\d+\.service): {MATTER}(\S+) {_WHOM}{re.escape(_ASKED)}", re.DOTALL)


class Requests:
    """Those that lines of the journal tell of."""

    def __init__(self, found: Iterable[Entry]) -> None:
        # By unit, its run, process and signal: there may be thousands, and as many who ask.
        self._sent: dict[tuple[str, str, int, int | None], list[Entry]] = defaultdict(list)
        for entry in found:
            if entry.source == MANAGER and (sent := _SENT.fullmatch(entry.text)):
                key = (sent[1], entry.invocation, int(sent[3]), signal_number(sent[2]))
                self._sent[key].append(entry)

    def __contains__(self, entry: Entry) -> bool:
        """Whether this line tells of one, or of what else was done for it."""
        return entry.source == MANAGER and entry.text.endswith(_ASKED)

    def ended(self, victim: Victim) -> bool:
        """Whether what ended this one was sent to it so, and not by us."""
        if victim.signal is None:
            return False
        sent = self._sent.get((victim.unit, victim.invocation, victim.pid, victim.signal), ())
        return any(entry.at >= victim.ours_until for entry in timely(sent, victim))
