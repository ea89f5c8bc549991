"""`sysjobs doctor`: what it says of a node, and its exit code. More is in test_disk and test_damage."""

from __future__ import annotations

import json

from tests.admin_on_node import DAEMON, SETTINGS
from tests.node import Node
from tests.queue_on_node import QueueOnNode

SUBJECTS = ["daemon", "systemd", "settings", "memory", "disk", "disk", "disk", "units", "database"]


def test_a_node_that_is_well(node: Node) -> None:
    for user in ("root", "alice"):
        done = QueueOnNode(node, user).run("doctor", "--json")
        findings = json.loads(done.stdout)
        assert [found["subject"] for found in findings] == SUBJECTS
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
        assert f"problem  settings  {SETTINGS}, line 2: cpus 'many'" in done.stdout.decode()
    finally:
        node.run(["rm", SETTINGS])


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
