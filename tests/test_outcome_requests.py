"""How an end is read where systemd may have sent the signal, since somebody asked it to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sysjobs.engine.evidence import Victim
from sysjobs.engine.oom import Killer, OomKill
from sysjobs.engine.outcome import Found, Seen, asks_journal, outcome, victim
from sysjobs.engine.units import Unit
from sysjobs.jobs import Sent, Status
from tests.models import queued
from tests.test_outcome import ROWS, RUN, SETUP, told, unit

SIGNALS = [(number, main) for number in (1, 2, 9, 11, 15, 35) for main in (True, False)]


@pytest.mark.parametrize(("number", "main"), SIGNALS)
@pytest.mark.parametrize(("level", "tells"), [(None, False), (5, False), (6, True), (7, True), (-1, True)])
def test_of_which_signals_the_journal_is_asked(
    number: int, main: bool, level: int | None, tells: bool
) -> None:
    """Of all of them only where systemd says of the unit what it was asked to send."""
    codes = ((2, number), None) if main else ((0, 0), (2, number))
    seen = Seen(replace(unit("failed", "signal", *codes), log_level=level), RUN if main else SETUP)
    assert asks_journal(seen) == (tells or number in (9, 15))
    assert not asks_journal(replace(seen, told=True))
    assert not asks_journal(replace(seen, stopped=True))


@pytest.mark.parametrize("end", [row[1] for row in ROWS if row[1] is not None and not row[1].signalled])
def test_of_other_ends_the_journal_says_no_more_where_systemd_tells_all(end: Unit) -> None:
    assert asks_journal(Seen(replace(end, log_level=6))) == asks_journal(Seen(end))


def test_what_is_looked_for() -> None:
    job = queued(Status.RUNNING, started_at=1)
    main = replace(unit("failed", "signal", (2, 2)), main_pid=7, setup_pid=8, invocation_id="ab")
    found = victim(job, Seen(main, RUN, cgroup="/a/sysjobs-42.service"), now=9)
    assert found == Victim("/a/sysjobs-42.service", 7, 1, 6, all_of_it=False, signal=2, invocation="ab")
    assert found.unit == job.unit
    setup = replace(unit("failed", "signal", (0, 0), (2, 15)), setup_pid=8)
    assert (victim(job, Seen(setup, SETUP), 9).pid, victim(job, Seen(setup, SETUP), 9).signal) == (8, 15)
    # It may have had others of us before the last one.
    sent = replace(job, sent=Sent(10, "bob", at=5))
    assert victim(sent, Seen(main, RUN), now=9).ours_until == 5


# Of what was sent through systemd only the signal that ended it counts.
REQUESTED = [
    (unit("exited", "success", (2, 15)), "FAILED_DRIVER killed, SIGTERM"),
    (unit("failed", "signal", (2, 9)), "FAILED_DRIVER killed, SIGKILL"),
    (unit("failed", "signal", (2, 11)), "FAILED_DRIVER killed, SIGSEGV"),
    (unit("failed", "core-dump", (3, 6)), "FAILED_DRIVER killed, SIGABRT, core dumped"),
    (unit("failed", "signal", (2, 2), (1, 0)), "FAILED_DRIVER killed, SIGINT; setup: exit code 0"),
    (unit("failed", "signal", (0, 0), (2, 15)), "FAILED_DRIVER killed; setup: SIGTERM"),
    (unit("failed", "signal", (0, 0), (2, 9)), "FAILED_DRIVER killed; setup: SIGKILL"),
    (unit("exited", "success", (1, 0)), "SUCCEEDED, exit code 0"),
    (unit("failed", "exit-code", (1, 143)), "FAILED exit-code, exit code 143"),
    (unit("failed", "exit-code", (0, 0), (1, 1)), "FAILED_SETUP setup; setup: exit code 1"),
    (unit("failed", "timeout", (2, 15)), "FAILED_DRIVER unit-timeout, SIGTERM"),
    (unit("failed", "oom-kill", (2, 9)), "FAILED_DRIVER oom, SIGKILL"),
    (unit("dead", "success", (2, 15)), "CANCELLED stopped, SIGTERM"),
]  # fmt: skip


@pytest.mark.parametrize(("end", "expected"), REQUESTED, ids=[row[1] for row in REQUESTED])
def test_what_was_sent_through_systemd(end: Unit, expected: str) -> None:
    seen = Seen(end, RUN if end.main_ended else SETUP, found=Found(requested=True))
    assert told(outcome(seen)) == expected
    if "oom" not in expected:
        assert outcome(replace(seen, stopped=True)).status is Status.CANCELLED


def test_a_kill_for_want_of_memory_is_what_counts() -> None:
    seen = Seen(unit("failed", "signal", (2, 9)), RUN, found=Found(OomKill(Killer.KERNEL), requested=True))
    assert told(outcome(seen)) == "FAILED_DRIVER oom-machine, SIGKILL"


SENT = "sent through systemd, as `systemctl kill` does, not through sysjobs."
SENTENCES_OF_REQUESTS = [
    (unit("exited", "success", (2, 15)), f"Ended by SIGTERM, {SENT}"),
    (unit("failed", "core-dump", (3, 6)), f"Ended by SIGABRT, core dumped, {SENT}"),
    (unit("failed", "signal", (0, 0), (2, 9)), f"Setup was ended by SIGKILL, {SENT}"),
]


@pytest.mark.parametrize(("end", "sentence"), SENTENCES_OF_REQUESTS)
def test_sentences_of_what_was_sent_through_systemd(end: Unit, sentence: str) -> None:
    reason = outcome(Seen(end, RUN if end.main_ended else SETUP, found=Found(requested=True))).reason
    assert reason is not None
    assert reason.text == sentence
