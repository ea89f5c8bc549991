"""Looking into the journal, with a journalctl that says what a test has it say."""

from __future__ import annotations

import json
import select
from dataclasses import replace
from pathlib import Path

import pytest

from sysjobs.engine import journal
from sysjobs.engine.evidence import Victim
from sysjobs.engine.journal import Journal
from sysjobs.engine.oom import Killer, OomKill
from sysjobs.engine.outcome import Found
from tests.waiting import wait_until

KILL, NOTHING = Found(OomKill(Killer.EARLYOOM, "py", 1 << 20)), Found()


def line(pid: int, at: int = 50) -> str:
    text = f'sending SIGTERM to process {pid} uid 1000 "py": badness 953, VmRSS 1 MiB'
    return json.dumps({"__REALTIME_TIMESTAMP": str(at), "MESSAGE": text, "SYSLOG_IDENTIFIER": "earlyoom"})


def victim(pid: int, since: int = 10) -> Victim:
    return Victim("/sysjobs.slice/sysjobs-1.service", pid, since=since, until=since + 80, all_of_it=False)


class Fake:
    """A journalctl of our own: what it is asked it notes, and goes on as the script says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.says()

    def says(self, *lines: str, script: str = "") -> None:
        (self.folder / "lines").write_text("".join(f"{line}\n" for line in lines))
        program = self.folder / "journalctl"
        noted = f'cd {self.folder}; echo "$*" >>asked; [ "$*" = --sync ] && exit'
        program.write_text(f"#!/bin/sh\n{noted}\n{script}\ncat lines\n")
        program.chmod(0o755)

    @property
    def looks(self) -> list[str]:
        """What was asked for beside that all be taken in."""
        asked = self.folder / "asked"
        text = asked.read_text() if asked.exists() else ""
        return [words for words in text.splitlines() if words != "--sync"]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return Fake(tmp_path)


@pytest.fixture
def epoll() -> select.epoll:
    return select.epoll()


@pytest.fixture
def searches(epoll: select.epoll) -> Journal:
    return Journal(epoll)


def found(searches: Journal, epoll: select.epoll, count: int) -> dict[int, Found]:
    """What so many searches come to."""
    ends: dict[int, Found] = {}
    while len(ends) < count:
        assert epoll.poll(10)
        ends |= searches.found()
    return ends


def test_a_search(fake: Fake, searches: Journal, epoll: select.epoll) -> None:
    fake.says(line(7, at=12_345_700))
    assert searches.found() == {}
    assert searches.search(1, victim(7, since=12_345_678))
    assert 1 in searches
    assert found(searches, epoll, 1) == {1: KILL}
    assert 1 not in searches
    assert "--since=@12 " in fake.looks[0]
    assert searches.found() == {}
    assert epoll.poll(0) == []


def test_a_signal_that_systemd_was_asked_for(fake: Fake, searches: Journal, epoll: select.epoll) -> None:
    text = "sysjobs-1.service: Sent signal SIGINT to main process 7 (sh) on client request."
    fields = {"SYSLOG_IDENTIFIER": "systemd", "INVOCATION_ID": "ab", "__REALTIME_TIMESTAMP": "50"}
    fake.says(json.dumps({"MESSAGE": text, **fields}))
    asked = replace(victim(7), signal=2, invocation="ab")
    assert searches.search(1, asked)
    assert found(searches, epoll, 1) == {1: Found(requested=True)}
    # Whoever isn't PID 1 may say so as well.
    assert "SYSLOG_IDENTIFIER=systemd _PID=1 " in fake.looks[0]


def test_who_asks_meanwhile_shares_the_next_look(fake: Fake, searches: Journal, epoll: select.epoll) -> None:
    """The first look is over only when there are 50 who wait for another."""
    fake.says(line(7), script="[ -e go ] || { mkfifo go; read -r _ <go; }")
    assert searches.search(0, victim(7))
    for key in range(1, 51):
        assert searches.search(key, victim(6 + key % 2))
    assert len([key for key in range(60) if key in searches]) == 51
    wait_until((fake.folder / "go").exists)
    assert epoll.poll(0) == []
    (fake.folder / "go").write_text("go\n")
    assert found(searches, epoll, 51) == {key: KILL if key % 2 or not key else NOTHING for key in range(51)}
    assert len(fake.looks) == 2


def test_a_journal_that_does_not_answer(
    fake: Fake, searches: Journal, epoll: select.epoll, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had said by then counts."""
    monkeypatch.setattr(journal, "PATIENCE", 0.2)
    fake.says(script=f"echo '{line(7)}'; mkfifo for-ever; read -r _ <for-ever")
    for key, kill in ((1, KILL), (2, NOTHING)):
        assert searches.search(key, victim(8 - key))
        assert found(searches, epoll, 1) == {key: kill}
        (fake.folder / "for-ever").unlink()


KILL_ONCE = "[ -e killed ] || { touch killed; kill -TERM $$; }"


def test_a_look_that_was_killed_is_no_answer(fake: Fake, searches: Journal, epoll: select.epoll) -> None:
    """Together with those who asked meanwhile it is looked again for whom it was."""
    fake.says(line(7), script=KILL_ONCE)
    assert searches.search(1, victim(7))
    assert searches.search(2, victim(7))
    assert found(searches, epoll, 2) == {1: KILL, 2: KILL}
    assert len(fake.looks) == 2
    assert epoll.poll(0) == []


def test_looks_that_are_always_killed(fake: Fake, searches: Journal, epoll: select.epoll) -> None:
    fake.says(line(7), script="kill -KILL $$")
    assert searches.search(1, victim(7))
    assert found(searches, epoll, 1) == {1: NOTHING}
    assert len(fake.looks) == 2
    assert 1 not in searches


def test_a_journal_that_says_too_much(
    fake: Fake, searches: Journal, epoll: select.epoll, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of it counts."""
    monkeypatch.setattr(journal, "_MOST", 1000)
    fake.says(line(7), *[line(3)] * 1000, line(8))
    assert searches.search(1, victim(7))
    assert searches.search(2, victim(8))
    assert found(searches, epoll, 2) == {1: NOTHING, 2: KILL}


def test_nothing_to_look_with(
    tmp_path: Path, searches: Journal, epoll: select.epoll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not searches.search(1, victim(7))
    assert 1 not in searches
    assert epoll.poll(0) == []


def test_nothing_to_look_with_any_more(
    fake: Fake, tmp_path: Path, searches: Journal, epoll: select.epoll, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.says(line(7))
    assert searches.search(1, victim(7))
    assert searches.search(2, victim(7))
    monkeypatch.setenv("PATH", str(tmp_path / "gone"))
    assert found(searches, epoll, 2) == {1: KILL, 2: NOTHING}
