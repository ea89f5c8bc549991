"""What comes before a job on a node: a release, a time, other jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admin_on_node import DAEMON, SETTINGS, Place, kill_daemon, place, put_settings
from tests.node import Node
from tests.queue_on_node import QueueOnNode

LITTLE = ("--cpus", "0")
UNTIL_GO = "touch up; until [ -e go ]; do sleep 0.05; done; exit "


@pytest.fixture
def alice(node: Node) -> Iterator[Place]:
    with place(node) as alice:
        yield alice


def said(place: QueueOnNode, *arguments: str) -> tuple[int, str]:
    done = place.run(*arguments, check=False)
    return done.returncode, done.stdout.decode()


def state(place: QueueOnNode, job: int) -> tuple[str, str | None, str | None]:
    shown = place.show(job)
    return shown["status"], shown["reason_code"], shown["reason"]


def test_a_held_job_starts_when_it_is_released(node: Node, alice: Place) -> None:
    job = alice.submit(*LITTLE, "--hold", "-n", "later", "true")
    held = f"Held by its owner; `sysjobs release {job}` lets it go on."
    assert state(alice, job) == ("INIT", "held", held)
    assert alice.show(job)["held_by"] == "alice"
    kill_daemon(node)
    assert state(alice, job) == ("INIT", "held", held)
    assert said(alice, "hold", "later") == (
        0,
        f"Job {job} (later) is held; it won't start before it is released.\n",
    )
    assert said(alice, "release", "later") == (0, f"Job {job} (later) is released.\n")
    assert alice.wait(job) == 0
    assert said(alice, "release", str(job)) == (1, f"Job {job} (later) had ended before: SUCCEEDED.\n")
    assert said(alice, "hold", str(job)) == (1, f"Job {job} (later) had ended before: SUCCEEDED.\n")


def test_a_job_that_waits_for_its_turn_is_held(alice: Place) -> None:
    runs = alice.start(*LITTLE, "-n", "runs", "-c", UNTIL_GO + "0")
    first = alice.submit("--hold", "-n", "first", "true")
    other = alice.submit(*LITTLE, "--hold", "-n", "other", "true")
    assert said(alice, "hold", str(runs)) == (
        1,
        f"Job {runs} (runs) has started; `sysjobs cancel` ends it.\n",
    )
    assert said(alice, "release", str(runs)) == (
        1,
        f"Job {runs} (runs) has started; `sysjobs cancel` ends it.\n",
    )
    assert said(alice, "release", f"{first}-{other}")[0] == 0
    assert alice.wait(first, other) == 0
    alice.shell("touch go")
    assert alice.wait(runs) == 0


def test_who_may_hold_and_release(node: Node, alice: Place) -> None:
    bob, root = QueueOnNode(node, "bob"), QueueOnNode(node, "root")
    job = alice.submit(*LITTLE, "--hold", "-n", "mine", "true")
    denied = (1, f"Job {job} (mine) belongs to somebody else; it was left alone.\n")
    assert said(bob, "release", str(job)) == said(bob, "hold", str(job)) == denied
    assert said(root, "hold", str(job))[0] == 0
    by_root = (1, f"Job {job} (mine) is held by root; only root can release it.\n")
    assert said(alice, "release", str(job)) == by_root
    alice.run("hold", str(job))
    assert said(alice, "release", str(job)) == by_root
    assert state(alice, job)[2] == f"Held by root; root's `sysjobs release {job}` lets it go on."
    assert said(root, "release", str(job))[0] == 0
    assert alice.wait(job) == 0
    assert said(alice, "release", "999999999")[0] == 1
    assert said(alice, "hold")[0] == 2


def test_a_held_job_is_cancelled(alice: Place) -> None:
    job = alice.submit(*LITTLE, "--hold", "true")
    alice.run("cancel", str(job))
    assert state(alice, job)[:2] == ("CANCELLED", "cancelled")


def test_not_before_a_time(node: Node, alice: Place) -> None:
    soon = alice.submit(*LITTLE, "--begin", "+2", "-c", "date +%s")
    submitted = node.sh("date +%s")
    later = alice.submit(*LITTLE, "--begin", "+2h", "true")
    far = alice.submit(*LITTLE, "--begin", "2099-12-24 18:00", "true")
    assert state(alice, later)[:2] == ("INIT", "begin")
    assert "Is to begin in 1h 59m" in alice.show(later)["reason"]
    assert alice.show(far)["begin_at"].startswith("2099-12-24T18:00:00")
    assert alice.wait(soon) == 0
    assert int(alice.log(soon)) >= int(submitted) + 1
    assert state(alice, later)[0] == "INIT"


@pytest.mark.parametrize(
    ("ends", "starts"),
    [("0", {"afterok", "afterany", "after"}), ("3", {"afternotok", "afterany", "after"})],
    ids=["it succeeds", "it fails"],
)
def test_after_another_job(alice: Place, ends: str, starts: set[str]) -> None:
    first = alice.start(*LITTLE, "-n", "first", "-c", UNTIL_GO + ends)
    options = ("after", "afterok", "afterany", "afternotok")
    jobs = {option: alice.submit(*LITTLE, f"--{option}", "first", "true") for option in options}
    assert alice.wait(jobs.pop("after")) == 0
    assert alice.show(jobs["afterok"])["dependencies"] == [f"afterok:{first}"]
    for option, to in (("afterok", "succeed"), ("afterany", "end"), ("afternotok", "fail")):
        assert state(alice, jobs[option]) == ("INIT", "dependency", f"Waits for job {first} to {to}.")
    alice.shell("touch go")
    alice.wait(*jobs.values())
    how = "SUCCEEDED" if ends == "0" else "FAILED"
    for option, job in jobs.items():
        if option in starts:
            assert state(alice, job) == ("SUCCEEDED", None, None)
        else:
            why = f"Was to start after job {first} ({option}), which ended as {how}."
            assert state(alice, job) == ("CANCELLED", "dependency", why)


def test_a_chain_outlives_the_daemon(node: Node, alice: Place) -> None:
    first = alice.start(*LITTLE, "-c", UNTIL_GO + "0")
    second = alice.submit(*LITTLE, "--afterok", str(first), "-C", alice.path, "-c", "echo 2 >>order; exit 1")
    third = alice.submit(*LITTLE, "--afternotok", str(second), "-C", alice.path, "-c", "echo 3 >>order")
    never = alice.submit(*LITTLE, "--afterok", f"{first},{second}", "--afterany", "@", "true")
    last = alice.submit(*LITTLE, "--afterok", "@", "true")
    node.sh(f"systemctl stop {DAEMON} sysjobsd.socket")
    try:
        alice.shell("touch go")
        node.wait_for(f"[ $(systemctl show -P SubState sysjobs-{first}) = exited ]")
    finally:
        node.sh(f"systemctl start sysjobsd.socket {DAEMON}")
    assert alice.wait(third) == 0
    assert alice.wait(never, last) == 103
    assert alice.file("order").split() == ["2", "3"]
    assert state(alice, last)[2] == f"Was to start after job {never} (afterok), which ended as CANCELLED."


def test_what_can_never_be_met_is_kept_where_the_settings_say_so(node: Node, alice: Place) -> None:
    put_settings(node, '[jobs]\nunmet-dependency = "hold"\n')
    try:
        failed = alice.submit(*LITTLE, "false")
        job = alice.submit(*LITTLE, "--afterok", str(failed), "true")
        behind = alice.submit(*LITTLE, "--afterok", str(job), "true")
        alice.wait(failed)
        never = f"Was to start after job {failed} (afterok), which ended as FAILED."
        said_of_it = f"{never} `sysjobs release {job}` lets it start all the same."
        assert state(alice, job) == ("INIT", "unmet-dependency", said_of_it)
        kill_daemon(node)
        assert state(alice, job) == ("INIT", "unmet-dependency", said_of_it)
        assert state(alice, behind)[:2] == ("INIT", "dependency")
        assert said(alice, "release", str(job)) == (0, f"Job {job} (true) is released.\n")
        assert alice.wait(job, behind) == 0
        assert alice.show(job)["dependencies"] == []
    finally:
        node.sh(f"rm -f {SETTINGS}; systemctl reload {DAEMON}")


def test_one_of_a_name_at_a_time(node: Node, alice: Place) -> None:
    bob = QueueOnNode(node, "bob")
    plain = alice.start(*LITTLE, "-n", "one", "-c", UNTIL_GO + "1")
    text = (
        "echo $SYSJOBS_JOB_ID >>order; [ $(wc -l <order) = 1 ] || exit 0; "
        "until [ -e go2 ]; do sleep 0.05; done"
    )
    jobs = [alice.submit(*LITTLE, "-C", alice.path, "-n", "one", "--singleton", "-c", text) for _ in range(3)]
    assert state(alice, jobs[0]) == (
        "INIT",
        "dependency",
        f"Waits for job {plain} to end, which has the same name.",
    )
    assert alice.show(jobs[2])["dependencies"] == [f"singleton:{jobs[1]}"]
    assert bob.wait(bob.submit(*LITTLE, "-n", "one", "--singleton", "true")) == 0
    assert alice.wait(alice.submit(*LITTLE, "-n", "another", "--singleton", "true")) == 0
    alice.shell("touch go")
    alice.until("[ -s order ]")
    assert [state(alice, job)[0] for job in jobs] == ["RUNNING", "INIT", "INIT"]
    alice.shell("touch go2")
    assert alice.wait(*jobs) == 0
    assert [int(line) for line in alice.file("order").split()] == jobs


REFUSED = [
    (("--after", "999999999"), 1, "There is no job 999999999."),
    (("--afterok", "nobody"), 1, "None of your jobs that haven't ended is called nobody."),
    (("--afterany", ""), 2, "'' is not a job."),
    (("--afterany", "9-3"), 2, "'9-3' is not a range of job ids."),
    (("--begin", "soon"), 2, "--begin 'soon' is not a moment."),
    (("--begin", "+200000d"), 2, "--begin '200000d' is not a duration."),
    (("--begin", "2999-01-01"), 2, "is no time that a job can wait for."),
]


@pytest.mark.parametrize(("options", "code", "says"), REFUSED, ids=[" ".join(row[0]) for row in REFUSED])
def test_what_is_refused(alice: Place, options: tuple[str, ...], code: int, says: str) -> None:
    refused = alice.run("submit", *options, "true", check=False)
    assert (refused.returncode, refused.stdout) == (code, b"")
    assert says in refused.stderr.decode()
