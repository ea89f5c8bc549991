"""A crowd of jobs that end in every way there is, and what must be true of them afterwards."""

from __future__ import annotations

from datetime import datetime
from math import inf

from tests.admin_on_node import Place

# Each job says when it began and when it ended, in a file of its own.
BEGIN = "echo >>begun.$SYSJOBS_JOB_ID; "
END = "; date +%s.%N >end.$SYSJOBS_JOB_ID; "

# How jobs end: the end of their text, and what is then to be known of them.
ENDINGS: dict[str, tuple[str, int | None, int | None]] = {
    "exit 0": ("SUCCEEDED", 0, None),
    "exit 3": ("FAILED", 3, None),
    "kill -SEGV $$": ("FAILED", None, 11),
    "sleep 1000 & exit 4": ("FAILED", 4, None),
    "kill -KILL $$": ("FAILED_DRIVER", None, 9),
}
SETUP = ("FAILED_SETUP", None, None)


def crowd(number: int, seconds: float, **options: object) -> list[dict[str, object]]:
    """So many jobs of all kinds, the last of which takes so long."""
    texts = [*ENDINGS, None]
    specs: list[dict[str, object]] = []
    for index in range(number):
        text = texts[index % len(texts)]
        took = f"{BEGIN}sleep {(index + 1) * seconds / number:.2f}{END}"
        if text is None:
            specs.append({"setup": f"{took}exit 5", "command": ["touch", "never-to-be-run"], **options})
        else:
            specs.append({"shell": took + text, **options})
    return specs


def check(alice: Place, jobs: list[int], *, within: float = 5, before: float = inf) -> None:
    """All of a crowd ended as they had to and when they said, and none began twice.

    `within` is how many seconds later they may be said to have ended, `before` the moment by which all had.

    The same for several crowds of a multiple of six jobs each.
    """
    texts = [*ENDINGS, None]
    listed = alice.jobs(f"{jobs[0]}-{jobs[-1]}")
    said = dict(line.split(":") for line in alice.shell("grep . end.* | sed 's/^end[.]//'").splitlines())
    assert len(listed) == len(jobs)
    for index, job in enumerate(jobs):
        view, text = listed[job], texts[index % len(texts)]
        expected = SETUP if text is None else ENDINGS[text]
        assert (view["status"], view["exit_code"], view["signal"]) == expected, view
        ended = datetime.fromisoformat(view["ended_at"]).timestamp()
        late = ended - float(said[str(job)])
        assert 0 <= late < within, view
        assert ended <= before, view
    begun = alice.shell("grep -c '' begun.* | sed 's/^begun[.]//'").split()
    assert sorted(begun) == sorted(f"{job}:1" for job in jobs)
    assert "never-to-be-run" not in alice.shell("ls")


def ends(alice: Place, number: int) -> None:
    """Wait until so many jobs have ended."""
    alice.until(f"[ $(ls | grep -c ^end) -ge {number} ]", timeout=60)
