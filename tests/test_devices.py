"""What is asked for of devices, which models that means, and what a job may then open."""

from __future__ import annotations

import pytest

from sysjobs.devices import (
    Access,
    Device,
    Share,
    Vendor,
    dump_shares,
    format_gpus,
    is_model,
    load_shares,
    parse_gpus,
)
from sysjobs.errors import ConfigError, Refused

ASKED = [
    ("2", (2000, ""), "2"),
    ("0.25", (250, ""), "0.25"),
    ("L4", (1000, "L4"), "L4:1"),
    ("L4:0.25", (250, "L4"), "L4:0.25"),
    ("A100:2", (2000, "A100"), "A100:2"),
    ("A100-80GB:8", (8000, "A100-80GB"), "A100-80GB:8"),
    ("RTX 4090:1.000", (1000, "RTX 4090"), "RTX 4090:1"),
    ("L4:0.001", (1, "L4"), "L4:0.001"),
    (" 1 ", (1000, ""), "1"),
    ("0", (0, ""), "0"),
    ("L4:0", (0, ""), "0"),
]


@pytest.mark.parametrize(("text", "meant", "shown"), ASKED)
def test_what_is_asked_for(text: str, meant: tuple[int, str], shown: str) -> None:
    assert parse_gpus(text) == meant
    assert format_gpus(*meant) == shown
    assert parse_gpus(shown) == meant


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "L4:", ":2", "-1", "L4:-1", "L4:x", "1.5", "L4:2.5", "0.0001", "1e3", "L4:1:2", "4L",
        "1001", "L4\n:1", "L" * 65, "0x2", "\uff11",
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for(text: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_gpus(text)
    assert repr(text) in caught.value.message
    assert caught.value.hint


MODELS = [
    ("", "NVIDIA H200", True),
    ("H200", "NVIDIA H200", True),
    ("h200", "NVIDIA H200", True),
    ("L4", "NVIDIA L4", True),
    ("L4", "NVIDIA L40S", False),
    ("L40", "NVIDIA L40S", False),
    ("A10", "NVIDIA A10G", False),
    ("A100", "NVIDIA A100-SXM4-80GB", True),
    ("A100-80GB", "NVIDIA A100-SXM4-80GB", True),
    ("A100-40GB", "NVIDIA A100-SXM4-80GB", False),
    ("V100", "Tesla V100-SXM2-16GB", True),
    ("RTX4090", "NVIDIA GeForce RTX 4090", True),
    ("RTX-4090", "NVIDIA GeForce RTX 4090", True),
    ("MI300X", "AMD Instinct MI300X", True),
    ("AMD", "AMD Instinct MI300X", True),
]


@pytest.mark.parametrize(("asked", "model", "meant"), MODELS)
def test_which_models_are_meant(asked: str, model: str, meant: bool) -> None:
    assert is_model(asked, model) is meant


SHARES = (Share("0000:3b:00.0", 1000), Share("gpu1", 250))


def test_shares_are_kept() -> None:
    assert load_shares(dump_shares(SHARES)) == SHARES
    assert dump_shares(()) is None
    assert load_shares(None) == ()


@pytest.mark.parametrize(
    "text",
    [
        '[["a", 0]]',
        '[["a", 1001]]',
        "[[1, 1]]",
        '[["a", "1"]]',
        '[["a", true]]',
        "{",
        "7",
        "[7]",
        '["a"]',
        '{"a": 1}',
        '[["a"]]',
    ],
)
def test_shares_that_were_never_written(text: str) -> None:
    with pytest.raises(ValueError, match=r"share|Expecting"):
        load_shares(text)


ACCESS = Access(
    {
        "a": Device("a", "NVIDIA L4", "GPU-a", Vendor.NVIDIA, ("/dev/nvidia0", "/dev/dri/card0")),
        "b": Device("b", "NVIDIA L4", "GPU-b", Vendor.NVIDIA, ("/dev/nvidia1",)),
        "c": Device("c", "NVIDIA T4", "", Vendor.NVIDIA, ("/dev/nvidia2",)),
        "d": Device("d", "AMD", "GPU-d", Vendor.AMD, ("/dev/dri/renderD129",)),
    },
    {Vendor.NVIDIA: ("/dev/nvidiactl",), Vendor.AMD: ("/dev/kfd",)},
    ("block-*", "char-input"),
)
GRANTS = [
    ("", (), "", ""),
    ("a", ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dri/card0"), "GPU-a", ""),
    ("ab", ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dri/card0", "/dev/nvidia1"), "GPU-a,GPU-b", ""),
    # One whose driver hasn't told its UUID: of those that it may open, a program counts from 0.
    ("bc", ("/dev/nvidiactl", "/dev/nvidia1", "/dev/nvidia2"), "0,1", ""),
    ("d", ("/dev/kfd", "/dev/dri/renderD129"), "", "GPU-d"),
]


@pytest.mark.parametrize(("names", "opens", "cuda", "rocr"), GRANTS)
def test_what_a_job_may_open_and_is_told(names: str, opens: tuple[str, ...], cuda: str, rocr: str) -> None:
    shares = tuple(Share(name, 1000) for name in names)
    assert ACCESS.allowed(shares) == ("block-*", "char-input", *opens)
    assert dict(ACCESS.variables(shares)) == {
        b"CUDA_VISIBLE_DEVICES": cuda.encode(),
        b"ROCR_VISIBLE_DEVICES": rocr.encode(),
    }


def test_without_devices_nothing_is_kept_from_anybody() -> None:
    assert Access().allowed(()) is None
    assert Access().variables(()) == ()


def test_a_device_that_is_gone() -> None:
    with pytest.raises(KeyError):
        ACCESS.allowed((Share("e", 1000),))


RENAMED = [
    ("nothing has changed", {}, ""),
    ("one that nobody has", {"b": Device("e", "NVIDIA L4", "GPU-b", nodes=("/dev/nvidia1",))}, ""),
    ("it has vanished", {"a": None}, ""),
    ("it is another one", {"a": Device("a", "NVIDIA L4", "GPU-e", nodes=("/dev/nvidia9",))}, ""),
    ("its UUID is told now", {"c": Device("c", "NVIDIA T4", "GPU-c", nodes=("/dev/nvidia2",))}, ""),
    ("another name, the same UUID", {"a": Device("e", "NVIDIA L4", "GPU-a")}, "e"),
    ("another name, the same node", {"c": Device("e", "L40", nodes=("/dev/nvidia2", "/dev/x"))}, "e"),
    (
        "two have changed places",
        {
            "a": Device("a", "NVIDIA L4", "GPU-b", nodes=("/dev/nvidia1",)),
            "b": Device("b", "NVIDIA L4", "GPU-a", nodes=("/dev/nvidia0",)),
        },
        "b",
    ),
]


@pytest.mark.parametrize(("changes", "now"), [r[1:] for r in RENAMED], ids=[r[0] for r in RENAMED])
def test_devices_that_jobs_have_keep_their_names(changes: dict[str, Device | None], now: str) -> None:
    there = [device for device in {**ACCESS.devices, **changes}.values() if device is not None]
    after = Access({device.name: device for device in there})
    if not now:
        after.refuse_renamed(ACCESS, {"a", "c", "never seen"})
        return
    with pytest.raises(ConfigError, match=f" that jobs have as [ac] is called {now} now"):
        after.refuse_renamed(ACCESS, {"a", "c", "never seen"})
