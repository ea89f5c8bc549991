"""Which GPUs a machine has, from what their drivers say in /proc and /sys: no library of theirs is needed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sysjobs.devices import Device, Vendor

_NVIDIA = "proc/driver/nvidia/gpus"
_AMD = "sys/class/kfd/kfd/topology/nodes"
_PCI = "sys/bus/pci/devices"
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


def find_gpus(root: Path = Path("/")) -> tuple[Device, ...]:
    """In the order of their places on the bus."""
    found = sorted([*_nvidia(root), *_amd(root)], key=lambda device: device.name)
    # What several are called tells a program nothing.
    times = Counter(device.uuid for device in found)
    return tuple(device if times[device.uuid] == 1 else replace(device, uuid="") for device in found)


def _nvidia(root: Path) -> Iterator[Device]:
    """A directory for each, named by its place on the bus, with a file of 'Name: value' lines."""
    for directory in _children(root / _NVIDIA):
        said = dict(_fields(directory / "information", ":"))
        # Without it the driver hasn't got hold of the device.
        minor = said.get("Device Minor", "")
        uuid = said.get("GPU UUID", "")
        yield Device(
            name=directory.name,
            model=said.get("Model") or "NVIDIA",
            # Question marks, as long as nobody has used the device.
            uuid=uuid if _UUID.fullmatch(uuid) else "",
            vendor=Vendor.NVIDIA,
            nodes=(f"/dev/nvidia{minor}", *_drm_nodes(root, directory.name)),
        )


def _amd(root: Path) -> Iterator[Device]:
    """A directory for each node of the topology, CPUs too, with a file of 'name value' lines."""
    for directory in _children(root / _AMD):
        said = dict(_fields(directory / "properties", " "))
        simds, location, domain, unique = (
            _integer(said.get(name)) for name in ("simd_count", "location_id", "domain", "unique_id")
        )
        if not simds:
            continue
        place = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
        # Where one is split up, each part has a node of its own.
        part = location >> 28
        alone = (f"/dev/dri/renderD{said.get('drm_render_minor', '')}",)
        yield Device(
            name=f"{place}/{part}" if part else place,
            model=_amd_model(root, place, directory),
            uuid=f"GPU-{unique:016x}" if unique else "",
            vendor=Vendor.AMD,
            nodes=alone if part else _drm_nodes(root, place) or alone,
        )


def _amd_model(root: Path, place: str, directory: Path) -> str:
    for path in (root / _PCI / place / "product_name", directory / "name"):
        with suppress(OSError):
            if name := path.read_text(encoding="utf-8", errors="replace").strip():
                return name
    return "AMD"


def _drm_nodes(root: Path, place: str) -> tuple[str, ...]:
    """The nodes through which the device at this place can be used for graphics and video."""
    names = [child.name for child in _children(root / _PCI / place / "drm")]
    return tuple(f"/dev/dri/{name}" for name in names if re.fullmatch(r"(?:card|renderD)\d+", name))


def _children(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _integer(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _fields(path: Path, separator: str) -> Iterator[tuple[str, str]]:
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(separator)
            yield name.strip(), value.strip()
