"""The administrator's settings, and a database of another version: taken up, or refused with advice."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.admin_on_node import DAEMON, SETTINGS, Place, daemon, place
from tests.node import Node
from tests.queue_on_node import QueueOnNode

DATABASE = "/var/lib/sysjobs/sysjobs.db"
EXIT_CONFIG = "78"


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


class Settings:
    def __init__(self, node: Node) -> None:
        self.node = node

    def write(self, text: str, name: str = SETTINGS) -> None:
        self.node.put(name, text.encode())

    def reload(self) -> str:
        """Have them read again; what the daemon says to that."""
        since = time.time()
        self.node.run(["systemctl", "reload", DAEMON])
        return self._said("settings", since)

    def signal(self) -> str:
        """The same by a SIGHUP, which tells nobody whether it was well received."""
        since = time.time()
        self.node.run(["systemctl", "kill", "--kill-whom=main", "-s", "HUP", DAEMON])
        return self._said("settings", since)

    def fail_to_reload(self) -> str:
        since = time.time()
        assert self.node.run(["systemctl", "reload", DAEMON], check=False).returncode == 1
        return self._said(f"-e {SETTINGS} -e 'The settings'", since)

    def _said(self, words: str, since: float) -> str:
        said = f"journalctl -q -u {DAEMON} --since @{since:.6f} | grep {words}"
        self.node.wait_for(f"{said} >/dev/null")
        return self.node.sh(said)

    def start(self) -> str:
        """Start a daemon that can't; what the journal has of it."""
        since = time.time()
        assert self.node.run(["systemctl", "start", DAEMON], check=False).returncode == 1
        return self.node.journal(DAEMON, since=since)


@pytest.fixture
def settings(node: Node) -> Iterator[Settings]:
    yield Settings(node)
    node.sh(
        f"rm -rf {SETTINGS} {SETTINGS}.d; systemctl reset-failed {DAEMON} || :; systemctl restart {DAEMON}"
    )


def capacity(alice: Place) -> str:
    """What a refusal says that the node has."""
    done = alice.run("submit", "--cpus", "9999", "true", check=False)
    assert done.returncode == 1
    return done.stderr.decode().splitlines()[1]


def test_sighup_reads_them_again(node: Node, alice: Place, settings: Settings) -> None:
    pid = daemon(node, "MainPID")
    first = alice.start("--cpus", node.sh("nproc").strip(), "-c", "touch up; sleep 1000")
    second = alice.submit("-C", alice.path, "--cpus", "1", "touch", "second")
    assert alice.show(second)["status"] == "PENDING"
    settings.write("[node]\ncpus = 17\n")
    assert "settings were read again" in settings.reload()
    assert "It has 17 CPUs" in capacity(alice)
    # What waited for them starts at once; what ran runs on.
    assert alice.wait(second) == 0
    assert alice.show(first)["status"] == "RUNNING"
    # Fewer than are taken: nothing is taken away, nothing starts.
    settings.write("[node]\ncpus = 1\n")
    settings.reload()
    third = alice.submit("--cpus", "1", "true")
    assert alice.show(third)["status"] == "PENDING"
    # Nor does one that asks for more than there is by now hold up the others.
    settings.write("[node]\ncpus = 17\n")
    settings.reload()
    fourth = alice.submit("--cpus", "17", "true")
    settings.write("[node]\ncpus = 16\n")
    settings.reload()
    assert alice.wait(alice.submit("--cpus", "0.5", "true")) == 0
    assert alice.show(fourth)["reason"].startswith("Asks for more than jobs may have here by now, 16 CPUs")
    alice.run("cancel", str(fourth))
    assert alice.show(first)["status"] == "RUNNING"
    assert daemon(node, "MainPID") == pid
    # A file of the directory comes after the main one.
    settings.write("[node]\ncpus = 19.5\n", f"{SETTINGS}.d/10-more.toml")
    settings.reload()
    assert "It has 19.5 CPUs" in capacity(alice)
    assert alice.wait(third) == 0


BAD = {
    "[node]\ncpus = 'many'\n": "line 2: cpus 'many' is not a number of CPUs. Give a number",
    "[node]\n\ncpu = 3\n": "line 3: [node] has no setting 'cpu'. It has cpus, memory",
    "[nodes]\ncpus = 3\n": "line 1: there are no settings 'nodes'. The tables are [node], [jobs], [order], ",
    "[node\n": "(at line 1, column 6)",
    "[node]\ncpus = 1\nreserve-cpus = 1\n": "The settings leave nothing for jobs: of 1 CPU and ",
    "[node]\nreserve-memory = '900T'\n": "they reserve 0 CPUs and 900T of memory. Reserve less.",
    "[jobs]\ngrace = '5 parsecs'\n": "line 2: grace '5 parsecs' is not a duration.",
}


