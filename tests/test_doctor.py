"""`sysjobs doctor`: what it says of a node, and its exit code. More is in test_disk and test_damage."""

from __future__ import annotations

import json

from tests.admin_on_node import DAEMON, SETTINGS, drop_in, place
from tests.node import Node
from tests.queue_on_node import QueueOnNode
from tests.test_around import DEAF

SUBJECTS = ["daemon", "systemd", "settings", "memory", "disk", "disk", "disk", "units"]
SCRIPTS = "/run/sysjobs/jobs"


def test_a_node_that_is_well(node: Node) -> None:
    # Whatever the tests before left, it mends once.
    QueueOnNode(node, "root").run("doctor")
    for user, more in (("root", ["leftovers", "database"]), ("alice", ["database"])):
        done = QueueOnNode(node, user).run("doctor", "--json")
        findings = json.loads(done.stdout)
        assert [found["subject"] for found in findings] == SUBJECTS + more
        for found in findings:
            if found["subject"] == "memory":
                # It depends on the machine that the node is on, and is said in any case.
                controllers = node.sh("cat /sys/fs/cgroup/cgroup.controllers").split()
                assert found["level"] == ("ok" if "memory" in controllers else "warning")
            else:
                assert found["level"] == "ok", found
        assert findings[-1]["text"].startswith("The database is whole" if user == "root" else "Not looked at")
    text = QueueOnNode(node).run("doctor").stdout.decode()
    assert "ok       daemon    sysjobsd answers: 0 running, 0 waiting." in text


def test_settings_that_a_reload_would_refuse(node: Node) -> None:
    node.put(SETTINGS, b"[node]\ncpus = 'many'\n")
    try:
        done = QueueOnNode(node).run("doctor", check=False)
        assert done.returncode == 1
        said = f"problem  settings  {SETTINGS}, line 2: cpus 'many'"
        assert said in done.stdout.decode()
        # And where there is no daemon, which doesn't start with these.
        alone = QueueOnNode(node).run("--socket", "/run/nothing", "doctor", check=False)
        assert (alone.returncode, said in alone.stdout.decode()) == (1, True), alone.stdout
    finally:
        node.run(["rm", SETTINGS])


def test_what_signals_did_not_tell_is_mended(node: Node) -> None:
    node.put("/run/deaf.py", DEAF.encode())
    with place(node) as alice, drop_in(node, "ExecStart=\nExecStart=python3 /run/deaf.py 60"):
        job = alice.start("--cpus", "0", "-c", "touch up; until [ -e go ]; do sleep 0.05; done; exit 3")
        node.run(["touch", "/run/sysjobs/deaf"])
        try:
            alice.shell("touch go")
            node.wait_for(f"[ $(systemctl show -P SubState sysjobs-{job}) = failed ]")
            assert alice.run("doctor").stdout.count(b"mended") == 0
            assert alice.show(job)["status"] == "RUNNING"
            said = node.run(["sysjobs", "doctor"]).stdout.decode()
            assert f"mended   jobs      Job {job} is FAILED, which no signal had told; now it is" in said
            assert alice.show(job)["exit_code"] == 3
        finally:
            node.run(["rm", "/run/sysjobs/deaf"])


def test_what_is_left_of_jobs_is_removed(node: Node) -> None:
    with place(node) as alice:
        running = alice.start("--cpus", "0", "-c", "touch up; sleep 1000")
        node.sh(
            f"""
            cd {SCRIPTS}
            mkdir 9000001 9000002
            touch 9000001/1.run
            install -d -o alice -m 700 9000004
            """
        )
        there = f"ls {SCRIPTS} | sort -n"
        try:
            assert alice.run("doctor").stdout.count(b"mended") == 0
            assert node.sh(there).split() == [str(running), "9000001", "9000002", "9000004"]
            said = node.run(["sysjobs", "doctor"]).stdout.decode()
            assert (
                f"mended   leftovers What was left of jobs 9000001-9000002 in {SCRIPTS} was removed." in said
            )
            assert f"warning  leftovers What is left of jobs 9000004 in {SCRIPTS} can't be removed" in said
            assert node.sh(there).split() == [str(running), "9000004"]
        finally:
            node.sh(f"cd {SCRIPTS}; rm -rf 9000001 9000002 9000004")
        said = node.run(["sysjobs", "doctor"]).stdout.decode()
        assert "ok       leftovers Nothing is left of jobs that are gone." in said
        assert alice.run("cancel", str(running)).returncode == 0
        assert alice.wait(running) == 103


def test_without_the_daemon(node: Node) -> None:
    node.run(["systemctl", "stop", "sysjobsd.socket", DAEMON])
    try:
        done = QueueOnNode(node).run("doctor", check=False)
        lines = done.stdout.decode().splitlines()
        assert done.returncode == 1
        assert lines[0].startswith("problem  daemon    ")
        assert "`sysjobsd --repair`" in lines[1]
        assert any(line.startswith("ok       disk      /var/log/sysjobs has ") for line in lines)
    finally:
        node.run(["systemctl", "start", "sysjobsd.socket", DAEMON])
