"""What a damaged or lost database means to jobs, and its repair. Rows and pages are in test_repair.py."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.admin_on_node import DAEMON, Place, daemon, place, unit
from tests.node import Node
from tests.queue_on_node import QueueOnNode

DATABASE = "/var/lib/sysjobs/sysjobs.db"
BOTH = ["sysjobsd.socket", DAEMON]


@pytest.fixture(scope="module")
def node(own_node: Node) -> Node:
    return own_node


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


@pytest.fixture
def forgetful(node: Node, alice: Place) -> Iterator[None]:
    """A node whose database forgets jobs, whose units are then nobody's."""
    yield
    node.sh(
        f"""
        systemctl stop {" ".join(BOTH)} 'sysjobs-[0-9]*.service'
        rm -f {DATABASE}*
        systemctl reset-failed {DAEMON} || :
        systemctl start {" ".join(BOTH)}
        """
    )


def stop(node: Node) -> None:
    node.run(["systemctl", "stop", *BOTH])


def start(node: Node) -> None:
    node.run(["systemctl", "start", *BOTH])


def repair(node: Node) -> str:
    done = node.run(["sysjobsd", "--repair"])
    return done.stderr.decode()


@pytest.mark.usefixtures("forgetful")
def test_one_bad_row_spoils_nothing_else(node: Node, alice: Place) -> None:
    since = time.time()
    old = alice.submit("true")
    assert alice.wait(old) == 0
    good, bad = (alice.start("--cpus", "0", "-c", f"touch up{n}; sleep 1000", count=n) for n in (1, 2))
    invocation = unit(node, bad, "InvocationID")
    stop(node)
    change = (
        f"PRAGMA ignore_check_constraints = 1; UPDATE jobs SET status = 'RUNNIMG' WHERE id IN ({old}, {bad})"
    )
    node.run(["sqlite3", DATABASE, change])
    start(node)
    said = f"The record of job {bad} in the database is damaged: 'RUNNIMG' is not a valid Status."
    for command in ("show", "cancel", "wait", "logs"):
        done = alice.run(command, str(bad), check=False)
        assert done.returncode in (1, 102), command
        assert said in done.stderr.decode(), command
        assert f"Its unit, sysjobs-{bad}, and its logs are left alone." in done.stderr.decode()
    # Also where the damage has made it match no more, for its unit is there.
    one, both = f"The record of job {bad} is damaged", f"The records of jobs {old}, {bad} are damaged"
    for options, named in (
        ([], both),
        (["-a", "--json"], both),
        (["-s"], one),
        (["--status", "running"], one),
        ([f"{good}-{bad}"], one),
    ):
        done = alice.run("queue", *options)
        assert f"{named}, and left out; `sudo sysjobs doctor` says".encode() in done.stderr
        assert b"RUNNIMG" not in done.stdout + done.stderr
    assert QueueOnNode(node, "bob").run("queue").stderr == b""
    assert list(alice.jobs("-s")) == [good]
    assert list(alice.jobs(f"{good}-{bad}")) == [good]
    new = alice.submit("true")
    assert new > bad
    done = alice.run("cancel", f"{good}-{bad}", check=False)
    assert (done.returncode, done.stdout.count(b"\n")) == (1, 1)
    assert f"The record of job {bad} is damaged, and left alone; `sudo sysjobs".encode() in done.stderr
    done = alice.run("wait", f"{good}-{new}", check=False)
    assert (done.returncode, done.stdout.count(b"\n")) == (1, 2)
    assert said in done.stderr.decode()
    assert alice.wait(old, bad) == 1
    assert unit(node, bad, "InvocationID") == invocation
    assert unit(node, bad, "ActiveState") == "active"
    assert node.journal(DAEMON, since=since).count(said) == 1
    doctor = node.run(["sysjobs", "doctor"], check=False)
    assert doctor.returncode == 1
    assert b"problem  database  The database is damaged: CHECK constraint failed in jobs." in doctor.stdout
    assert f"problem  database  {both}.".encode() in doctor.stdout
    assert f"warning  units     sysjobs-{bad}.service is of a job".encode() in doctor.stdout
    done = node.run(["sysjobsd", "--repair"], check=False)
    assert (done.returncode, b"is in use by another process" in done.stderr) == (1, True)
    stop(node)
    report = repair(node)
    assert re.search(rf"of these numbers no job could be read: (?:.*, )?{bad}\n", report)
    assert f"{DATABASE} is whole" in repair(node)
    start(node)
    assert alice.show(good)["status"] == "CANCELLED"
    assert alice.run("show", str(bad), check=False).stderr.startswith(b"sysjobs: There is no job")
    assert unit(node, bad, "InvocationID") == invocation
    # What is done as the doctor says is seen.
    assert f"warning  units     sysjobs-{bad}.service".encode() in node.run(["sysjobs", "doctor"]).stdout
    node.run(["systemctl", "stop", f"sysjobs-{bad}"])
    assert b"ok       units " in node.run(["sysjobs", "doctor"]).stdout


