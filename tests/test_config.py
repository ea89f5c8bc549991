"""The administrator's settings: what can be said, and where and why the rest is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sysjobs.config import Settings, read_settings
from sysjobs.devices import Device, Vendor
from sysjobs.errors import ConfigError
from sysjobs.limits import Limits


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sysjobs.toml"


def test_without_a_file(path: Path) -> None:
    assert read_settings(path) == Settings()


READ = [
    ("", Settings()),
    ("# nothing\n[node]\n", Settings()),
    ("[node]\ncpus = 8\nmemory = '16G'\n", Settings(cpus=8000, memory=16 << 30)),
    ("[node]\ncpus = 0.5\nmemory = 1048576\n", Settings(cpus=500, memory=1 << 20)),
    (
        "[node]\nreserve-cpus = '1.5'\nreserve-memory = '1G'\n",
        Settings(reserve_cpus=1500, reserve_memory=1 << 30),
    ),
    ("[jobs]\ngrace = '1m30s'\nkeep-failed = 0\n", Settings(grace=90.0, keep_failed=0)),
    ("[jobs]\nunmet-dependency = 'hold'\n", Settings(unmet="hold")),
    ("[jobs]\nunit-messages = 'all'\n", Settings(unit_messages="all")),
    ("[jobs]\nunit-messages = 'failures'\n", Settings()),
    ("[jobs]\ngrace = 5\n", Settings(grace=5.0)),
    ("[limits]\npending-per-user = 5\n", Settings(limits=Limits(pending_per_user=5))),
    (
        "[limits]\nhighest-priority = 0\npending = 9\nrunning = 8\nrunning-per-user = 7\n"
        "cpus-per-user = 1.5\nmemory-per-user = '1G'\ngpus-per-user = 2.5\n",
        Settings(limits=Limits(0, 9, 100_000, 8, 7, 1500, 1 << 30, 2500)),
    ),
    ("[order]\nfair-share-half-life = '7d'\n", Settings(fair_share_half_life=7 * 86400.0)),
    ("[node]\nreserve-gpus = ['gpu0']\n", Settings(reserve_gpus=("gpu0",))),
    ("[node]\npin-cpus = true\n", Settings(pin_cpus=True)),
    ("[resources]\nlicence = 3\nseat = 0\n", Settings(others={"licence": 3, "seat": 0})),
    ("gpus = []\n", Settings(gpus=())),
    (
        "[[gpus]]\nmodel = 'L4'\nuuid = 'GPU-1'\nnodes = ['/dev/nvidia0']\n"
        "[[gpus]]\nmodel = 'AMD Instinct MI300X'\nvendor = 'amd'\nname = 'odd'\n",
        Settings(
            gpus=(
                Device("gpu0", "L4", "GPU-1", Vendor.NVIDIA, ("/dev/nvidia0",)),
                Device("odd", "AMD Instinct MI300X", "", Vendor.AMD),
            )
        ),
    ),
    ("jobs.grace = 5\n", Settings(grace=5.0)),
    ("node = {cpus = 2}\n", Settings(cpus=2000)),
]


@pytest.mark.parametrize(("text", "settings"), READ)
def test_read(path: Path, text: str, settings: Settings) -> None:
    path.write_text(text)
    assert read_settings(path) == settings


def test_resources_of_several_files_come_together(path: Path) -> None:
    path.write_text("[resources]\nlicence = 3\nseat = 1\n")
    directory = path.with_name("sysjobs.toml.d")
    directory.mkdir()
    (directory / "10-a.toml").write_text("[resources]\nseat = 2\n")
    assert read_settings(path) == Settings(others={"licence": 3, "seat": 2})


def test_later_files_go_before_earlier_ones(path: Path) -> None:
    path.write_text("[node]\ncpus = 1\nmemory = '1G'\n[jobs]\ngrace = 1\n")
    directory = path.with_name("sysjobs.toml.d")
    directory.mkdir()
    (directory / "10-a.toml").write_text("[node]\ncpus = 2\n[jobs]\ngrace = 2\n")
    (directory / "20-b.toml").write_text("[jobs]\ngrace = 3\n")
    (directory / "30-c.toml.dpkg-old").write_text("[jobs]\ngrace = 4\n")
    assert read_settings(path) == Settings(cpus=2000, memory=1 << 30, grace=3.0)
    path.unlink()
    assert read_settings(path) == Settings(cpus=2000, grace=3.0)


# A file, the line that is wrong, and what is said.
TABLES = "The tables are [node], [jobs], [order], [limits], [resources], [[gpus]]."
WRONG = [
    (
        "[order]\nfair-share-half-life = 0.5\n",
        2,
        "fair-share-half-life is 0.5, which is too short. Give a second or more, such as 7d.",
    ),
    (
        "[node]\ncpu = 4\n",
        2,
        "[node] has no setting 'cpu'. It has cpus, memory, reserve-cpus, reserve-memory, reserve-gpus,",
    ),
    (
        "\n\n[nodes]\ncpus = 4\n",
        3,
        f"there are no settings 'nodes'. {TABLES}",
    ),
    ("[resources]\ncpus = 1\n", 2, "a resource can't be called 'cpus'. Give letters, digits"),
    ("[resources]\n'a b' = 1\n", 2, "a resource can't be called 'a b'."),
    ("[resources]\nseat = -1\n", 2, "seat is -1, not a number from 0 to 1000000."),
    ("[resources]\nseat = '1'\n", 2, "seat is '1', not a number from 0 to 1000000."),
    ("\n[[gpus]]\nuuid = 'x'\n", 2, 'one of [[gpus]] has no model. Give one, such as "L4".'),
    ("[[gpus]]\nmodel = 7\n", 2, "model is 7, not a name."),
    ("[[gpus]]\nmodel = 'L4'\nnodes = '/dev/x'\n", 3, "nodes is '/dev/x', not a list of texts."),
    (
        "[[gpus]]\nmodel = 'L4'\nnodes = ['/etc/passwd']\n",
        3,
        "nodes has '/etc/passwd', which is no path below",
    ),
    ("[[gpus]]\nmodel = 'L4'\nnodes = ['/dev/../dev/x']\n", 3, "nodes has '/dev/../dev/x', which is no path"),
    ("[[gpus]]\nmodel = 'L4'\nnodes = ['/dev/x/']\n", 3, "nodes has '/dev/x/', which is no path below"),
    ("[[gpus]]\nmodel = 'L4'\nvendor = 'intel'\n", 3, "vendor is 'intel'. It can be nvidia or amd."),
    ("[[gpus]]\nmodel = 'L4'\ncolour = 'red'\n", 3, "[gpus] has no setting 'colour'. It has model, name,"),
    (
        "[[gpus]]\nmodel='L4'\nname='a'\n[[gpus]]\nmodel='L4'\nname='a'\n",
        1,
        "two of [[gpus]] have the name 'a'.",
    ),
    (
        "[[gpus]]\nmodel='L4'\nnodes=['/dev/a', '/dev/c']\n[[gpus]]\nmodel='L4'\nnodes=['/dev/c']\n",
        1,
        "gpu1 of [[gpus]] has no node of its own. Give it one",
    ),
    ("[[gpus]]\nmodel = 'L4'\nname = 'cpu7'\n", 1, "a GPU can't be called 'cpu7'."),
    ("[node]\npin-cpus = 1\n", 2, "pin-cpus is 1. It can be true or false."),
    ("[jobs]\nunmet-dependency = 'ask'\n", 2, "unmet-dependency is 'ask'. It can be cancel or hold."),
    ("gpus = 4\n", 1, "gpus isn't a list of tables. Write [[gpus]] above each."),
    ("[node]\nreserve-gpus = 1\n", 2, "reserve-gpus is 1, not a list of texts."),
    ("cpus = 4\n", 1, f"there are no settings 'cpus'. {TABLES}"),
    ("node = 4\n", 1, f"there are no settings 'node'. {TABLES}"),
    (
        "[[node]]\ncpus = 4\n",
        1,
        f"there are no settings 'node'. {TABLES}",
    ),
    ("[node]\ncpus = 'many'\n", 2, "cpus 'many' is not a number of CPUs. Give a number"),
    ("[node]\ncpus = -1\n", 2, "cpus '-1' is not a number of CPUs."),
    ("[node]\ncpus = true\n", 2, "cpus is True, not a text or number."),
    ("[node]\ncpus = [1]\n", 2, "cpus is [1], not a text or number."),
    ("[node]\ncpus = nan\n", 2, "cpus 'nan' is not a number of CPUs."),
    ("[node]\n# cpus = 1\n\n  'memory' = '4X'\n", 4, "memory '4X' is not an amount of memory."),
    ("[jobs]\ngrace = 'soon'\n", 2, "grace 'soon' is not a duration."),
    ("[jobs]\ngrace = 00:30:00\n", 2, "grace is datetime.time(0, 30), not a text or number."),
    ("[jobs]\nunit-messages = 'none'\n", 2, "unit-messages is 'none'. It can be failures or all."),
    ("[jobs]\nunit-messages = 6\n", 2, "unit-messages is 6. It can be failures or all."),
    ("[jobs]\nkeep-failed = 1001\n", 2, "keep-failed is 1001, not a number from 0 to 1000."),
    ("[limits]\npending-per-user = -1\n", 2, "pending-per-user is -1, not a number from 0 to 10000000."),
    ("[jobs]\nkeep-failed = '5'\n", 2, "keep-failed is '5', not a number from 0 to 1000."),
    (
        "[node]\ncpus = 4\n[jobs]\ncpus = 4\n",
        4,
        "[jobs] has no setting 'cpus'. It has grace, keep-failed, unmet-dependency, unit-messages.",
    ),
    ("jobs.cpus = 4\n", 1, "[jobs] has no setting 'cpus'."),
    ("[node]\ncpus = 4\n[ jobs ] # here\ngrace = 'x'\n", 4, "grace 'x' is not a duration."),
    ("node = {cpus = 1}\njobs = {cpus = 4}\n", 2, "[jobs] has no setting 'cpus'."),
]


def test_nested_too_deeply(path: Path) -> None:
    path.write_text("[node]\ncpus = " + "[" * 5000)
    with pytest.raises(ConfigError, match="isn't TOML"):
        read_settings(path)


@pytest.mark.parametrize(("text", "line", "said"), WRONG)
def test_wrong(path: Path, text: str, line: int, said: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_settings(path)
    assert f"{caught.value.message} {caught.value.hint}".startswith(f"{path}, line {line}: {said}")


def test_the_file_that_is_wrong_is_named(path: Path) -> None:
    path.write_text("[jobs]\ngrace = 1\n")
    other = path.with_name("sysjobs.toml.d") / "local.toml"
    other.parent.mkdir()
    other.write_text("[jobs]\ngrace = 'x'\n")
    with pytest.raises(ConfigError, match=r"local\.toml, line 2: "):
        read_settings(path)


@pytest.mark.parametrize("text", ["[node\n", "[node]\ncpus = \n", "[node]\ncpus = 1\ncpus = 2\n", "{}"])
def test_not_toml(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"sysjobs\.toml isn't TOML: .*at line \d") as caught:
        read_settings(path)
    assert caught.value.hint


def test_not_a_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="can't be read"):
        read_settings(path)


@pytest.mark.parametrize("kind", ["directory", "pipe", "device"])
def test_not_a_file(path: Path, kind: str) -> None:
    """Nor does a start wait for somebody to write, or for the end of what has none."""
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"sysjobs\.toml can't be read: (Is a d|not a regular f)"):
        read_settings(path)


def test_a_pipe_among_later_files(path: Path) -> None:
    directory = path.with_name("sysjobs.toml.d")
    directory.mkdir()
    os.mkfifo(directory / "a.toml")
    with pytest.raises(ConfigError, match=r"a\.toml can't be read: not a regular file\."):
        read_settings(path)


def test_a_file_that_is_too_large(path: Path) -> None:
    path.write_text("#" * (1 << 20))
    assert read_settings(path) == Settings()
    path.write_text("#" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match=r"can't be read: larger than 1 MiB\."):
        read_settings(path)