def test_bad_ones_change_nothing(node: Node, alice: Place, settings: Settings) -> None:
    settings.write("[node]\ncpus = 17\n")
    settings.reload()
    assert node.run(["sysjobsd", "--check"]).stderr == b""
    pid = daemon(node, "MainPID")
    for text, complaint in BAD.items():
        settings.write(text)
        assert complaint in settings.fail_to_reload()
        assert complaint in node.run(["sysjobsd", "--check"], check=False).stderr.decode()
    said = settings.signal()
    assert "settings are kept as they were: " + SETTINGS in said
    assert complaint in said
    assert "It has 17 CPUs" in capacity(alice)
    assert daemon(node, "MainPID") == pid
    assert daemon(node, "ActiveState") == "active"


def test_bad_ones_stop_its_start(node: Node, alice: Place, settings: Settings) -> None:
    job = alice.start("-c", "touch up; until [ -e go ]; do sleep 0.05; done")
    node.run(["systemctl", "stop", DAEMON])
    settings.write("[node]\ncpus = 'many'\n")
    said = settings.start()
    assert f"{SETTINGS}, line 2: cpus 'many' is not a number of CPUs." in said
    assert "Traceback" not in said
    assert daemon(node, "ExecMainStatus") == EXIT_CONFIG
    assert daemon(node, "ActiveState") == "failed"
    # A client is told in a while, and starting it for that client comes to an end.
    done = alice.run("queue", check=False)
    assert done.returncode == 3
    assert "can't start" in done.stderr.decode()
    assert "systemctl status sysjobsd" in done.stderr.decode()
    node.wait_for(f"! systemctl -q is-active sysjobsd.service && systemctl -q is-failed {DAEMON}")
    count = "systemctl show -P ExecMainStartTimestampMonotonic sysjobsd"
    before = node.sh(count)
    # What ended meanwhile is known once they are mended, with no further command: the socket is there.
    alice.shell("touch go")
    node.wait_for(f"systemctl show -P SubState sysjobs-{job} | grep -q exited")
    assert node.sh(count) == before
    settings.write("")
    assert alice.wait(job) == 0


def test_a_damaged_database_stops_its_start(node: Node, alice: Place, settings: Settings) -> None:
    job = alice.start("-c", "touch up; sleep 1000")
    node.run(["systemctl", "stop", "sysjobsd.socket", DAEMON])
    node.sh(
        f"cp {DATABASE} /root/good.db; head -c 1M /dev/urandom | dd of={DATABASE} bs=4k seek=1 status=none"
    )
    try:
        said = settings.start()
        assert f"{DATABASE} is damaged" in said
        assert "`sysjobsd --repair` saves what can be read" in said
        assert "Traceback" not in said
        assert daemon(node, "ExecMainStatus") == EXIT_CONFIG
    finally:
        node.sh(f"rm -f {DATABASE}*; mv /root/good.db {DATABASE}")
    node.run(["systemctl", "start", "sysjobsd.socket", DAEMON])
    assert alice.show(job)["status"] == "RUNNING"


def test_a_database_that_was_put_back_takes_nobody_elses_units(node: Node, alice: Place) -> None:
    """Jobs that it doesn't know run on; what is submitted then is another job, of another number."""
    alice.wait(alice.submit("true"))
    node.run(["systemctl", "stop", "sysjobsd.socket", DAEMON])
    node.run(["cp", DATABASE, "/root/old.db"])
    node.run(["systemctl", "start", "sysjobsd.socket", DAEMON])
    forgotten = alice.start("-c", "echo $$ >pid; touch up; exec sleep 1000")
    pid = alice.file("pid").strip()
    node.run(["systemctl", "stop", "sysjobsd.socket", DAEMON])
    node.sh(f"rm -f {DATABASE}*; mv /root/old.db {DATABASE}")
    node.run(["systemctl", "start", "sysjobsd.socket", DAEMON])
    bob = QueueOnNode(node, "bob")
    job = bob.submit("-C", "/", "-c", "echo new; exit 3")
    assert job > forgotten
    assert bob.wait(job) == 100
    assert bob.show(job)["exit_code"] == 3
    assert bob.log(job) == b"new\n"
    assert bob.run("cancel", str(forgotten), check=False).returncode == 1
    assert node.sh(f"cat /proc/{pid}/comm") == "sleep\n"
    node.run(["systemctl", "stop", f"sysjobs-{forgotten}"])


def test_a_database_of_a_newer_version_is_left_alone(node: Node, alice: Place, settings: Settings) -> None:
    job = alice.start("-c", "touch up; sleep 1000")

    def set_version(number: int) -> None:
        node.run(["sqlite3", DATABASE, f"PRAGMA user_version = {number}"])

    node.run(["systemctl", "stop", "sysjobsd.socket", DAEMON])
    version = int(node.run(["sqlite3", DATABASE, "PRAGMA user_version"]).stdout)
    set_version(999)
    try:
        said = settings.start()
        assert "was written by a newer sysjobs: its schema is version 999" in said
        assert "Install the newer sysjobs again; nothing was changed." in said
        assert "Traceback" not in said
        assert daemon(node, "ExecMainStatus") == EXIT_CONFIG
        assert node.run(["sqlite3", DATABASE, "PRAGMA user_version"]).stdout == b"999\n"
    finally:
        set_version(version)
    node.run(["systemctl", "start", "sysjobsd.socket", DAEMON])
    assert alice.show(job)["status"] == "RUNNING"
