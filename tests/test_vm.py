"""What only a whole machine shows: limits that bite, the kernel's OOM killer, a real reboot, a power cut."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from tests.admin_on_node import Place, cgroup, place, put_settings, unit
from tests.node import Vm
from tests.queue_on_node import QueueOnNode

EAT = "python3 -c 'x = b\"x\" * (400 << 20)'"
# Otherwise a machine short of memory rereads its files for minutes before the kernel kills anything.
NO_THRASHING = "cd /sys/kernel/mm/lru_gen; echo y >enabled; echo 1000 >min_ttl_ms"
EAT_AND_WAIT = EAT.replace("'x", "'import time; x").replace("20)", "20); time.sleep(1000)")


@pytest.fixture
def alice(vm: Vm) -> Iterator[Place]:
    with place(vm) as alice:
        yield alice


def test_it_is_a_whole_machine(vm: Vm) -> None:
    assert vm.sh("systemctl --failed --no-legend") == ""
    assert {"cpu", "io", "memory", "pids"} <= set(vm.sh("cat /sys/fs/cgroup/cgroup.controllers").split())
    done = vm.run(["sh", "-c", "cat; echo err >&2; kill -USR1 $$"], input=b"\x00\xff", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (255, b"\x00\xff", b"err\n")
    odd = b"a 'b' \"c\" \xff $HOME\n;"
    assert vm.run(["printf", "%s", odd], user="bob", cwd="/tmp").stdout == odd


@pytest.fixture
def neighbour(vm: Vm, alice: Place) -> Iterator[None]:
    """Another job of the same user, which is to go on whatever happens to hers."""
    job = alice.start("--cpus", "0", "-c", "touch up; exec sleep 1000")
    invocation = unit(vm, job, "InvocationID")
    yield
    assert alice.show(job)["status"] == "RUNNING"
    assert unit(vm, job, "InvocationID") == invocation


OOM = [
    (("-c", f"exec {EAT}"), "It ran", signal.SIGKILL),
    # A child, and setup.
    (("-c", f"{EAT}; exit 0"), "It ran", None),
    (("--setup", EAT, "true"), "Its setup ran", None),
]


@pytest.mark.usefixtures("neighbour")
def test_a_job_that_takes_more_memory_than_it_asked_for(alice: Place) -> None:
    jobs = [alice.submit("--cpus", "0", "--memory", "100M", *options) for options, _, _ in OOM]
    assert alice.wait(*jobs, timeout=120) == 100
    for job, (_, said, by) in zip(jobs, OOM, strict=True):
        shown = alice.show(job)
        assert (shown["status"], shown["reason_code"]) == ("FAILED_DRIVER", "oom"), shown
        assert re.fullmatch(
            rf"{said} out of memory at its limit of 100M: the kernel killed 'python3', "
            r"which had \d+(\.\d)?M in memory\. Try --memory 200M\.",
            shown["reason"],
        ), shown["reason"]
        assert 95 << 20 < shown["peak_memory"] <= 100 << 20
        assert shown["warnings"] == []
        if by is not None:
            assert shown["signal"] == by


def kernel(vm: Vm, path: str, *names: str) -> list[str]:
    return [vm.sh(f"cat {path}/{name}").strip() for name in names]


def test_what_a_job_asked_for_is_what_the_kernel_holds_it_to(vm: Vm, alice: Place) -> None:
    holds = ("-c", "touch up.$SYSJOBS_JOB_ID; sleep 1000")
    job = alice.start("--cpus", "1.25", "--cpu-limit", "hard", "--memory", "200M", *holds)
    alice.start("--cpus", "0.5", *holds, count=2)
    path = cgroup(vm, job)
    names = ("cpu.weight", "cpu.max", "memory.max", "memory.swap.max", "pids.max")
    assert kernel(vm, path, *names) == ["125", "125000 100000", str(200 << 20), "0", "32768"]
    # A CPU weighs the same in every slice.
    shard = path.rpartition("/")[0]
    for slice_ in (shard, shard.rpartition("/")[0]):
        vm.wait_for(f"[ $(cat {slice_}/cpu.weight) = 175 ]")
    assert alice.show(job)["warnings"] == []
    # And where it is something else, that is said.
    unit = f"sysjobs-{job}.service"
    vm.run(["systemctl", "set-property", "--runtime", unit, "MemoryMax=infinity", "CPUQuota=", "CPUWeight=7"])
    assert alice.show(job)["warnings"] == [
        "It isn't held to 200M of memory: memory.max is max.",
        "It isn't held to 1.25 CPUs: cpu.max is max 100000.",
        "Its CPUs weigh otherwise than those of others: cpu.weight is 7, not 125.",
    ]


def test_jobs_are_kept_to_cpus_of_their_own(vm: Vm, alice: Place) -> None:
    count = int(vm.sh("nproc"))
    put_settings(vm, "[node]\npin-cpus = true\n")
    try:
        says = "nproc >cpus.$SYSJOBS_JOB_ID; touch up.$SYSJOBS_JOB_ID; sleep 1000"
        jobs = alice.submit_many([{"shell": says, "cpus": 1}] * (count + 1))
        alice.until(f"[ $(ls | grep -c ^up) = {count} ]")
    finally:
        put_settings(vm, "")
    paths = "/sys/fs/cgroup/sysjobs.slice/*/*/sysjobs-*.service"
    cores = vm.sh(f"cat {paths}/cpuset.cpus").split()
    assert sorted(cores[:count]) == [str(number) for number in range(count)]
    assert set(alice.shell("cat cpus.*").split()) == {"1"}
    shown = alice.show(jobs[0])
    assert shown["devices"][0]["name"] in {f"cpu{core}" for core in cores}
    assert shown["warnings"] == []


@pytest.mark.usefixtures("neighbour")
def test_a_slice_and_a_machine_without_memory(vm: Vm, alice: Place) -> None:
    slice_ = "sysjobs-u1000.slice"
    vm.run(["systemctl", "set-property", "--runtime", slice_, "MemoryMax=150M"])
    try:
        job = alice.submit("-c", f"exec {EAT}")
        assert alice.wait(job, timeout=120) == 100
    finally:
        vm.run(["systemctl", "set-property", "--runtime", slice_, "MemoryMax=infinity"])
    shown = alice.show(job)
    assert (shown["status"], shown["reason_code"]) == ("FAILED_DRIVER", "oom-slice")
    assert shown["reason"].startswith(
        f"{slice_}, which it ran in, reached its memory limit: the kernel killed"
    )
    vm.sh(NO_THRASHING)
    # Far more than there is.
    some = EAT.replace("400", "700")
    job = alice.submit("-c", f"{some} & {some} & wait")
    assert alice.wait(job, timeout=120) == 100
    shown = alice.show(job)
    assert (shown["status"], shown["reason_code"]) == ("FAILED_DRIVER", "oom-machine"), shown
    assert shown["reason"].startswith(
        "The machine ran out of memory: the kernel killed 'python3', which had "
    )
    assert shown["reason"].endswith("Ask for what it needs with --memory.")


def test_earlyoom(vm: Vm, alice: Place) -> None:
    options = ["-m", "60", "-s", "100", "-r", "0"]
    vm.run(["systemd-run", "--quiet", "--collect", "--unit=early", "earlyoom", *options])
    try:
        job = alice.submit("-c", f"exec {EAT_AND_WAIT}")
        assert alice.wait(job, timeout=120) == 100
    finally:
        vm.run(["systemctl", "stop", "early"])
    shown = alice.show(job)
    assert (shown["status"], shown["reason_code"]) == ("FAILED_DRIVER", "oom-earlyoom"), shown
    said = "The machine was short of memory: earlyoom killed 'python3', which had "
    assert shown["reason"].startswith(said), shown["reason"]
    assert shown["signal"] == signal.SIGTERM


OOMD = """
    fallocate -l 256M /swap
    chmod 600 /swap
    mkswap --quiet /swap
    swapon /swap
    mkdir -p /run/systemd/oomd.conf.d
    printf '[OOM]\\nSwapUsedLimit=1%%\\n' >/run/systemd/oomd.conf.d/test.conf
    systemctl start systemd-oomd
    systemctl set-property --runtime sysjobs-u1000.slice MemoryHigh=60M ManagedOOMSwap=kill
