"""Arrays and sweeps on a node, as their users see them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.admin_on_node import Place, daemon, kill_daemon, place, unit
from tests.node import Node
from tests.queue_on_node import QueueOnNode

ME = "$SYSJOBS_ARRAY_TASK_ID"
WAITS = "touch up$SYSJOBS_ARRAY_TASK_ID; until [ -e go$SYSJOBS_ARRAY_TASK_ID ]; do sleep 0.05; done"


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


def submit(alice: Place, *arguments: str) -> int:
    return alice.submit("-C", alice.path, "--cpus", "0", *arguments)


def tasks(alice: Place, *ids: str) -> dict[int, dict[str, Any]]:
    """Tasks as `sysjobs queue --tasks` lists them, by their numbers."""
    listed = json.loads(alice.run("queue", "--tasks", "--json", "--limit", "0", *ids).stdout)
    return {job["task"]: job for job in listed}


def statuses(alice: Place, *ids: str) -> dict[int, str]:
    return {index: job["status"] for index, job in sorted(tasks(alice, *ids).items())}


def at_work(alice: Place, *numbers: int) -> None:
    """Wait until these tasks, and no others, have begun."""
    names = " ".join(f"up{number}" for number in sorted(numbers, key=str))
    alice.until(f'[ "$(ls -x -w 0 | tr -s " " | grep -o "up[0-9]*" | sort | xargs)" = "{names}" ]')


def said(done: Any) -> list[str]:
    text: str = (done.stdout + done.stderr).decode()
    return text.splitlines()


def test_so_many_tasks_at_a_time(node: Node, alice: Place) -> None:
    job = submit(alice, "-n", "many", "--array", "0-9%2", "-c", WAITS)
    at_work(alice, 0, 1)
    assert re.search(
        rf"^{job}_\[2-9%2\] +many .* RUNNING +- +10 tasks: 2 have begun, 8 wait\. "
        r"2 of its tasks are at work, and no more than 2 may be at a time\.$",
        alice.run("queue").stdout.decode(),
        re.MULTILINE,
    )
    array = alice.show(job)
    assert array["array"] == {
        "indices": "0-9", "count": 10, "limit": 2, "waiting": "2-9", "held": None, "running": 2, "ended": {}
    }  # fmt: skip
    assert (array["reason_code"], array["unit"], array["log"]) == ("array-limit", "", None)
    state = json.loads(alice.run("node", "--json").stdout)
    assert (state["running"], state["waiting"], state["users"][0]["waiting"]) == (2, 8, 8)
    alice.shell("touch go1")
    at_work(alice, 0, 1, 2)
    assert statuses(alice, str(job)) == {0: "RUNNING", 1: "SUCCEEDED", 2: "RUNNING"} | dict.fromkeys(
        range(3, 10), "PENDING"
    )
    assert said(alice.run("set", str(job), "--array-limit", "3")) == [f"Job {job} (many) is set."]
    at_work(alice, 0, 1, 2, 3)
    assert said(alice.run("set", "many", "--array-limit", "1")) == [f"Job {job} (many) is set."]
    alice.shell("touch go0 go2")
    alice.until(f"sysjobs show {job} | grep -q '^Tasks.*3 SUCCEEDED'")
    array = alice.show(job)["array"]
    assert (array["running"], array["waiting"]) == (1, "4-9"), "no other one in their places"
    task = tasks(alice, f"{job}_3")[3]
    assert (task["array_id"], task["task"], task["name"]) == (job, 3, "many")
    assert unit(node, task["id"], "Description") == f"sysjobs job {job}_3: many (alice)"
    alice.run("set", str(job), "--array-limit", "0")
    at_work(alice, *range(10))
    alice.shell("touch " + " ".join(f"go{number}" for number in range(10)))
    assert alice.wait(job) == 0
    assert alice.show(job)["array"]["ended"] == {"SUCCEEDED": 10}
    assert alice.run("queue", "--format", "id,status").stdout.decode().split()[-2:] == [
        f"{job}_[0-9]", "SUCCEEDED"
    ]  # fmt: skip


def test_what_a_task_knows_of_itself(alice: Place) -> None:
    job = submit(alice, "--array", "5-15:5", "-c", "env | grep -E '^S[A-Z]*_(ARRAY|JOB_ID)' | sort")
    assert alice.wait(job) == 0
    log = alice.run("logs", f"{job}_10").stdout.decode()
    own = {"JOB_ID": job, "TASK_COUNT": 3, "TASK_ID": 10, "TASK_MAX": 15, "TASK_MIN": 5, "TASK_STEP": 5}
    task = tasks(alice, f"{job}_10")[10]["id"]
    assert log.splitlines() == [
        *(f"SLURM_ARRAY_{name}={value}" for name, value in own.items()),
        *(f"SYSJOBS_ARRAY_{name}={value}" for name, value in own.items()),
        f"SYSJOBS_JOB_ID={task}",
    ]
    assert alice.show(task)["log"].endswith(f"/{job}_10.log")
    # A range of jobs is one of those that were submitted.
    assert alice.jobs(f"{job}-{task + 5}").keys() >= {job}
    assert said(alice.run("cancel", f"{job}-{task + 5}")) == [f"Job {job} (env) had ended before: SUCCEEDED."]
    assert alice.run("show", "--json", "@").stdout == alice.run("show", "--json", str(job)).stdout


def test_one_task_among_many(node: Node, alice: Place) -> None:
    job = submit(alice, "-n", "part", "--array", "0-19%3", "-c", WAITS)
    at_work(alice, 0, 1, 2)
    done = alice.run("cancel", f"{job}_1", f"{job}_[5-9,11]", "--reason", "not that", check=False)
    assert (done.returncode, said(done)) == (0, [
        f"Job {job}_[5-9,11] (part) is cancelled; it had not started.",
        f"Job {job}_1 (part) is being cancelled; its processes were told to end.",
    ])  # fmt: skip
    at_work(alice, 0, 1, 2, 3)
    done = alice.run("hold", f"{job}_4", f"{job}_12-19", f"{job}_0", check=False)
    assert (done.returncode, said(done)) == (1, [
        f"Job {job}_[4,12-19] (part) is held; it won't start before it is released.",
        f"Job {job}_0 (part) has started; `sysjobs cancel` ends it.",
    ])  # fmt: skip
    found = tasks(alice, str(job))
    assert [found[number]["status"] for number in (0, 1, 4, 6, 10)] == [
        "RUNNING", "CANCELLED", "INIT", "CANCELLED", "PENDING"
    ]  # fmt: skip
    assert found[6]["reason"] == "Cancelled before it started by its owner: not that."
    assert found[4]["reason"] == f"Held by its owner; `sysjobs release {job}_4` lets it go on."
    assert alice.show(job)["array"]["held"] == "4,12-19"
    assert set(statuses(alice, f"{job}_4-9").values()) == {"INIT", "CANCELLED"}
    assert [*statuses(alice, "--status", "INIT", str(job))] == [4, *range(12, 20)]
    alice.shell("touch go0 go2 go3")
    # Those that are held are passed over.
    at_work(alice, 0, 1, 2, 3, 10)
    assert said(alice.run("release", f"{job}_4")) == [f"Job {job}_4 (part) is released."]
    at_work(alice, 0, 1, 2, 3, 4, 10)
    assert said(alice.run("signal", "USR1", f"{job}_4")) == [f"Job {job}_4 (part) was sent the signal."]
    assert alice.run("wait", f"{job}_4", check=False).returncode == 100
    done = alice.run("release", str(job))
    assert said(done) == [f"Job {job} (part) is released."]
    alice.until("[ -e up13 ]")
    bob = QueueOnNode(node, "bob")
    refused = bob.run("cancel", f"{job}_13-19", check=False)
    assert refused.returncode == 1
    assert {line.partition(") ")[2] for line in said(refused)} == {
        "belongs to somebody else; it was left alone."
    }
    assert said(alice.run("cancel", "part")) == [
        f"Job {job} (part) is being cancelled; its processes were told to end."
    ]
    assert alice.wait(job) == 103
    ended = alice.show(job)
    assert ended["array"]["ended"]["CANCELLED"] == 20 - 3 - ended["array"]["ended"]["FAILED"]
    assert "; of its 20 tasks " in ended["reason"]
    assert set(statuses(alice, f"{job}_14-19").values()) == {"CANCELLED"}


def test_what_is_said_of_tasks_that_are_over_and_held_twice(node: Node, alice: Place) -> None:
    job = submit(alice, "--name", "part", "--array", "0-9%1", "-c", WAITS)
    at_work(alice, 0)
    assert alice.show(job)["reason"].startswith("1 of its tasks is at work, ")
    gone = [f"Job {job}_5 (part) had ended before: CANCELLED."]
    alice.run("cancel", f"{job}_5")
    for call in ("cancel", "hold", "release", "requeue", "signal USR1", "set --priority=-1"):
        done = alice.run(*call.split(), f"{job}_5", check=False)
        assert (done.returncode, said(done)) == (0 if call == "cancel" else 1, gone), call
    done = alice.run("hold", f"{job}_4-6", check=False)
    assert said(done) == [f"Job {job}_[4,6] (part) is held; it won't start before it is released.", *gone]
    for _ in range(2):
        done = alice.run("hold", str(job))
        assert said(done) == [f"Job {job} (part) is held; no more of its tasks start before it is released."]
    # What root holds too is root's.
    root = QueueOnNode(node, "root")
    root.run("hold", f"{job}_6")
    done = alice.run("release", f"{job}_6", check=False)
    assert (done.returncode, said(done)) == (
        1,
        [f"Job {job}_6 (part) is held by root; only root can release it."],
    )
    assert tasks(alice, f"{job}_6")[6]["status"] == "INIT"
    alice.run("cancel", str(job))


def test_an_array_stays_in_few_pieces(alice: Place) -> None:
    job = submit(alice, "--array", "0-999999", "--hold", "--", "true")
    for call in ("cancel", "hold", "wait"):
        done = alice.run(call, f"{job}_[0-999998:2]", check=False)
        assert done.returncode == 1
        assert "in up to 500,000 pieces; 10,000 are taken." in said(done)[0]
    alice.run("cancel", f"{job}_[0-11998:2]")
    done = alice.run("cancel", f"{job}_[20000-27998:2]", check=False)
    assert "pieces; 10,000 are taken." in said(done)[0]
    assert said(alice.run("cancel", str(job))) == [f"Job {job} (true) is cancelled; it had not started."]


def test_waiting_for_tasks_and_following_one(alice: Place) -> None:
    job = submit(
        alice,
        "--array",
        "0-2%1",
        "-c",
        f"{WAITS}; echo says $SYSJOBS_ARRAY_TASK_ID; exit $SYSJOBS_ARRAY_TASK_ID",
    )
    at_work(alice, 0)
    last = alice.submit("-C", alice.path, "--afterany", f"{job}_[1-2]", "--", "touch", "last")
    first = alice.submit("-C", alice.path, "--afterok", f"{job}_0", "--", "touch", "first")
    never = alice.submit("--afterok", str(job), "--", "true")
    assert alice.show(first)["reason"] == f"Waits for job {job}_0 to succeed."
    assert alice.show(last)["dependencies"] == [f"afterany:{job}_1", f"afterany:{job}_2"]
    script = (
        f"touch go1 go2; (sleep 0.2; touch go0) & sysjobs logs -f {job}_2 || echo $?; "
        f"sysjobs wait {job}_0 {job}_1 || echo $?"
    )
    assert alice.shell(script).splitlines() == [
        "says 2", "100",
        f"Job {job}_0 SUCCEEDED",
        f"Job {job}_1 FAILED: Ended with exit code 1",
        "100",
    ]  # fmt: skip
    assert alice.wait(first, last) == 0
    assert alice.wait(job) == 100
    assert alice.show(job)["reason"] == "2 of its 3 tasks ended as FAILED, 1 SUCCEEDED."
    assert alice.wait(never) == 103
    assert alice.show(never)["reason"] == f"Was to start after job {job} (afterok), which ended as FAILED."
    assert {*alice.shell("ls").split()} >= {"first", "last"}
    done = alice.run("logs", str(job), check=False)
    assert done.returncode == 1
    assert said(done)[0] == f"sysjobs: Job {job} is an array of 3 tasks, each with a log of its own."
    missing = alice.run("wait", f"{job}_7", check=False)
    assert missing.returncode == 102
    assert "There is no task" in said(missing)[0]


def test_a_sweep(node: Node, alice: Place) -> None:
    job = submit(
        alice, "-n", "sweep", "--param", "lr=0.1,0.01", "--param", "seed=1-3", "--array", "%4",
        "--", "sh", "-c", "echo {lr} {seed} $lr $seed ${seed}",
    )  # fmt: skip
    assert alice.wait(job) == 0
    logs = [alice.run("logs", f"{job}_{number}").stdout.decode().split() for number in range(6)]
    wanted = [[lr, seed, lr, seed, seed] for lr in ("0.1", "0.01") for seed in ("1", "2", "3")]
    assert logs == wanted
    table = alice.run("queue", "--tasks", str(job)).stdout.decode()
    assert re.findall(r"lr=(\S+) seed=(\S+)", table) == [(lr, seed) for lr, seed, *_ in wanted]
    assert tasks(alice, f"{job}_4")[4]["params"] == {"lr": "0.01", "seed": "2"}
    shown = alice.run("show", str(job)).stdout.decode()
    assert re.search(r"^Parameters +lr=0\.1,0\.01 seed=1,2,3$", shown, re.MULTILINE)
    assert re.search(r"^Array +0-5%4$", shown, re.MULTILINE)
    others = json.loads(QueueOnNode(node, "bob").run("queue", "--tasks", "--json", str(job)).stdout)
    assert [each["params"] for each in others] == [{}] * 6, "they are part of the command"
    again = submit(
        alice, "--param", "lr=0.1,0.01", "--param", "seed=1-3", "--array", "5", "--", "echo", "{lr}-{seed}"
    )
    assert alice.wait(again) == 0
    assert alice.run("logs", f"{again}_5").stdout == b"0.01-3\n"


REFUSED = [
    (["--array", "9-0"], 2, "--array '9-0' is no list of tasks."),
    (["--array", "%3"], 2, "--array '%3' names no tasks."),
    (["--array", "0-1000000"], 1, "--array '0-1000000' has 1,000,001 tasks; 1,000,000 are taken."),
    (["--array", "1,1"], 2, "--array '1,1' names a task twice."),
    (["--param", "lr"], 2, "--param 'lr' is not NAME=VALUES."),
    (["--param", "a=1", "--param", "a=2"], 2, "--param 'a' is given twice."),
    (["--param", "a=5-1"], 2, "--param 'a=5-1': 5-1 is no range."),
    (
        ["--param", "a=1-3", "--array", "3"],
        2,
        "--array '3': the parameters have 3 combinations, from 0 to 2.",
    ),
    (
        ["--param", "a=1," + 50_000 * "x", "-c", "{a}{a}{a}"],
        1,
        " has 150,000 bytes; the kernel takes at most 131,071 in one ",
    ),
]


@pytest.mark.parametrize(("options", "code", "message"), REFUSED)
def test_what_is_refused(alice: Place, options: list[str], code: int, message: str) -> None:
    command = () if "-c" in options else ("--", "echo", "{a}")
    done = alice.run("submit", *options, *command, check=False)
    assert (done.returncode, done.stdout) == (code, b"")
    first, hint = said(done)
    assert message in first
    assert hint.strip()


def test_other_refusals(alice: Place) -> None:
    run = alice.run("run", "--array", "0-3", "--", "true", check=False)
    assert (run.returncode, said(run)[0]) == (
        2,
        "sysjobs: run stays with one job: submit an array, and wait for it.",
    )
    plain = alice.submit("--", "true")
    done = alice.run("set", str(plain), "--array-limit", "3", check=False)
    assert done.returncode == 1
    assert re.search("is no array|had ended before", said(done)[0])
    for wrong in (f"{plain}_3-1", f"{plain}_[", f"{plain}_[a]"):
        done = alice.run("cancel", wrong, check=False)
        assert done.returncode in (1, 2)
        assert "Traceback" not in done.stderr.decode()
    assert alice.run("show", f"{plain}_3", check=False).returncode == 1


def resident(node: Node) -> int:
    """KiB of the daemon's memory."""
    status = node.get(f"/proc/{daemon(node, 'MainPID')}/status").decode()
    return int(status.partition("VmRSS:")[2].split()[0])


