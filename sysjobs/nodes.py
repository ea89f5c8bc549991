"""Calls about the node: what it has and who uses it, and whether jobs may start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from sysjobs.config import Paths
from sysjobs.devices import WHOLE, Device
from sysjobs.drain import read_drain, write_drain
from sysjobs.errors import Denied, Unavailable
from sysjobs.ports import Clock
from sysjobs.protocol import Call, Params
from sysjobs.queue import Queue
from sysjobs.scheduling.waiting import Drain
from sysjobs.server import Exchange


@dataclass(slots=True)
class Nodes:
    queue: Queue
    clock: Clock
    paths: Paths

    def table(self) -> dict[str, Callable[[Exchange, Call], None]]:
        return {
            "io.sysjobs.Node": self.node,
            "io.sysjobs.Drain": self.drain,
            "io.sysjobs.Resume": self.resume,
        }

    def node(self, exchange: Exchange, call: Call) -> None:
        Params(call.parameters, frozenset())
        holdings, waiting = self.queue.holdings, self.queue.waiting
        capacity, free = holdings.capacity, holdings.free
        more = self._more_tasks()
        state: dict[str, object] = {
            "cpus": capacity.cpus / 1000,
            "memory": capacity.memory,
            "cpus_used": (capacity.cpus - free.cpus) / 1000,
            "memory_used": capacity.memory - free.memory,
            "devices": [
                *(_device(device, used=WHOLE - free.parts[device.name]) for device in capacity.devices),
                *(_device(device, why=why) for device, why in capacity.out_of_use),
            ],
            "resources": capacity.others,
            "resources_used": {name: count - free.others[name] for name, count in capacity.others.items()},
            "running": len(holdings),
            "waiting": len(waiting) + sum(more.values()),
            "users": self._users(more),
        }
        if (drain := waiting.drain) is not None:
            state |= {"drained_by": drain.user, "drained_at": drain.at, "drained_for": drain.reason}
        exchange.finish({"node": state})

    def _more_tasks(self) -> Counter[int]:
        """How many tasks of arrays wait besides the one that each array counts for, by user."""
        more: Counter[int] = Counter()
        for job in self.queue.jobs.values():
            if job.array is not None and job.waits:
                more[job.uid] += len(job.array.unstarted) - 1
        return more

    def _users(self, more: Counter[int]) -> list[dict[str, object]]:
        """Those who have jobs that run or wait."""
        holdings, waiting = self.queue.holdings, self.queue.waiting
        users = []
        for uid, name in sorted({(job.uid, job.user) for job in self.queue.jobs.values()}):
            running, has = holdings.of_user(uid)
            waits = waiting.of_user(uid) + more[uid]
            if running or waits:
                users.append(
                    {
                        "user": name, "uid": uid, "running": running, "waiting": waits,
                        "cpus": has.cpus / 1000, "memory": has.memory,
                        "gpus": has.gpus / WHOLE,
                    }
                )  # fmt: skip
        return users

    def drain(self, exchange: Exchange, call: Call) -> None:
        params = Params(call.parameters, frozenset(("reason",)))
        _only_root(exchange)
        before = self.queue.waiting.drain
        # Who says no reason leaves the one that was given.
        reason = params.reason("reason") or (before.reason if before is not None else "")
        self._set(exchange, Drain(exchange.peer.user or "root", self.clock.now(), reason))

    def resume(self, exchange: Exchange, call: Call) -> None:
        Params(call.parameters, frozenset())
        _only_root(exchange)
        self._set(exchange, None)

    def _set(self, exchange: Exchange, drain: Drain | None) -> None:
        try:
            write_drain(self.paths.drained, drain)
        except OSError as error:
            raise Unavailable(
                f"That can't be noted in {self.paths.drained}: {error.strerror}.",
                "See that its file system has room and is writable.",
                code="storage",
            ) from None
        self.queue.waiting.drain = read_drain(self.paths.drained)
        exchange.finish({})


def _device(device: Device, *, used: int = 0, why: str | None = None) -> dict[str, object]:
    state = {"name": device.name, "model": device.model, "used": used / WHOLE}
    return state | ({"uuid": device.uuid} if device.uuid else {}) | ({"out_of_use": why} if why else {})


def _only_root(exchange: Exchange) -> None:
    if not exchange.peer.is_root:
        raise Denied("Only root drains and resumes the node.", "Use sudo.", code="denied")
