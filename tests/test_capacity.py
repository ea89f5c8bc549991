"""What a machine is found to have, from files as the drivers of GPUs make them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sysjobs.capacity import inventory
from sysjobs.config import Settings
from sysjobs.devices import Device, Share, Vendor
from sysjobs.errors import ConfigError
from sysjobs.gpus import find_gpus
from sysjobs.resources import Amount
from sysjobs.scheduling.pool import all_of

UUID = "GPU-5f6a7b8c-0000-1111-2222-33334444555{}"
INFORMATION = """\
Model: \t\t {model}
IRQ:   \t\t 136
GPU UUID: \t {uuid}
Video BIOS: \t 96.00.74.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
Bus Location: \t {place}
Device Minor: \t {minor}
GPU Excluded:\t No
"""
MAJOR = 195
DEVICES = """\
Character devices:
  1 mem
  4 /dev/vc/0
  4 tty
 10 misc
195 nvidia
195 nvidia-modeset
195 nvidiactl
226 drm
237 twice
238 twice
507 nvidia-uvm

Block devices:
  7 loop
"""


class Machine:
    """A root directory. Device nodes need root's rights, as the tests have where they boot nodes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/devices", DEVICES)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def node(self, path: str, major: int, minor: int) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(self.root / path, 0o20666, os.makedev(major, minor))

    def nvidia(self, place: str, minor: int, model: str = "NVIDIA L4", uuid: str | None = None) -> None:
        text = INFORMATION.format(model=model, place=place, minor=minor, uuid=uuid or UUID.format(minor))
        self.write(f"proc/driver/nvidia/gpus/{place}/information", text)
        self.node(f"dev/nvidia{minor}", MAJOR, minor)

    def amd(self, number: int, **said: int) -> None:
        lines = "".join(f"{name} {value}\n" for name, value in said.items())
        self.write(f"sys/class/kfd/kfd/topology/nodes/{number}/properties", lines)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    return Machine(tmp_path)


def test_a_machine_without_gpus(tmp_path: Path) -> None:
    found = inventory(Settings(cpus=4000, memory=1 << 30), tmp_path)
    assert (found.capacity.cpus, found.capacity.memory, found.capacity.devices) == (4000, 1 << 30, ())
    assert found.access.allowed(()) is None


def test_nvidia(machine: Machine) -> None:
    # Not in the order of the minors.
    machine.nvidia("0000:5e:00.0", 0)
    machine.nvidia("0000:3b:00.0", 1, model="NVIDIA A100-SXM4-80GB")
    # Nobody has used it since it was booted.
    machine.nvidia("0000:af:00.0", 2, uuid="GPU-????????-????-????-????-????????????")
    machine.write("sys/bus/pci/devices/0000:5e:00.0/drm/card1/dev", "")
    machine.write("sys/bus/pci/devices/0000:5e:00.0/drm/renderD129/dev", "")
    machine.node("dev/dri/card1", 226, 1)
    machine.node("dev/dri/renderD129", 226, 129)
    machine.node("dev/nvidiactl", MAJOR, 255)
    (note,) = inventory(Settings(), machine.root).capacity.notes
    assert note.startswith("/dev/nvidia-uvm is missing, so that jobs can't use CUDA")
    machine.node("dev/nvidia-uvm", 507, 0)
    found = inventory(Settings(), machine.root)
    assert found.capacity.notes == ()
    l4 = ("/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD129")
    assert found.capacity.devices == (
        Device("0000:3b:00.0", "NVIDIA A100-SXM4-80GB", UUID.format(1), Vendor.NVIDIA, ("/dev/nvidia1",)),
        Device("0000:5e:00.0", "NVIDIA L4", UUID.format(0), Vendor.NVIDIA, l4),
        Device("0000:af:00.0", "NVIDIA L4", "", Vendor.NVIDIA, ("/dev/nvidia2",)),
    )
    others = ("block-*", "char-[!dn]*")
    assert found.access.allowed(()) == others
    shares = all_of(found.capacity).pick(Amount(gpus=1000, model="A100"))
    assert shares == (Share("0000:3b:00.0", 1000),)
    assert found.access.allowed(shares) == (*others, "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1")
    assert found.access.allowed((Share("0000:5e:00.0", 250),)) == (
        *others,
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        *l4,
    )


def test_amd(machine: Machine) -> None:
    machine.amd(0, cpu_cores_count=64, simd_count=0)
    machine.amd(1, simd_count=1216, location_id=0x0500, domain=0, unique_id=0x1234, drm_render_minor=128)
    machine.amd(2, simd_count=1216, location_id=0x26 << 8 | 3 << 3, domain=1, drm_render_minor=129)
    machine.write("sys/bus/pci/devices/0000:05:00.0/product_name", "AMD Instinct MI300X\n")
    machine.write("sys/bus/pci/devices/0000:05:00.0/drm/renderD128/dev", "")
    machine.write("sys/class/kfd/kfd/topology/nodes/2/name", "gfx942\n")
    machine.node("dev/kfd", 237, 0)
    machine.node("dev/dri/renderD128", 226, 128)
    assert find_gpus(machine.root) == (
        Device(
            "0000:05:00.0",
            "AMD Instinct MI300X",
            "GPU-0000000000001234",
            Vendor.AMD,
            ("/dev/dri/renderD128",),
        ),
        Device("0001:26:03.0", "gfx942", "", Vendor.AMD, ("/dev/dri/renderD129",)),
    )
    found = inventory(Settings(), machine.root)
    ((out, why),) = found.capacity.out_of_use
    assert (out.name, why) == ("0001:26:03.0", "/dev/dri/renderD129 is missing")
    (good,) = found.capacity.devices
    allowed = found.access.allowed((Share(good.name, 1000),))
    assert allowed is not None
    assert allowed[-2:] == ("/dev/kfd", "/dev/dri/renderD128")
    # One of the numbers of twice is the devices', so that what begins as it does is allowed by name.
    assert allowed[:3] == ("block-*", "char-[!dt]*", "char-tty")


