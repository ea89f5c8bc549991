"""Where files are, and the administrator's settings: TOML as one frozen value, or refused with advice."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sysjobs.devices import MAX_DEVICES, Device, Vendor, core_number
from sysjobs.errors import ConfigError, SysjobsError
from sysjobs.limits import Limits
from sysjobs.resources import (
    MAX_COUNT,
    MAX_PRIORITY,
    OTHERS,
    is_other,
    parse_cpus,
    parse_duration,
    parse_memory,
)


@dataclass(frozen=True, slots=True)
class Paths:
    """Files of one daemon."""

    socket: Path
    database: Path
    scripts: Path
    logs: Path
    settings: Path
    systemd: str

    @property
    def shutdown(self) -> Path:
        """Where it is noted which boot was shut down last."""
        return self.database.with_name("shutdown")

    @property
    def drained(self) -> Path:
        """Where it is noted that no job is to start."""
        return self.database.with_name("drained")

    @property
    def rescued(self) -> Path:
        """Where the database goes that was removed while in use, directory and all."""
        return self.scripts.parent / self.database.name


SYSTEM = Paths(
    socket=Path("/run/sysjobs/io.sysjobs"),
    database=Path("/var/lib/sysjobs/sysjobs.db"),
    scripts=Path("/run/sysjobs/jobs"),
    logs=Path("/var/log/sysjobs"),
    settings=Path("/etc/sysjobs/sysjobs.toml"),
    systemd="/run/systemd/private",
)

MAX_FILE = 1 << 20
"""Bytes of a file of settings."""


DEFAULT_LIMITS = Limits(pending_per_user=100_000)


@dataclass(frozen=True, slots=True)
class Settings:
    """What an administrator may set. Capacity that isn't set is what the machine has."""

    cpus: int | None = None
    memory: int | None = None
    gpus: tuple[Device, ...] | None = None
    others: Mapping[str, int] = field(default_factory=dict)
    reserve_cpus: int = 0
    reserve_memory: int = 0
    reserve_gpus: tuple[str, ...] = ()
    pin_cpus: bool = False
    grace: float = 30.0
    keep_failed: int = 20
    unmet: str = "cancel"
    unit_messages: str = "failures"
    fair_share_half_life: float | None = None
    limits: Limits = DEFAULT_LIMITS