"""
NO_OOMD = """
    systemctl set-property --runtime sysjobs-u1000.slice MemoryHigh=infinity ManagedOOMSwap=auto
    systemctl stop systemd-oomd.socket systemd-oomd.service
    swapoff /swap
    rm -r /swap /run/systemd/oomd.conf.d
"""


def test_systemd_oomd(vm: Vm, alice: Place) -> None:
    vm.sh(OOMD)
    try:
        job = alice.submit("-c", f"exec {EAT_AND_WAIT}")
        assert alice.wait(job, timeout=120) == 100
    finally:
        vm.sh(NO_OOMD)
    shown = alice.show(job)
    assert (shown["status"], shown["reason_code"]) == ("FAILED_DRIVER", "oom-oomd"), shown
    said = "as the machine was short of memory|due to memory used .* swap used .* being more than 1.00%"
    assert re.match(rf"systemd-oomd killed it ({said})\. ", shown["reason"]), shown["reason"]
    assert shown["signal"] == signal.SIGKILL


def test_what_kills_itself_is_no_oom(alice: Place) -> None:
    job = alice.submit("--memory", "100M", "-c", "kill -KILL $$")
    assert alice.wait(job, timeout=120) == 100
    assert (alice.show(job)["status"], alice.show(job)["reason_code"]) == ("FAILED_DRIVER", "killed")


def test_memory_is_limited(vm: Vm, alice: Place) -> None:
    job = alice.start("--memory", "64M", "-c", "touch up; sleep 1000")
    where = cgroup(vm, job)
    assert vm.sh(f"cat {where}/memory.max {where}/memory.swap.max") == f"{64 << 20}\n0\n"
    # As systemd does for DisableControllers= of the slice: what could be enforced isn't.
    vm.sh(f"echo -memory >{where}/../cgroup.subtree_control")
    (said,) = alice.show(job)["warnings"]
    assert said == "It isn't held to 64M of memory: memory.max is missing."
    vm.sh(f"echo +memory >{where}/../cgroup.subtree_control")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("reboot", "The machine was shut down or rebooted while it ran."),
        ("power-cut", "The machine went down while it ran, with no shutdown on record"),
    ],
)
def test_the_machine_goes_down_and_comes_up(vm: Vm, code: str, said: str) -> None:
    alice = Place(vm)
    boot = vm.get("/proc/sys/kernel/random/boot_id")
    ended = alice.submit("-c", "exit 3")
    assert alice.wait(ended, timeout=120) == 100
    running = alice.start("-c", "touch up; sleep 1000")
    waiting = alice.submit("--cpus", "2", "-C", alice.path, "-c", "echo ran >>ran")
    assert alice.show(waiting)["status"] == "PENDING"
    if code == "reboot":
        vm.reboot()
    else:
        vm.kill()
        vm.boot()
    assert vm.get("/proc/sys/kernel/random/boot_id") != boot
    queue = QueueOnNode(vm)
    assert queue.show(ended)["exit_code"] == 3
    lost = queue.show(running)
    assert (lost["status"], lost["reason_code"]) == ("FAILED_DRIVER", code)
    assert lost["reason"].startswith(said), lost["reason"]
    assert queue.wait(waiting, timeout=120) == 0, queue.show(waiting)
    assert alice.file("ran") == "ran\n"