def test_parts_of_an_amd_device(machine: Machine) -> None:
    """Each is a device of its own, though they are at the same place and may have the same UUID."""
    for part in range(3):
        location, minor = 0x0500 | part << 28, 128 + part
        machine.amd(part, simd_count=304, location_id=location, unique_id=0x1234, drm_render_minor=minor)
        machine.node(f"dev/dri/renderD{minor}", 226, minor)
    machine.write("sys/bus/pci/devices/0000:05:00.0/drm/renderD128/dev", "")
    machine.write("sys/bus/pci/devices/0000:05:00.0/product_name", "AMD Instinct MI300X\n")
    assert [(device.name, device.model, device.uuid, device.nodes) for device in find_gpus(machine.root)] == [
        ("0000:05:00.0", "AMD Instinct MI300X", "", ("/dev/dri/renderD128",)),
        ("0000:05:00.0/1", "AMD Instinct MI300X", "", ("/dev/dri/renderD129",)),
        ("0000:05:00.0/2", "AMD Instinct MI300X", "", ("/dev/dri/renderD130",)),
    ]


def test_a_device_whose_node_is_no_device(machine: Machine) -> None:
    machine.nvidia("0000:3b:00.0", 0)
    (machine.root / "dev/nvidia0").unlink()
    machine.write("dev/nvidia0", "")
    found = inventory(Settings(), machine.root)
    assert found.capacity.devices == ()
    assert [why for _, why in found.capacity.out_of_use] == ["/dev/nvidia0 is missing"]
    assert found.access.allowed(()) is not None, "it may come back while a job runs"


def test_a_driver_that_says_odd_things(machine: Machine) -> None:
    machine.write("proc/driver/nvidia/gpus/0000:3b:00.0/information", "")
    (machine.root / "proc/driver/nvidia/gpus/0000:3b:00.0/information").write_bytes(b"\0\xff:\n:::\n")
    machine.amd(1, simd_count=1)
    machine.write("sys/class/kfd/kfd/topology/nodes/2/properties", "simd_count x\n")
    assert [device.name for device in find_gpus(machine.root)] == ["0000:00:00.0", "0000:3b:00.0"]
    assert inventory(Settings(), machine.root).capacity.devices == ()


def test_what_the_settings_describe_goes_before_what_is_found(machine: Machine) -> None:
    machine.nvidia("0000:3b:00.0", 0)
    assert inventory(Settings(gpus=()), machine.root).capacity.devices == ()
    odd = Device("odd", "H100", "GPU-1")
    found = inventory(Settings(gpus=(odd,), reserve_gpus=("other",)), machine.root)
    assert found.capacity.devices == (odd,)
    reserved = inventory(Settings(gpus=(odd,), reserve_gpus=("GPU-1",)), machine.root)
    assert reserved.capacity.devices == ()
    assert reserved.capacity.out_of_use == ((odd, "reserved by the settings"),)


RESERVED = [
    ("0000:3b:00.0", True),
    ("00000000:3B:00.0", True),
    (UUID.format(0).upper(), True),
    ("3b:00.0", False),
    ("0000:3b:00.1", False),
    ("", False),
]


@pytest.mark.parametrize(("name", "known"), RESERVED)
def test_how_a_device_is_reserved(machine: Machine, name: str, known: bool) -> None:
    """By its place, as the driver's tools write it too, or its UUID; a name that none has is told."""
    machine.nvidia("0000:3b:00.0", 0)
    machine.nvidia("0000:af:00.0", 1, uuid="GPU-????????-????-????-????-????????????")
    found = inventory(Settings(reserve_gpus=(name,)), machine.root).capacity
    assert [device.name for device, _ in found.out_of_use] == ["0000:3b:00.0"] * known
    assert found.not_reserved == (() if known else (name,))


def test_cpus_that_jobs_are_kept_to(tmp_path: Path) -> None:
    there = sorted(os.sched_getaffinity(0))
    found = inventory(Settings(cpus=1000 * len(there), pin_cpus=True), tmp_path).capacity
    assert (found.cpus, found.cores) == (1000 * len(there), tuple(there))
    some = inventory(
        Settings(cpus=1000 * len(there) + 400, reserve_cpus=500, pin_cpus=True), tmp_path
    ).capacity
    assert (some.cpus, some.cores) == (1000 * (len(there) - 1), tuple(there[1:]))


@pytest.mark.parametrize("cpus", [999, 1_000_000])
def test_cpus_that_there_are_not(tmp_path: Path, cpus: int) -> None:
    with pytest.raises(ConfigError, match=r"pin-cpus keeps each job to CPUs of its own, and there are \d+;"):
        inventory(Settings(cpus=cpus, pin_cpus=True), tmp_path)


def test_more_than_there_is(tmp_path: Path) -> None:
    """Is taken: it may be meant. And is said."""
    found = inventory(Settings(cpus=9_999_000, memory=1 << 55), tmp_path).capacity
    assert (found.cpus, found.memory) == (9_999_000, 1 << 55)
    cpus, memory = found.notes
    assert re.fullmatch(r"The settings have 9999 CPUs for jobs, the machine \d+\.", cpus)
    assert re.fullmatch(r"The settings have 32768T of memory for jobs, the machine [\d.]+[GT]\.", memory)
    assert inventory(Settings(cpus=1000, memory=1 << 20), tmp_path).capacity.notes == ()
