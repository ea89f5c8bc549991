"""Devices that a node has for its jobs, what one asks of them, and what it got."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise

from sysjobs.errors import ConfigError, Refused

WHOLE = 1000
"""A device is shared out in thousandths."""

MAX_DEVICES = 1000

_ASKED = re.compile(
    r"(?:(?P<model>[A-Za-z][\w. -]{0,63}?)(?::|$))?(?P<count>\d{1,6}(?:\.\d{1,9})?)?", re.ASCII
)


_CORE = re.compile(r"cpu(\d{1,6})", re.ASCII)


def core_name(number: int) -> str:
    """What a CPU is called that jobs are kept to."""
    return f"cpu{number}"


def core_number(name: str) -> int | None:
    """The CPU of this name; None for another device."""
    match = _CORE.fullmatch(name)
    return int(match[1]) if match else None


class Vendor(StrEnum):
    """Whose it is, which is how a program is told which ones are its own."""

    NVIDIA = "nvidia"
    AMD = "amd"


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. `name` is its own on this node for good, as its place on the bus is.

    `uuid` is what programs know it by; it may be empty as long as its driver hasn't told. `nodes` are the
    files under /dev that it is used through, and no other one.
    """

    name: str
    model: str
    uuid: str = ""
    vendor: Vendor = Vendor.NVIDIA
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """What a job got of the device of this name, in thousandths."""

    device: str
    amount: int


def parse_gpus(text: str, option: str = "--gpus") -> tuple[int, str]:
    """'2' -> (2000, ''), 'L4' -> (1000, 'L4'), 'L4:0.25' -> (250, 'L4').

    Of a device a part can be asked for, or one or more whole ones.
    """
    match = _ASKED.fullmatch(text.strip())
    asked = (
        None
        if match is None or not text.strip() or text.strip().endswith(":")
        else _thousandths(match["count"] or "1")
    )
    if match is None or asked is None:
        raise Refused(
            f"{option} {text!r} is not a number of GPUs, or a model and a number.",
            "Give 2, L4, L4:2 or, for a part of one, L4:0.25 in steps of 0.001.",
            code="bad-gpus",
        )
    model = (match["model"] or "").strip()
    if asked > WHOLE and asked % WHOLE:
        raise Refused(
            f"{option} {text!r} asks for whole devices and a part of another one.",
            "Give a whole number, or less than 1.",
            code="bad-gpus",
        )
    if asked > MAX_DEVICES * WHOLE:
        raise Refused(
            f"{option} {text!r} asks for more devices than any node has.",
            f"Give {MAX_DEVICES} at most.",
            code="bad-gpus",
        )
    return (asked, model) if asked else (0, "")


def _thousandths(text: str) -> int | None:
    whole, _, fraction = text.partition(".")
    if fraction[3:].strip("0"):
        return None
    return int(whole) * WHOLE + int(fraction[:3].ljust(3, "0"))


def format_gpus(gpus: int, model: str = "") -> str:
    """(250, 'L4') -> 'L4:0.25'."""
    count = f"{gpus / WHOLE:g}"
    return f"{model}:{count}" if model else count


@lru_cache(4096)
def is_model(asked: str, model: str) -> bool:
    """Whether a device of this model is what `asked` means.

    It has words of the model's name, in any case, two of them perhaps written as one: 'a100' and 'A100-80GB'
    mean an NVIDIA A100-SXM4-80GB, 'RTX4090' an NVIDIA GeForce RTX 4090, 'L4' no L40S.
    """
    words = _words(model)
    known = {*words, *(one + other for one, other in pairwise(words))}
    return known.issuperset(_words(asked))


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def dump_shares(shares: tuple[Share, ...]) -> str | None:
    return json.dumps([[share.device, share.amount] for share in shares]) if shares else None


def load_shares(text: str | None) -> tuple[Share, ...]:
    """As `dump_shares` wrote it. Raises ValueError."""
    found = json.loads(text) if text else []
    if not isinstance(found, list) or not all(isinstance(entry, list) and len(entry) == 2 for entry in found):
        raise ValueError(f"its shares of devices are {text}")
    shares = tuple(Share(*entry) for entry in found)
    for share in shares:
        if (
            not isinstance(share.device, str)
            or type(share.amount) is not int
            or not 0 < share.amount <= WHOLE
        ):
            raise ValueError(f"a share of a device is {share}")
    return shares


@dataclass(frozen=True, slots=True)
class Access:
    """How jobs get at the devices of a node.

    `shared` are the nodes that all programs with a device of a vendor use; `rest` is what any job may open,
    as systemd's DeviceAllow= has it. Where there are no devices, nothing is kept from anybody.
    """

    devices: Mapping[str, Device] = field(default_factory=dict)
    shared: Mapping[Vendor, tuple[str, ...]] = field(default_factory=dict)
    rest: tuple[str, ...] = ()

    def allowed(self, shares: tuple[Share, ...]) -> tuple[str, ...] | None:
        """What a job with these shares may open; None: everything. Raises KeyError for one that is gone."""
        if not self.devices:
            return None
        mine = [self.devices[share.device] for share in shares if core_number(share.device) is None]
        shared = [node for vendor in {device.vendor: None for device in mine} for node in self.shared[vendor]]
        return (*self.rest, *shared, *(node for device in mine for node in device.nodes))

    def refuse_renamed(self, before: Access, held: Iterable[str]) -> None:
        """Raise ConfigError where a device that a job has, by its name, goes by another one now.

        It would be free, and be given away twice.
        """
        for name in held:
            old, new = before.devices.get(name), self.devices.get(name)
            if old is None or (new is not None and (old.uuid, old.nodes) == (new.uuid, new.nodes)):
                continue
            for other in self.devices.values():
                if other.name != name and (other.uuid == old.uuid != "" or {*other.nodes} & {*old.nodes}):
                    raise ConfigError(
                        f"The {old.model} that jobs have as {name} is called {other.name} now.",
                        "Keep the names of devices as long as jobs have them.",
                    )

    def variables(self, shares: tuple[Share, ...]) -> tuple[tuple[bytes, bytes], ...]:
        """How a program learns which ones are its own."""
        vendors = {device.vendor: None for device in self.devices.values()}
        return tuple((_VARIABLES[vendor], self._visible(vendor, shares).encode()) for vendor in vendors)

    def _visible(self, vendor: Vendor, shares: tuple[Share, ...]) -> str:
        got = [self.devices[share.device] for share in shares if core_number(share.device) is None]
        mine = [device.uuid for device in got if device.vendor is vendor]
        # Of those that it may open a program counts from 0.
        return ",".join(mine if all(mine) else map(str, range(len(mine))))


_VARIABLES = {Vendor.NVIDIA: b"CUDA_VISIBLE_DEVICES", Vendor.AMD: b"ROCR_VISIBLE_DEVICES"}
