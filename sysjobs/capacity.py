"""What this machine has for jobs: what is found, or what the settings say, less what they reserve."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from sysjobs.config import Settings
from sysjobs.devices import WHOLE, Access, Device, Vendor
from sysjobs.errors import ConfigError
from sysjobs.gpus import find_gpus
from sysjobs.resources import format_cpus, format_memory
from sysjobs.scheduling.explain import describe
from sysjobs.scheduling.pool import Capacity

_SHARED = {
    Vendor.NVIDIA: ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"),
    Vendor.AMD: ("kfd",),
}
"""Nodes that every program with a GPU of this vendor uses, whichever it is."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What jobs may have together, and how they get at devices."""

    capacity: Capacity
    access: Access


def inventory(settings: Settings, root: Path = Path("/")) -> Inventory:
    """Raises ConfigError where the settings leave nothing for jobs."""
    there = Capacity(1000 * (psutil.cpu_count() or 1), psutil.virtual_memory().total)
    cpus = settings.cpus if settings.cpus is not None else there.cpus
    memory = settings.memory if settings.memory is not None else there.memory
    left = Capacity(cpus - settings.reserve_cpus, memory - settings.reserve_memory)
    if left.cpus <= 0 or left.memory <= 0:
        raise ConfigError(
            f"The settings leave nothing for jobs: of {describe(Capacity(cpus, memory))} they reserve "
            f"{describe(Capacity(settings.reserve_cpus, settings.reserve_memory))}.",
            "Reserve less.",
        )
    if settings.pin_cpus:
        left = _pinned(left)
    devices = find_gpus(root) if settings.gpus is None else settings.gpus
    wrong = [(device, why) for device in devices if (why := _out_of_use(device, settings, root)) is not None]
    usable = tuple(device for device in devices if device not in dict(wrong))
    known = {name for device in devices for name in _names(device)}
    unknown = tuple(name for name in settings.reserve_gpus if _name(name) not in known)
    left = replace(
        left, devices=usable, others=settings.others, out_of_use=tuple(wrong), not_reserved=unknown,
        notes=(*_beyond(left, there), *_without_uvm(devices, root)),
    )  # fmt: skip
    return Inventory(left, _access(devices, root))


def _beyond(left: Capacity, there: Capacity) -> Iterator[str]:
    """Which an administrator may want, and may have got wrong by a digit."""
    if left.cpus > there.cpus:
        have = format_cpus(there.cpus)
        yield f"The settings have {format_cpus(left.cpus)} CPUs for jobs, the machine {have}."
    if left.memory > there.memory:
        have = format_memory(there.memory)
        yield f"The settings have {format_memory(left.memory)} of memory for jobs, the machine {have}."


def _without_uvm(devices: Iterable[Device], root: Path) -> Iterator[str]:
    """One of NVIDIA's drivers is loaded by the first program that uses CUDA, which no job is allowed to."""
    nvidia = any(device.vendor is Vendor.NVIDIA and device.nodes for device in devices)
    if nvidia and _number(root, "/dev/nvidiactl") is not None and _number(root, "/dev/nvidia-uvm") is None:
        yield "/dev/nvidia-uvm is missing, so that jobs can't use CUDA: `nvidia-modprobe -u -c 0` makes it."


def _pinned(left: Capacity) -> Capacity:
    """As many whole CPUs, the last ones: the first has most to do for devices."""
    there = sorted(os.sched_getaffinity(0))
    if left.cpus > WHOLE * len(there) or left.cpus < WHOLE:
        raise ConfigError(
            f"pin-cpus keeps each job to CPUs of its own, and there are {len(there)}; the settings have "
            f"{format_cpus(left.cpus)} for jobs.",
            "Have at least one for jobs and no more than there are, or set pin-cpus = false.",
        )
    cores = tuple(there[-(left.cpus // WHOLE) :])
    return replace(left, cpus=WHOLE * len(cores), cores=cores)


def _names(device: Device) -> list[str]:
    return [_name(name) for name in (device.name, device.uuid) if name]


def _name(text: str) -> str:
    """A device's name or UUID, in the one way that it is compared in: some tools give places in full."""
    return re.sub("^0000(?=[0-9a-f]{4}:[0-9a-f]{2}:)", "", text.lower())


def _out_of_use(device: Device, settings: Settings, root: Path) -> str | None:
    if {*_names(device)} & {*map(_name, settings.reserve_gpus)}:
        return "reserved by the settings"
    for node in device.nodes:
        if _number(root, node) is None:
            return f"{node} is missing"
    return None


def _access(devices: Iterable[Device], root: Path) -> Access:
    """How a job gets at its devices, and at all that isn't one of these or what they have in common."""
    found = {device.name: device for device in devices}
    if not found:
        return Access()
    shared = {
        vendor: tuple(f"/dev/{name}" for name in names if _number(root, f"/dev/{name}") is not None)
        for vendor, names in _SHARED.items()
    }
    vendors = {device.vendor for device in found.values()}
    guarded = [*(node for device in found.values() for node in device.nodes)]
    guarded += [node for vendor in vendors for node in shared[vendor]]
    majors = {os.major(number) for node in guarded if (number := _number(root, node)) is not None}
    return Access(found, shared, ("block-*", *_classes(root, majors)))


def _classes(root: Path, without: set[int]) -> list[str]:
    """The classes of character devices that the kernel has, without those of these numbers.

    Those with the same initials as none of these have one pattern: PID 1 takes 0.2 ms of a start for each.
    """
    classes: dict[str, bool] = {}
    for line in _lines(root / "proc/devices"):
        if line.startswith("Block"):
            break
        number, _, name = line.strip().partition(" ")
        if number.isdecimal():
            # A name may stand for several numbers.
            classes[name] = classes.get(name, True) and int(number) not in without
    initials = {name[:1] for name, free in classes.items() if not free}
    by_name = [name for name, free in classes.items() if free and name[:1] in initials]
    others = "".join(sorted(initials))
    # char-* would be all that there can ever be.
    return [f"char-[!{others}]*" if others else "char-?*", *(f"char-{name}" for name in by_name)]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _number(root: Path, node: str) -> int | None:
    """The number of a device node; None where there is none."""
    try:
        found = (root / node.lstrip("/")).stat()
    except OSError:
        return None
    return found.st_rdev if stat.S_ISCHR(found.st_mode) else None