def test_a_large_one_costs_what_runs_of_it(node: Node, alice: Place) -> None:
    """Its tasks are neither rows nor objects before they have their turn. A daemon that dies loses none."""

    def size() -> int:
        node.run(["systemctl", "stop", "sysjobsd.socket", "sysjobsd"])
        rows = node.run(
            [
                "sqlite3",
                "/var/lib/sysjobs/sysjobs.db",
                "SELECT count(*), total(length(array_state)) FROM jobs",
            ]
        )
        node.run(["systemctl", "start", "sysjobsd.socket", "sysjobsd"])
        count, state = rows.stdout.split(b"|")
        return int(count) * 1000 + int(float(state))

    before = size()
    memory = resident(node)
    job = submit(alice, "--array", "0-99999%2", "-c", WAITS)
    at_work(alice, 0, 1)
    alice.run("hold", f"{job}_[10-50000]")
    more = resident(node) - memory
    assert more < 8 << 10, f"{more} KiB"
    assert size() - before < 3 * 1000 + 200
    at_work(alice, 0, 1)
    kill_daemon(node)
    alice.shell("touch go0 go1")
    at_work(alice, 0, 1, 2, 3)
    assert alice.show(job)["array"]["ended"] == {"SUCCEEDED": 2}
    assert tasks(alice, f"{job}_49999-50001")[50000]["status"] == "INIT"
    alice.run("cancel", str(job))
    assert alice.wait(job) == 103
