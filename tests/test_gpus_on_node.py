"""Jobs on a node with four devices, which the settings describe: who gets which, and can open no other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.admin_on_node import DAEMON, SETTINGS, Place, kill_daemon, place, put_settings
from tests.node import Node

NODES = [f"/dev/gpu{number}" for number in range(4)]
ODD = "/dev/odd"
"""A device that is no GPU."""

GPUS = "".join(
    f'[[gpus]]\nname = "0000:0{number}:00.0"\nmodel = "NVIDIA L4"\nuuid = "GPU-{number}"\n'
    f'nodes = ["{node}"]\n'
    for number, node in enumerate(NODES)
)
DESCRIBED = f"[node]\ncpus = 100\n[resources]\nlicence = 3\n{GPUS}"
HOLDS = "touch up.$SYSJOBS_JOB_ID; until [ -e go ]; do sleep 0.05; done"
OPENS = f"for node in {' '.join(NODES)}; do (exec 3<>$node) 2>/dev/null && echo $node; done; :"


@pytest.fixture(scope="module")
def devices(node: Node) -> Iterator[None]:
    """Terminals by other names: they can be opened though there is nothing behind them."""
    for number, path in enumerate(NODES):
        node.run(["mknod", "-m", "666", path, "c", "4", str(40 + number)])
    # /dev/fuse.
    node.run(["mknod", "-m", "666", ODD, "c", "10", "229"])
    put_settings(node, DESCRIBED)
    yield
    node.sh(f"rm -f {SETTINGS} {' '.join(NODES)} {ODD}; systemctl reload {DAEMON}")


@pytest.fixture
def alice(node: Node, devices: None) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


def shares(alice: Place, job: int) -> dict[str, float]:
    """What a job has, by the last letter of the UUIDs."""
    return {device["uuid"][-1]: device["share"] for device in alice.show(job)["devices"]}


def hold(alice: Place, gpus: str, *options: str) -> int:
    job = alice.submit("-C", alice.path, "--gpus", gpus, "--cpus", "0.1", *options, "-c", HOLDS)
    alice.until(f"[ -e up.{job} ]")
    return job


def test_two_jobs_see_and_can_open_different_devices(alice: Place) -> None:
    jobs = [
        alice.start(
            "--gpus", gpus, "-c", f"{OPENS}; echo $CUDA_VISIBLE_DEVICES $SYSJOBS_GPUS; {HOLDS}", count=count
        )
        for count, gpus in enumerate(["1", "L4:2"], 1)
    ]
    assert [alice.run("logs", str(job)).stdout.decode().split() for job in jobs] == [
        [NODES[0], "GPU-0", "1"],
        [NODES[1], NODES[2], "GPU-1,GPU-2", "2"],
    ]
    assert [shares(alice, job) for job in jobs] == [{"0": 1}, {"1": 1, "2": 1}]
    text = alice.run("show", str(jobs[1])).stdout.decode()
    assert re.search(r"^Resources +cpus=0\.5,gpus=L4:2$", text, re.MULTILINE)
    said = "0000:01:00.0 (NVIDIA L4, GPU-1), 0000:02:00.0 (NVIDIA L4, GPU-2)"
    assert re.search(rf"^Devices +{re.escape(said)}$", text, re.MULTILINE)


def test_a_job_without_gpus_sees_none_and_all_other_devices(alice: Place) -> None:
    text = f"{OPENS}; echo [$CUDA_VISIBLE_DEVICES]; (exec 3<>{ODD}) && (exec 3<>/dev/null) && echo rest"
    done = alice.run("run", "--env", "CUDA_VISIBLE_DEVICES=GPU-0", "-c", text)
    assert done.stdout.decode().split() == ["[]", "rest"]


def test_setup_has_the_same_devices(alice: Place) -> None:
    job = alice.submit("--gpus", "1", "--setup", f"{OPENS}; echo $CUDA_VISIBLE_DEVICES", "true")
    assert alice.wait(job) == 0
    assert alice.run("logs", "--setup", str(job)).stdout.decode().split() == [NODES[0], "GPU-0"]


def test_parts_share_a_device(alice: Place) -> None:
    quarters = [hold(alice, "L4:0.25") for _ in range(4)]
    assert [shares(alice, job) for job in quarters] == [{"0": 0.25}] * 4
    assert [shares(alice, hold(alice, gpus)) for gpus in ("L4:0.75", "0.5")] == [{"1": 0.75}, {"2": 0.5}]
    waits = alice.submit("--gpus", "L4:2", "--cpus", "0.1", "true")
    assert alice.show(waits)["reason"] == "Waits for GPUs: asks for L4:2; 1 of the node's 4 are free."
    text = alice.run("node").stdout.decode()
    assert re.search(r"^0000:01:00\.0 +0\.75 of NVIDIA L4 +\[#{15}-{5}\]$", text, re.MULTILINE)
    assert re.search(r"^alice +6 +1 +0\.6 +0 +2\.25$", text, re.MULTILINE)
    alice.shell("touch go")
    assert alice.wait(waits) == 0


def test_ten_quarters_take_three_devices(alice: Place) -> None:
    alice.submit_many([{"shell": HOLDS, "gpus": 0.25, "cpus": 0.1, "workdir": alice.path}] * 10)
    alice.until("[ $(ls | grep -c ^up) = 10 ]")
    got = [shares(alice, job) for job in alice.jobs("-s")]
    assert Counter(name for share in got for name in share) == {"0": 4, "1": 4, "2": 2}


def test_what_jobs_hold_outlives_the_daemon(node: Node, alice: Place) -> None:
    first = hold(alice, "L4:2")
    kill_daemon(node)
    assert shares(alice, hold(alice, "L4:2")) == {"2": 1, "3": 1}
    assert shares(alice, first) == {"0": 1, "1": 1}
    waits = alice.submit("--gpus", "1", "true")
    assert "0 of the node's 4 are free" in alice.show(waits)["reason"]


def test_a_device_that_vanishes_is_out_of_use_and_comes_back(node: Node, alice: Place) -> None:
    job = hold(alice, "3")
    node.run(["mv", NODES[1], f"{NODES[1]}.away"])
    node.run(["systemctl", "reload", DAEMON])
    said = "NVIDIA L4 0000:01:00.0 is out of use: /dev/gpu1 is missing."
    node.wait_for(f"sysjobs doctor | grep -F '{said}'")
    text = alice.run("node").stdout.decode()
    assert re.search(r"^0000:01:00\.0 +NVIDIA L4, out of use: /dev/gpu1 is missing$", text, re.MULTILINE)
    refused = alice.run("submit", "--gpus", "4", "true", check=False)
    assert refused.returncode == 1
    assert b"--gpus 4 is more than this node has.\n  It has 100 CPUs, " in refused.stderr
    assert b"3 NVIDIA L4 and 3 of licence; ask for no more" in refused.stderr
    # Whoever has it goes on, and gives it back.
    waits = alice.submit("--gpus", "2", "--cpus", "0.1", "true")
    alice.shell("touch go")
    assert alice.wait(job, waits) == 0
    node.run(["mv", f"{NODES[1]}.away", NODES[1]])
    node.run(["systemctl", "reload", DAEMON])
    assert alice.wait(alice.submit("--gpus", "4", "true")) == 0


def test_a_device_that_has_vanished_just_now_is_given_to_nobody(node: Node, alice: Place) -> None:
    node.run(["mv", NODES[0], f"{NODES[0]}.away"])
    try:
        assert shares(alice, hold(alice, "1")) == {"1": 1}
    finally:
        node.run(["mv", f"{NODES[0]}.away", NODES[0]])
    node.run(["systemctl", "reload", DAEMON])
    assert shares(alice, hold(alice, "1")) == {"0": 1}


def test_a_device_that_jobs_have_is_not_given_away_by_another_name(node: Node, alice: Place) -> None:
    hold(alice, "1")
    put_settings(node, DESCRIBED.replace("0000:00:00.0", "first"))
    said = "The NVIDIA L4 that jobs have as 0000:00:00.0 is called first now."
    node.wait_for(f"journalctl -q -u {DAEMON} | grep -F 'settings are kept as they were: {said}'")
    assert shares(alice, hold(alice, "1")) == {"1": 1}
    put_settings(node, DESCRIBED)


def test_reserved_devices_and_limits_of_users(node: Node, alice: Place) -> None:
    reserved = 'reserve-gpus = ["GPU-0", "00000000:03:00.0", "GPU-9"]'
    put_settings(node, f"[node]\ncpus = 100\n{reserved}\n[limits]\ngpus-per-user = 1.5\n{GPUS}")
    assert shares(alice, hold(alice, "1")) == {"1": 1}
    waits = alice.submit("--gpus", "1", "--cpus", "0.1", "true")
    why = "they have 1 of the 1.5 GPUs that a user may have at once (gpus-per-user in [limits])."
    assert alice.show(waits)["reason"] == f"Waits for others of the same user to end: {why}"
    refused = alice.run("submit", "--gpus", "2", "true", check=False)
    assert b"--gpus 2 is more than the 1.5 that a user may have at once." in refused.stderr
    assert "out of use: reserved by the settings" in alice.run("node").stdout.decode()
    doctor = alice.run("doctor", check=False).stdout.decode()
    assert "reserve-gpus names 'GPU-9', and no GPU here is called so." in doctor
    put_settings(node, DESCRIBED)


def test_resources_of_the_settings(alice: Place) -> None:
    options = ("--cpus", "0.1", "-C", alice.path, "--resource")
    job = alice.submit(*options, "licence=2", "-c", HOLDS)
    alice.until(f"[ -e up.{job} ]")
    assert alice.wait(alice.submit(*options, "licence", "true")) == 0
    waits = alice.submit(*options, "licence=2", "true")
    assert alice.show(waits)["reason"] == "Waits for licence: asks for 2; 1 of the node's 3 are free."
    assert alice.show(job)["resources"] == {"cpus": 0.1, "memory": None, "gpus": None, "licence": 2}
    assert re.search(r"^licence +2 of 3 +\[#{13}-{7}\]$", alice.run("node").stdout.decode(), re.MULTILINE)
    alice.shell("touch go")
    assert alice.wait(waits) == 0


REFUSED = [
    (["--gpus", "1.5"], 2, "--gpus '1.5' asks for whole devices and a part of another one."),
    (["--gpus", "L4:"], 2, "--gpus 'L4:' is not a number of GPUs, or a model and a number."),
    (["--gpus", "5"], 1, "--gpus 5 is more than this node has."),
    (["--gpus", "H100"], 1, "This node has no GPU 'H100'."),
    (["--resource", "licence=4"], 1, "--resource licence=4 is more than this node has."),
    (["--resource", "moon"], 1, "This node has no resource 'moon'."),
    (["--resource", "licence=x"], 2, "--resource 'licence=x' is not NAME=N."),
    (["--resource", "licence", "--resource", "licence"], 2, "--resource licence is given twice."),
    (["--resource", "\n=1"], 2, "--resource '\\n' can't be a resource's name."),
    (["--resource", "gpus=1"], 2, "--resource 'gpus' can't be a resource's name."),
    (["--resource", "=1"], 2, "--resource '=1' is not NAME=N."),
    (["--cpu-limit", "hard", "--cpus", "0"], 2, "--cpu-limit hard with --cpus 0 leaves the job no CPU."),
    (["--signal", "USR1@60"], 2, "--signal 'USR1@60' is sent before a time limit, and there is none."),
    (["--signal", "USR1@60", "-t", "1m"], 2, "--signal 'USR1@60' comes before the time limit, which is 1m."),
    (["--signal", "USR9@60", "-t", "1h"], 2, "--signal 'USR9@60': there is no signal USR9."),
    (
        ["--signal", "USR1", "-t", "1h"],
        2,
        "--signal 'USR1' is not a signal and a time before the time limit.",
    ),
    (["--signal", "USR1@0", "-t", "1h"], 2, "--signal 'USR1@0' comes no sooner than the time limit."),
    (["--signal", "USR1@x", "-t", "1h"], 2, "--signal 'x' is not a duration."),
]


def test_what_is_refused(alice: Place) -> None:
    for options, code, says in REFUSED:
        refused = alice.run("submit", *options, "true", check=False)
        said = refused.stderr.decode()
        assert (refused.returncode, refused.stdout) == (code, b""), options
        assert said.startswith(f"sysjobs: {says}")
        assert said.count("\n  ") == 1, "and what to do"


def test_other_jobs_inherit_no_devices(alice: Place) -> None:
    """What a job was given is its own."""
    text = "sysjobs run -c 'echo [$CUDA_VISIBLE_DEVICES]' 2>/dev/null; echo [$CUDA_VISIBLE_DEVICES]"
    assert alice.run("run", "--gpus", "1", "-c", text).stdout.decode().split() == ["[]", "[GPU-0]"]


def test_a_signal_comes_before_the_time_limit(alice: Place) -> None:
    text = "trap 'echo warned; exit 3' USR1; touch up; while :; do sleep 0.05; done"
    job = alice.start("--signal", "USR1@1h", "-t", "3600.5", "-c", text)
    assert alice.wait(job) == 100
    assert (alice.show(job)["status"], alice.show(job)["exit_code"]) == ("FAILED", 3)
    assert alice.run("logs", str(job)).stdout == b"warned\n"
    ended = alice.submit("--signal", "SIGUSR2@1h", "-t", "3600.5", "sleep", "1000")
    assert alice.wait(ended) == 100
    shown = alice.show(ended)
    said = r"Ended by SIGUSR2, which --signal had sent \S+s before\."
    assert re.fullmatch(said, shown["reason"]), shown["reason"]
    assert (shown["reason_code"], shown["signal_before_limit"]) == ("signal", "USR2@3600")
