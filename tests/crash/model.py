"""What is known of a job from what was done to it, and which ends it can have had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class End(NamedTuple):
    """How a job ended: status, exit code, signal, and how often its command began."""

    status: str
    exit_code: int | None = None
    signal: int | None = None
    begun: int = 1


class Kind(NamedTuple):
    """A job's text and setup, and how it ends if nobody intervenes. Jobs run where their files are."""

    end: End
    shell: str
    setup: str | None = None

    @property
    def spec(self) -> dict[str, Any]:
        begins = f"echo >>begun.$SYSJOBS_JOB_ID; {self.shell}"
        return {"shell": begins} | ({} if self.setup is None else {"setup": self.setup})


OK = End("SUCCEEDED", 0)
KINDS = {
    "ends well": Kind(OK, "exit 0"),
    "fails": Kind(End("FAILED", 3), "exit 3"),
    "faults": Kind(End("FAILED", None, 11), "kill -SEGV $$"),
    "is killed": Kind(End("FAILED_DRIVER", None, 9), "kill -KILL $$"),
    "leaves a child": Kind(End("FAILED", 4), "setsid sleep 1000 & exit 4"),
    "has a setup": Kind(OK, "exit 0", "sleep 0.01"),
    "has a bad setup": Kind(End("FAILED_SETUP", begun=0), "exit 0", "exit 5"),
    "takes a while": Kind(End("FAILED", 6), "sleep 0.3; exit 6"),
    "takes its time": Kind(OK, "sleep 3"),
    "waits": Kind(End("FAILED", 7), "until [ -e go.$SYSJOBS_JOB_ID ]; do sleep 0.01; done; exit 7"),
}


@dataclass
class Model:
    kind: str
    cancel: str | None = None
    """What a cancel was answered, "ended" aside; "asked" as long as there is no answer."""
    cut: bool = False
    """The machine went down while it had not been seen to end."""
    lost: bool = False
    """It ran then, and couldn't have ended before."""

    def asked(self) -> None:
        self.cancel = self.cancel or "asked"

    def cancelled(self, outcome: str) -> None:
        if outcome == "ended":
            # A cancel that is repeated since its answer was lost is answered so too.
            return
        assert self.cancel in (None, "asked") or outcome == "cancelling", (self, outcome)
        if self.cancel in (None, "asked"):
            self.cancel = outcome

    def check(self, reason: str | None, end: End) -> None:
        """Whether it can have ended like that. What a power cut took of its files is not held against it."""
        said = (self, reason, end)
        own = KINDS[self.kind].end
        assert end.begun <= 1, said
        if end.status == "CANCELLED":
            assert self.cancel is not None, said
            assert end.begun == 0 or self.cancel != "cancelled", said
        elif reason in ("reboot", "power-cut"):
            assert self.cut, said
            assert self.cancel in (None, "asked"), said
        else:
            assert self.cancel != "cancelled", said
            assert not self.lost, said
            assert end[:3] == own[:3], said
            assert end.begun == own.begun or self.cut, said
