"""A user logs out and comes back: the job runs on, and its shared memory is still there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node import Node

# Holds a POSIX shared memory object and a System V segment, and says so in its log.
HOLDER = """
python3 - <<'PYTHON'
import ctypes, mmap, os, time
fd = os.open("/dev/shm/of-a-job", os.O_CREAT | os.O_RDWR, 0o600)
os.write(fd, b"kept")
segment = ctypes.CDLL(None, use_errno=True).shmget(4242, 4096, 0o1600)
assert segment >= 0, os.strerror(ctypes.get_errno())
print("ready", flush=True)
time.sleep(1000)
PYTHON
"""
RELOAD = "systemctl kill --kill-whom=main -s HUP systemd-logind"
SEGMENTS = "awk '$1 == 4242' /proc/sysvipc/shm | wc -l"


@pytest.fixture
def quick_logind(node: Node) -> Iterator[None]:
    """logind that cleans up after the last logout at once, instead of 10 s later."""
    drop_in = "/etc/systemd/logind.conf.d/test.conf"
    node.sh(f"mkdir -p {drop_in.rpartition('/')[0]}; printf '[Login]\\nUserStopDelaySec=0\\n' >{drop_in}")
    node.sh(RELOAD)
    yield
    node.sh(f"rm {drop_in}; {RELOAD}")


def submit_and_log_out(node: Node) -> str:
    with node.login("bob") as session:
        job = session.run(f"sysjobs submit --parsable -c '{HOLDER.replace(chr(39), chr(34))}'").strip()
        node.wait_for(f"sysjobs logs {job} | grep ready")
    node.wait_for("! loginctl list-users | grep bob", timeout=60)
    return job


def test_job_and_its_shared_memory_outlive_the_logout(node: Node, quick_logind: None) -> None:
    job = submit_and_log_out(node)
    with node.login("bob") as session:
        assert '"RUNNING"' in session.run(f"sysjobs show {job} --json")
        assert session.run("cat /dev/shm/of-a-job") == "kept"
        assert session.run(SEGMENTS).strip() == "1"
        session.run(
            f"sysjobs cancel --grace 0 {job}; sysjobs wait {job} || :; rm /dev/shm/of-a-job; ipcrm -M 4242"
        )


def test_it_is_the_drop_in_that_keeps_it(node: Node, quick_logind: None) -> None:
    """Without it logind deletes both: what this test would look like if the setting had no effect."""
    drop_in = "/etc/systemd/logind.conf.d/zz-test.conf"
    node.sh(f"printf '[Login]\\nRemoveIPC=yes\\n' >{drop_in}; {RELOAD}")
    try:
        job = submit_and_log_out(node)
        node.wait_for("! test -e /dev/shm/of-a-job")
        node.run(["sysjobs", "cancel", "--grace", "0", job])
    finally:
        node.sh(f"rm {drop_in}; {RELOAD}")


def test_installing_has_logind_take_it_up(node: Node) -> None:
    manager = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager"
    setting = f"busctl get-property {manager} RemoveIPC"
    assert node.sh(setting) == "b false\n"
    node.sh(f"rm /usr/lib/systemd/logind.conf.d/*sysjobs*; {RELOAD}")
    node.wait_for(f"{setting} | grep true")
    node.put("/tmp/sysjobs.deb", node.deb)
    node.run(["apt-get", "-o", "APT::Sandbox::User=root", "install", "--reinstall", "-y", "/tmp/sysjobs.deb"])
    node.wait_for(f"{setting} | grep false")
