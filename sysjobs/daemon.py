"""The daemon: puts the parts together and runs the loop over sockets, systemd's signals and timers.

It may die at any instruction: what it promised is on disk, and the next start reconciles it with the units.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from sysjobs import introspection
from sysjobs.capacity import inventory
from sysjobs.config import Paths, Settings, read_settings
from sysjobs.drain import read_drain
from sysjobs.engine import Answer, ConnectionLost
from sysjobs.engine.enforcement import NO_DEVICE
from sysjobs.engine.files import JobFiles
from sysjobs.engine.systemd import Systemd
from sysjobs.errors import EXIT_FAILED, EXIT_OK, SysjobsError
from sysjobs.handlers import Handlers
from sysjobs.jobs import Job, Reason
from sysjobs.listener import Listener
from sysjobs.ports import StorageFailed
from sysjobs.queue import Queue
from sysjobs.room import FileSystems
from sysjobs.scheduling.backfill import Rules
from sysjobs.scheduling.fairshare import FairShares
from sysjobs.scheduling.waiting import Waiting
from sysjobs.server import Server
from sysjobs.service import Notifier
from sysjobs.store import Store
from sysjobs.store.database import damaged

log = logging.getLogger(__name__)

CHECK_EVERY = 60.0
"""Seconds between two looks at all units, for what no signal told. A reload is another one."""

RETRY = 1.0

NO_SYSTEMD = Reason("no-systemd", "Waits for systemd, which doesn't answer for now.")
NO_DATABASE = Reason("no-database", "Waits until the queue's database can be written again.")
STOPPING = Reason("stopping", "Waits for sysjobsd, which is being stopped.")


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> int:
        return time.monotonic_ns() // 1000


class Daemon:
    def __init__(self, paths: Paths, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._paths = paths
        self._loop = loop
        self._flushing: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._retrying: asyncio.TimerHandle | None = None
        self._status = ""
        self._notifier = Notifier()
        self._trouble = ""
        self._knocking: Answer | None = None
        # Why nothing can be written, as long as that is so.
        self._unwritable: str | None = None
        self._obstacle: Reason | None = None
        self._loaded = True
        self._gone = False
        self._stop = asyncio.Event()
        self._exit_code = EXIT_OK
        clock = SystemClock()
        files = self._files = JobFiles(paths.scripts, paths.logs)
        self._engine = Systemd(paths.systemd, files, paths.shutdown, settings)
        self._store = Store(paths.database)
        self._room = FileSystems(paths.database, paths.logs, paths.scripts)
        waiting = self._waiting = Waiting(clock, self._room, self._rules(settings))
        waiting.drain = read_drain(paths.drained)
        stock = inventory(settings)
        self._engine.access = stock.access
        self._queue = Queue(self._store, self._engine, stock.capacity, clock, self._wake, waiting)
        self._handlers = Handlers(
            self._queue, self._store, self._engine, files, settings, clock, paths, self._room, self._look
        )
        self.server = Server(self._handlers.table() | introspection.HANDLERS, self._queue.after_commit)

    async def run(self, sock: socket.socket) -> int:
        """Serve until SIGTERM or SIGINT; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop.set)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._loop.set_exception_handler(self._broken)
        self._loop.add_reader(self._engine.fileno(), self._take_events)
        self._start()
        listener = Listener(self._loop, sock, self.server)
        self._notifier.tell(f"READY=1\nSTATUS={self._describe()}", must=True)
        self._feed_watchdog()
        self._loop.call_later(CHECK_EVERY, self._check)
        try:
            await self._stop.wait()
        finally:
            self._notifier.tell("STOPPING=1")
            listener.close()
            if self._exit_code == EXIT_OK:
                self._wind_up()
        return self._exit_code

    def _wind_up(self) -> None:
        """Write what is known by now and start nothing more: what is open over a reboot counts as begun."""
        with contextlib.suppress(ConnectionLost):
            self._engine.note_shutdown()
        self._take_events()
        self._queue.disconnected(STOPPING)
        self._flush()

    def close(self) -> None:
        """Only when the loop has stopped: what is ready in its last round is still answered."""
        self._engine.close()
        self._store.close()

    def _broken(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A fault of ours: after one in a callback, what a new start makes is all that is known for sure."""
        loop.default_exception_handler(context)
        if "handle" in context:
            self._exit_code = EXIT_FAILED
            self._stop.set()

    # The engine

    def _start(self) -> None:
        """Read the queue, and take it up where the units are by now."""
        lost = None
        try:
            self._engine.connect()
        except ConnectionLost as error:
            lost = error
        try:
            self._queue.load()
            self._skip_ids()
        except self._store.failure as error:
            raise damaged(self._paths.database, error) from None
        if lost is None:
            if "memory" not in self._engine.controllers:
                log.warning("jobs can't be held to --memory: the cgroups here have no memory controller")
            self._reconcile()
        else:
            self._lost(lost)

    def _rules(self, settings: Settings) -> Rules:
        """Users' shares are counted anew, from what the database knows."""
        shares = None
        if (half_life := settings.fair_share_half_life) is not None:
            shares, now = FairShares(half_life), time.time()
            try:
                shares.recall(self._store.uses(now), now)
            except self._store.failure as error:
                log.warning("what users had before can't be read, so that it doesn't count: %s", error)
        return Rules(settings.limits, shares, keep_unmet=settings.unmet == "hold")

    def _skip_ids(self) -> None:
        """Give no job the number of one that a lost database has forgotten, and whose log is there."""
        last = self._store.last_id()
        highest = self._files.highest_log()
        if highest > last:
            log.warning("there are logs of jobs up to %d, the database knows jobs up to %d", highest, last)
            self._queue.reserve_ids(highest)

    def _lost(self, error: ConnectionLost) -> None:
        """systemd restarted itself or doesn't answer: go on without it until it does."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.warning("out of touch with systemd, so that no job starts or ends meanwhile: %s", error)
        self._queue.disconnected(NO_SYSTEMD)
        self._engine.close()
        self._retry(self._knock)

    def _retry(self, action: Callable[[], None]) -> None:
        when = self._loop.time() + RETRY
        if self._retrying is not None:
            # Not put off by whatever fails meanwhile.
            if self._retrying.when() > self._loop.time():
                when = self._retrying.when()
            self._retrying.cancel()
        self._retrying = self._loop.call_at(when, action)

    def _knock(self) -> None:
        """Connect once systemd answers, which may take it as long as it wants: everything else goes on."""
        if self._knocking is not None:
            return
        try:
            self._knocking = self._engine.knock()
        except ConnectionLost as error:
            self._lost(error)
            return
        self._loop.add_reader(self._knocking.fileno(), self._answered, self._knocking)

    def _answered(self, knocking: Answer) -> None:
        self._loop.remove_reader(knocking.fileno())
        knocking.close()
        self._knocking = None
        try:
            self._engine.connect()
        except ConnectionLost as error:
            self._lost(error)
            return
        self._trouble = ""
        log.warning("connected to systemd again")
        self._reconcile()

    def _reconcile(self) -> None:
        if self._loaded:
            self._guarded(self._queue.reconcile)
        else:
            self._recover()

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except ConnectionLost as error:
            self._lost(error)

    def _take_events(self) -> None:
        self._guarded(self._read_events)

    def _read_events(self) -> None:
        for seen in self._engine.events():
            # While offline they are read and dropped: a reconciliation follows.
            if self._queue.online:
                self._queue.observed(seen)

    def _check(self) -> None:
        self._loop.call_later(CHECK_EVERY, self._check)
        self._look()

    def _take_stock(self, settings: Settings) -> None:
        """See what the node has by now: a device may have vanished, or have come back. Raises ConfigError."""
        stock, holdings = inventory(settings), self._queue.holdings
        stock.access.refuse_renamed(self._engine.access, holdings.devices())
        if stock.capacity == holdings.capacity and stock.access == self._engine.access:
            return
        for text in stock.capacity.notes:
            if text not in holdings.capacity.notes:
                log.warning("%s", text)
        for device, why in stock.capacity.out_of_use:
            if (device, why) not in holdings.capacity.out_of_use:
                log.warning("%s %s is out of use: %s", device.model, device.name, why)
        self._engine.access = stock.access
        holdings.resize(stock.capacity)
        self._wake()

    def _look(self, tell: Callable[[Job], None] = lambda job: None) -> None:
        """See whether all is as the signals said; `tell` of the jobs with which it wasn't."""
        self._take_events()
        try:
            self._take_stock(self._handlers.settings)
        except SysjobsError as error:
            log.error("what this node has can't be told: %s", error.message)
        if self._queue.online:
            self._guarded(lambda: self._queue.check(tell))
        # And whether our files are still there, after the next commit.
        self._wake()
        self._tell_status()

    # The loop

    def _wake(self) -> None:
        """Have the queue flushed once all that is ready in this round of the loop has been taken in."""
        if self._flushing is None:
            self._flushing = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = None
        if self._gone:
            # What is written now would be lost; whoever asked asks again.
            return
        try:
            self._guarded(self._queue.flush)
        except StorageFailed as error:
            self._write_failed(str(error))
        else:
            self._written()
            self._see_to_files()
        if self._engine.has_events:
            self._take_events()
        self._arm()

    def _write_failed(self, why: str) -> None:
        """Until it can be written again jobs run on, requests are refused, and units that ended are kept."""
        if why != self._unwritable:
            log.error("the database can't be written, trying again: %s", why)
            self._unwritable = why
            self._tell_status()
        self._recover()

    def _recover(self) -> None:
        """After a failed commit: take up again what is on disk, and a little later what the units say."""
        self._queue.disconnected(NO_DATABASE)
        self._loaded = False
        try:
            self._queue.load()
        except self._store.failure as error:
            if str(error) != self._unwritable:
                log.error("the database can't be read, trying again: %s", error)
                self._unwritable = str(error)
            self._retry(self._recover)
            return
        self._loaded = True
        self._retry(self._reconcile)

    def _written(self) -> None:
        obstacle = self._waiting.obstacle
        if obstacle is not self._obstacle:
            if (obstacle and obstacle.code) != (self._obstacle and self._obstacle.code):
                log.warning("%s", obstacle.text if obstacle else "jobs can be started again")
            if obstacle is not None and obstacle.code == NO_DEVICE:
                # So that no other job is given it.
                self._loop.call_soon(self._look)
            self._obstacle = obstacle
        # After a failure the first commit of a queue that is online again is a real one.
        if self._unwritable is not None and self._queue.online:
            log.warning("the database can be written again")
            self._unwritable = None
            self._tell_status()

    def _see_to_files(self) -> None:
        """Where somebody removed what is written to, have it made again by another start; jobs run on."""
        gone = self._room.replaced()
        if gone is None or self._gone:
            return
        self._gone = True
        log.error("%s was removed or replaced while in use; sysjobsd starts again", gone)
        database = self._paths.database
        for place in () if database.exists() else (database, self._paths.rescued):
            try:
                self._store.write_copy(place)
                break
            except (OSError, self._store.failure) as error:
                log.error("the queue can't be saved to %s: %s", place, error)
        self._exit_code = EXIT_FAILED
        self._stop.set()

    def _arm(self) -> None:
        """Set the timer for the queue's next deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        when = self._queue.next_time() if self._queue.online else None
        if when is not None:
            # The loop's clock is CLOCK_MONOTONIC, as the deadlines are.
            self._timer = self._loop.call_at(when / 1_000_000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._queue.online:
            self._guarded(self._queue.tick)

    # The service

    def _reload(self) -> None:
        try:
            settings = read_settings(self._paths.settings)
            self._take_stock(settings)
        except SysjobsError as error:
            log.error("settings are kept as they were: %s %s", error.message, error.hint)
            return
        self._waiting.rules = self._rules(settings)
        self._handlers.settings = settings
        self._engine.set_up(settings)
        log.info("settings were read again")
        # Whoever reloads it when something looks wrong wants it to look, too.
        self._look()

    def _feed_watchdog(self) -> None:
        period = int(os.environ.get("WATCHDOG_USEC", 0)) / 1_000_000
        if period:
            self._notifier.tell("WATCHDOG=1")
            self._loop.call_later(period / 3, self._feed_watchdog)

    def _describe(self) -> str:
        running, waiting = len(self._queue.holdings), len(self._waiting)
        trouble = "" if self._unwritable is None else f"; the database can't be written: {self._unwritable}"
        return f"{running} running, {waiting} waiting{trouble}"

    def _tell_status(self) -> None:
        status = self._describe()
        if status != self._status:
            self._status = status
            self._notifier.tell(f"STATUS={status}")
