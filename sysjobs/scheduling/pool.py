"""What a node has for jobs, and what of it is free: exact, and which devices one would get.

Of a device a job gets a part, or the whole. A part comes from the device that has the least left but enough,
so that the most stay whole. Several whole ones are of one model: of that which has the fewest but enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sysjobs.devices import WHOLE, Device, Share, core_name, is_model
from sysjobs.resources import Amount

MOST_MODELS = 1000
"""So many ways to ask for a model are kept in memory: each job may have its own."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """All that jobs may have together: CPUs in thousandths, memory in bytes, devices, others by name.

    `cores` are the CPUs that jobs are kept to, each to its own, by their numbers: none, where they aren't.
    `out_of_use` are devices that nobody may have, and why; `not_reserved` are names that the settings reserve
    and that no device has.
    """

    cpus: int
    memory: int
    devices: tuple[Device, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)
    cores: tuple[int, ...] = ()
    out_of_use: tuple[tuple[Device, str], ...] = ()
    not_reserved: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What else an administrator should know of it, in sentences."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a job holds: what it asked for, and which devices it got for that."""

    amount: Amount
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """What is free. Of CPUs and memory it may be less than nothing, where the capacity was lowered."""

    cpus: int
    memory: int
    devices: tuple[Device, ...] = ()
    # The names of CPUs that jobs are kept to.
    cores: tuple[str, ...] = ()
    # What is free of each device and of each of these CPUs, by its name; of others, by theirs.
    parts: dict[str, int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    # What is asked again and again, of lines of jobs: the most of one, and how many are whole; by model of
    # GPUs, and of the CPUs by None.
    _most: dict[str | None, tuple[int, int]] = field(default_factory=dict, compare=False, repr=False)

    def fits(self, asked: Amount) -> bool:
        """Whether there is so much; what isn't asked for isn't missed."""
        if (asked.cpus and asked.cpus > self.cpus) or (asked.memory and asked.memory > self.memory):
            return False
        if asked.others and any(count > self.others.get(name, 0) for name, count in asked.others):
            return False
        return asked.gpus <= (self.most_gpus(asked) if asked.gpus else 0) and self._has_cores(asked.cpus)

    def _has_cores(self, cpus: int) -> bool:
        if not self.cores:
            return True
        part, whole = self._most_cores()
        return whole * WHOLE >= cpus or (whole == cpus // WHOLE and part >= cpus % WHOLE)

    def pick(self, asked: Amount) -> tuple[Share, ...] | None:
        """Which devices it would get, and which CPUs it would be kept to; None where there aren't enough."""
        gpus, cores = self._pick_gpus(asked), self._pick_cores(asked.cpus)
        return None if gpus is None or cores is None else (*cores, *gpus)

    def _pick_cores(self, cpus: int) -> tuple[Share, ...] | None:
        """Whole ones, and for the rest a part of another one."""
        if not self.cores:
            return ()
        count, part = divmod(cpus, WHOLE)
        whole = [name for name in self.cores if self.parts[name] == WHOLE][:count]
        if len(whole) < count:
            return None
        shares = tuple(Share(name, WHOLE) for name in whole)
        if not part:
            return shares
        parts = [(self.parts[name], name) for name in self.cores if name not in whole]
        name = min((each for each in parts if each[0] >= part), key=_first, default=(0, ""))[1]
        return (*shares, Share(name, part)) if name else None

    def _pick_gpus(self, asked: Amount) -> tuple[Share, ...] | None:
        if not asked.gpus:
            return ()
        if asked.gpus < WHOLE:
            parts = [(free, name) for free, name in self._parts(asked.model) if free >= asked.gpus]
            # Of those alike the first: names aren't compared.
            name = min(parts, key=_first, default=(0, ""))[1]
            return (Share(name, asked.gpus),) if name else None
        whole = [names for names in self._whole(asked.model) if len(names) * WHOLE >= asked.gpus]
        if not whole:
            return None
        return tuple(Share(name, WHOLE) for name in min(whole, key=len)[: asked.gpus // WHOLE])

    def has(self, asked: Amount) -> tuple[int, ...]:
        """How much there is of what is asked for, each kind for itself: with less of any it comes later."""
        gpus = [name for _, name in self._parts(asked.model)] if asked.gpus else []
        return (
            min(max(self.cpus, 0), asked.cpus),
            min(max(self.memory, 0), asked.memory),
            *self._has(self._pick_cores(asked.cpus), self.cores),
            *self._has(self._pick_gpus(asked), gpus),
            *(min(max(self.others.get(name, 0), 0), count) for name, count in asked.others),
        )

    def _has(self, picked: tuple[Share, ...] | None, names: Iterable[str]) -> tuple[int, int]:
        """Whether there are enough of these; if not, what is free of them: any may be what becomes whole."""
        return (1, 0) if picked is not None else (0, sum(self.parts[name] for name in names))

    def most_gpus(self, asked: Amount) -> int:
        """How much there is for whoever asks for whole devices of one model, or for a part of one."""
        most = self._most.get(asked.model)
        if most is None:
            part = max((free for free, _ in self._parts(asked.model)), default=0)
            most = part, max(map(len, self._whole(asked.model)), default=0)
            if len(self._most) >= MOST_MODELS:
                self._most.clear()
            self._most[asked.model] = most
        return most[0] if asked.gpus < WHOLE else WHOLE * most[1]

    def most_cores(self, cpus: int) -> int:
        """The same of the CPUs that jobs are kept to."""
        part, whole = self._most_cores()
        return WHOLE * whole if cpus >= WHOLE or whole else part

    def _most_cores(self) -> tuple[int, int]:
        """How much is free of one that isn't whole, and how many are."""
        most = self._most.get(None)
        if most is None:
            free = [self.parts[name] for name in self.cores]
            part = max((each for each in free if each < WHOLE), default=0)
            most = self._most[None] = part, free.count(WHOLE)
        return most

    def _parts(self, model: str) -> Iterable[tuple[int, str]]:
        return (
            (self.parts[device.name], device.name) for device in self.devices if is_model(model, device.model)
        )

    def _whole(self, model: str) -> Iterable[list[str]]:
        """The names of devices that are all free, those of each model together."""
        found: dict[str, list[str]] = {}
        for device in self.devices:
            if self.parts[device.name] == WHOLE and is_model(model, device.model):
                found.setdefault(device.model, []).append(device.name)
        return found.values()

    def take(self, grant: Grant) -> Pool:
        return self._change((grant,), -1)

    def give(self, *grants: Grant) -> Pool:
        return self._change(grants, 1)

    def _change(self, grants: Iterable[Grant], sign: int) -> Pool:
        cpus, memory = self.cpus, self.memory
        parts, others = self.parts, self.others
        for grant in grants:
            amount = grant.amount
            cpus += sign * amount.cpus
            memory += sign * amount.memory
            if grant.shares:
                parts = {**parts} if parts is self.parts else parts
                for share in grant.shares:
                    # One that has vanished is nobody's any more.
                    if share.device in parts:
                        parts[share.device] += sign * share.amount
            if amount.others:
                others = {**others} if others is self.others else others
                for name, count in amount.others:
                    # Nor one that the settings name no more.
                    if name in others:
                        others[name] += sign * count
        most = self._most if parts is self.parts else {}
        return Pool(cpus, memory, self.devices, self.cores, parts, others, most)


def _first(entry: tuple[int, str]) -> int:
    return entry[0]


def all_of(capacity: Capacity) -> Pool:
    """The pool of a node that nobody has anything of."""
    cores = tuple(map(core_name, capacity.cores))
    parts = dict.fromkeys([*cores, *(device.name for device in capacity.devices)], WHOLE)
    return Pool(capacity.cpus, capacity.memory, capacity.devices, cores, parts, {**capacity.others})