# Of what is there without free pages, the last fifth is gone: the newest rows.
CUT = f"truncate -s $(($(stat -c %s {DATABASE}) * 4 / 5)) {DATABASE}"
DAMAGE = {
    "cut off": CUT,
    "zeroed": f"size=$(stat -c %s {DATABASE}); {CUT}; truncate -s $size {DATABASE}",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.usefixtures("forgetful")
def test_a_damaged_file_is_repaired(node: Node, alice: Place, damage: str) -> None:
    since = time.time()
    ended = alice.submit_many([{"command": ["echo", "x" * 500], "cpus": 0, "workdir": "/"}] * 60)
    assert alice.wait(*ended) == 0
    running = alice.start("-c", "touch up; sleep 1000")
    invocation = unit(node, running, "InvocationID")
    stop(node)
    node.sh(f"sqlite3 {DATABASE} VACUUM; {damage}")
    assert node.run(["systemctl", "start", DAEMON], check=False).returncode == 1
    said = node.journal(DAEMON, since=since)
    assert f"{DATABASE} is damaged: " in said
    assert "`sysjobsd --repair` saves what can be read" in said
    report = repair(node)
    assert f"{DATABASE} was damaged: " in report
    kept = re.search(rf"it is kept as ({DATABASE}\.damaged-\S+); a new one has the (\d+) jobs", report)
    assert kept
    assert node.sh(f"stat -c %a {DATABASE} {kept[1]}") == "600\n600\n"
    lost = re.search(rf"no job could be read: (?:.*, )?(\d+)-{running}\n", report)
    assert lost
    start(node)
    # Those that were saved are as they were; nobody comes by the numbers of the others.
    saved = alice.jobs()
    assert list(saved)[-1] == int(lost[1]) - 1
    assert len(saved) == int(kept[2]) > 20
    assert {job["status"] for job in saved.values()} == {"SUCCEEDED"}
    assert alice.wait(new := alice.submit("true")) == 0
    assert new == running + 1
    assert unit(node, running, "InvocationID") == invocation
    assert unit(node, running, "ActiveState") == "active"


@pytest.mark.usefixtures("forgetful")
def test_a_lost_database(node: Node, alice: Place) -> None:
    """No new job comes by the unit or the log of one that was forgotten."""
    since = time.time()
    running = alice.start("-c", "touch up; sleep 1000")
    bob = QueueOnNode(node, "bob")
    ended = [bob.submit("echo", "old") for _ in range(3)]
    assert bob.wait(*ended) == 0
    stop(node)
    node.sh(f"rm {DATABASE}*")
    start(node)
    new = alice.submit("-C", "/", "echo", "new")
    assert new == ended[-1] + 1
    assert alice.wait(new) == 0
    assert node.get(f"/var/log/sysjobs/bob/{ended[-1]}.log") == b"old\n"
    assert unit(node, running, "ActiveState") == "active"
    said = node.journal(DAEMON, since=since)
    assert f"there are logs of jobs up to {ended[-1]}, the database knows jobs up to 0" in said
    assert f"unit of job {running} is not accounted for by the database; it is left alone" in said
    assert daemon(node, "ActiveState") == "active"


REMOVED = {
    "logs": (
        "rm -r /var/log/sysjobs; mkdir /var/log/sysjobs",
        "/var/log/sysjobs",
    ),
    "the database": (f"rm {DATABASE}*", DATABASE),
    "its directory": ("rm -r /var/lib/sysjobs", "/var/lib/sysjobs"),
}


@pytest.mark.parametrize(("command", "what"), REMOVED.values(), ids=REMOVED)
def test_what_was_removed_while_in_use(node: Node, alice: Place, command: str, what: str) -> None:
    since = time.time()
    running = alice.start("--cpus", "0", "-c", "touch up; until [ -e go ]; do sleep 0.05; done; exit 3")
    invocation = unit(node, running, "InvocationID")
    node.sh(command)
    if what == "/var/lib/sysjobs":
        done = alice.run("submit", "true", check=False)
        assert done.returncode == 1
        assert b"sysjobs: /var/lib/sysjobs can't be used: No such file or directory." in done.stderr
    # It may be this one that makes the daemon look.
    new = alice.submit("-C", "/", "echo", "new")
    assert new == running + 1
    assert alice.wait(new) == 0
    assert alice.log(new) == b"new\n"
    assert f"{what} was removed or replaced while in use" in node.journal(DAEMON, since=since)
    assert unit(node, running, "InvocationID") == invocation
    alice.shell("touch go")
    assert alice.wait(running) == 100
    assert alice.show(running)["exit_code"] == 3
    # Another start changes nothing more.
    node.run(["systemctl", "restart", DAEMON])
    assert [job["status"] for job in alice.jobs(f"{running}-{new}").values()] == ["FAILED", "SUCCEEDED"]


def test_a_users_log_directory_is_made_again(node: Node, alice: Place) -> None:
    assert alice.wait(alice.submit("true")) == 0
    node.run(["rm", "-r", "/var/log/sysjobs/alice"])
    assert alice.output("echo", "again") == b"again\n"