def _text(parse: Callable[[str, str], Any]) -> Callable[[object, str], Any]:
    def read(value: object, key: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ConfigError(f"{key} is {value!r}, not a text or number.", "")
        return parse(str(value), key)

    return read


def _count(most: int) -> Callable[[object, str], int]:
    def read(value: object, key: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise ConfigError(f"{key} is {value!r}, not a number from 0 to {most}.", "")
        return value

    return read


def _flag(value: object, key: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{key} is {value!r}.", "It can be true or false.")
    return value


def _names(value: object, key: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{key} is {value!r}, not a list of texts.", "")
    return tuple(value)


def _choice(*choices: str) -> Callable[[object, str], str]:
    def read(value: object, key: str) -> str:
        if value not in choices:
            raise ConfigError(f"{key} is {value!r}.", f"It can be {' or '.join(choices)}.")
        return str(value)

    return read


def _word(value: object, key: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[\w][\w .:,()/+-]{0,99}", value):
        raise ConfigError(f"{key} is {value!r:.120}, not a name.", "")
    return value


def _nodes(value: object, key: str) -> tuple[str, ...]:
    nodes = _names(value, key)
    # systemd takes none with dots or slashes that lead nowhere.
    if wrong := [
        node
        for node in nodes
        if not re.fullmatch(r"/dev/[\w./:@+-]{1,200}", node, re.ASCII) or os.path.normpath(node) != node
    ]:
        raise ConfigError(f"{key} has {wrong[0]!r:.120}, which is no path below /dev.", "")
    return nodes


def _half_life(text: str, key: str) -> float:
    seconds = parse_duration(text, key)
    if seconds < 1:
        raise ConfigError(f"{key} is {text}, which is too short.", "Give a second or more, such as 7d.")
    return seconds


_KEYS: dict[str, dict[str, tuple[str, Callable[[object, str], Any]]]] = {
    "node": {
        "cpus": ("cpus", _text(parse_cpus)),
        "memory": ("memory", _text(parse_memory)),
        "reserve-cpus": ("reserve_cpus", _text(parse_cpus)),
        "reserve-memory": ("reserve_memory", _text(parse_memory)),
        "reserve-gpus": ("reserve_gpus", _names),
        "pin-cpus": ("pin_cpus", _flag),
    },
    "jobs": {
        "grace": ("grace", _text(parse_duration)),
        "keep-failed": ("keep_failed", _count(1000)),
        "unmet-dependency": ("unmet", _choice("cancel", "hold")),
        "unit-messages": ("unit_messages", _choice("failures", "all")),
    },
    "order": {
        "fair-share-half-life": ("fair_share_half_life", _text(_half_life)),
    },
    "limits": {
        "highest-priority": ("highest_priority", _count(MAX_PRIORITY)),
        "pending": ("pending", _count(10_000_000)),
        "pending-per-user": ("pending_per_user", _count(10_000_000)),
        "running": ("running", _count(1_000_000)),
        "running-per-user": ("running_per_user", _count(1_000_000)),
        "cpus-per-user": ("cpus_per_user", _text(parse_cpus)),
        "memory-per-user": ("memory_per_user", _text(parse_memory)),
        "gpus-per-user": ("gpus_per_user", _text(parse_cpus)),
    },
}


_GPU: dict[str, tuple[str, Callable[[object, str], Any]]] = {
    "model": ("model", _word),
    "name": ("name", _word),
    "uuid": ("uuid", _word),
    "vendor": ("vendor", lambda value, key: Vendor(_choice(*Vendor)(value, key))),
    "nodes": ("nodes", _nodes),
}


def read_settings(path: Path) -> Settings:
    """The settings in `path` and in `path`.d/*.toml, later files over earlier ones. Raises ConfigError."""
    values: dict[str, Any] = {}
    for file in [path, *sorted(path.with_name(path.name + ".d").glob("*.toml"))]:
        try:
            text = _read(file)
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"{file} can't be read: {why}.", "Make it a readable text file.") from None
        found = _parse(file, text)
        if "others" in found:
            found["others"] = {**values.get("others", {}), **found["others"]}
        values |= found
    limits = {name: values.pop(name) for name in [*values] if name in Limits.__slots__}
    return Settings(**values, limits=replace(DEFAULT_LIMITS, **limits))


def _read(file: Path) -> str:
    """The text of a file, not of what would keep a start waiting for ever."""
    # Without O_NONBLOCK opening a pipe would wait for somebody who writes to it.
    with open(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        data = opened.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise OSError(errno.EFBIG, f"larger than {MAX_FILE >> 20} MiB")
    return data.decode("utf-8")


def _parse(file: Path, text: str) -> dict[str, Any]:
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} isn't TOML: {error}.", "Mend that line.") from None
    values: dict[str, Any] = {}
    for table, entries in tables.items():
        source = _Source(file, text, table)
        if table == "gpus":
            values["gpus"] = _gpus(source, entries)
        elif table == "resources" and isinstance(entries, Mapping):
            values["others"] = {name: _other(source, name, count) for name, count in entries.items()}
        elif table in _KEYS and isinstance(entries, Mapping):
            values |= source.read(_KEYS[table], entries)
        else:
            names = ", ".join(f"[{name}]" for name in (*_KEYS, "resources", "[gpus]"))
            raise ConfigError(
                f"{source.place()}: there are no settings {table!r}.", f"The tables are {names}."
            )
    return values


@dataclass(frozen=True, slots=True)
class _Source:
    """A table of a file, for what is wrong with it."""

    file: Path
    text: str
    table: str

    def place(self, *keys: str) -> str:
        return _place(self.file, self.text, self.table, *keys)

    def read(
        self, known: Mapping[str, tuple[str, Callable[[object, str], Any]]], entries: Mapping[str, object]
    ) -> dict[str, object]:
        """The fields that the entries stand for."""
        values: dict[str, object] = {}
        for key, value in entries.items():
            if key not in known:
                raise ConfigError(
                    f"{self.place(key)}: [{self.table}] has no setting {key!r}.",
                    f"It has {', '.join(known)}.",
                )
            field, read = known[key]
            values[field] = self.value(read, value, key)
        return values

    def value(self, read: Callable[[object, str], Any], value: object, key: str) -> Any:
        try:
            return read(value, key)
        except SysjobsError as error:
            raise ConfigError(f"{self.place(key)}: {error.message}", error.hint) from None


def _gpus(source: _Source, entries: object) -> tuple[Device, ...]:
    """[[gpus]]: what the node has, instead of what is found."""
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise ConfigError(f"{source.place()}: gpus isn't a list of tables.", "Write [[gpus]] above each.")
    if len(entries) > MAX_DEVICES:
        raise ConfigError(
            f"{source.place()}: there are {len(entries)} of [[gpus]].", f"{MAX_DEVICES} are taken."
        )
    devices = []
    for number, entry in enumerate(entries):
        fields: dict[str, Any] = {"name": f"gpu{number}", **source.read(_GPU, entry)}
        if "model" not in fields:
            raise ConfigError(f"{source.place()}: one of [[gpus]] has no model.", 'Give one, such as "L4".')
        if core_number(fields["name"]) is not None:
            raise ConfigError(f"{source.place()}: a GPU can't be called {fields['name']!r}.", "CPUs are.")
        devices.append(Device(**fields))
    for name, values in (
        ("name", [each.name for each in devices]),
        ("uuid", [each.uuid for each in devices]),
    ):
        if twice := [value for value, count in Counter(values).items() if value and count > 1]:
            raise ConfigError(
                f"{source.place()}: two of [[gpus]] have the {name} {twice[0]!r}.", "Give each its own."
            )
    for each in devices:
        others = {node for other in devices if other is not each for node in other.nodes}
        if each.nodes and others.issuperset(each.nodes):
            raise ConfigError(
                f"{source.place()}: {each.name} of [[gpus]] has no node of its own.",
                "Give it one: whoever has another one could open it.",
            )
    return tuple(devices)


def _other(source: _Source, name: str, count: object) -> int:
    if not is_other(name):
        raise ConfigError(f"{source.place(name)}: a resource can't be called {name!r:.80}.", OTHERS)
    found: int = source.value(_count(MAX_COUNT), count, name)
    return found


_LINE = re.compile(r"""\s*(?:\[+\s*(?P<table>[\w"'. -]+)\]|(?P<key>[\w"'. -]+)=)""")


def _place(file: Path, text: str, *wanted: str) -> str:
    """'FILE, line N', the line of a table or of a key in it: tomllib keeps no positions."""
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.match(line)
        if match is None:
            continue
        names = [name.strip(" \"'") for name in (match["table"] or match["key"]).split(".")]
        if match["table"]:
            table = names
            found = names == [*wanted]
        else:
            # 'key = ...' below [table], 'table.key = ...', or 'table = {key = ...}'.
            found = all(one == other for one, other in zip(table + names, wanted, strict=False))
        if found:
            return f"{file}, line {number}"
    return str(file)
