"""The Python client: submit jobs, list and watch them, cancel them.

    from sysjobs.client import Client

    with Client() as client:
        job = client.submit(["python", "train.py"], cpus=2, memory="4G", time="1h")
        for state in client.watch([job]):
            print(state.status, state.reason)

Every method raises a `sysjobs.errors.SysjobsError` whose code, message and hint say what went
wrong. A client is for one thread at a time.
"""

from __future__ import annotations

import os
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from sysjobs.caller import Caller
from sysjobs.connection import Connection, Lost, NotListening, Patience, request
from sysjobs.context import capture, resolve_workdir, wire_env, wire_text, wire_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from sysjobs.answers import Changed, JobDetails, JobView, Listing, NodeState, ReportRow

    Text = str | bytes
    Replies = Sequence[dict[str, Any]]


class Client(Caller):
    """What can be asked of sysjobsd; see `Caller` for how."""

    _WATCH_PATIENCE = 60.0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self,
        command: Sequence[Text] | None = None,
        *,
        shell: Text | None = None,
        name: str | None = None,
        cpus: float | None = None,
        memory: str | int | None = None,
        gpus: str | float | None = None,
        resources: Mapping[str, int] | None = None,
        cpu_limit: str | None = None,
        priority: int | None = None,
        time: str | float | None = None,
        grace: str | float | None = None,
        signal: str | None = None,
        setup: Text | None = None,
        workdir: Text | os.PathLike[str] | None = None,
        env: Mapping[str, Text] | None = None,
        hold: bool = False,
        begin: datetime | None = None,
        after: Iterable[int | str] = (),
        afterok: Iterable[int | str] = (),
        afterany: Iterable[int | str] = (),
        afternotok: Iterable[int | str] = (),
        singleton: bool = False,
        array: str | None = None,
        params: Mapping[str, Text] | None = None,
        retries: int | None = None,
        retry_delay: str | float | None = None,
        retry_on: Iterable[str | int] = (),
        export: bool = True,
        key: str | None = None,
    ) -> int:
        """Submits `command`, or `shell` run by bash -c, and returns the job's id; the job is then on disk.

        The job gets this process's directory, umask, soft limits and, unless `export` is false, environment;
        `env` adds variables. It waits until it is released (`hold`), until a time (`begin`), until other jobs
        have begun (`after`), or ended well, in any way, or otherwise. `array` ("0-99%10") makes it many
        tasks, `params` ({"lr": "0.1,0.01", "seed": "1-5"}) one for each combination of their values. After a
        failure it begins again, `retries` times at most, where the exit code or the cause is in `retry_on`.
        Two calls with the same `key` make one job. What of it this node can't enforce is in `warnings` then.
        """
        spec: dict[str, object] = {
            "command": None if command is None else [wire_text(argument) for argument in command],
            "shell": None if shell is None else wire_text(shell),
            "name": name,
            "cpus": cpus,
            "memory": None if memory is None else str(memory),
            "gpus": None if gpus is None else str(gpus),
            "resources": resources or None,
            "cpu_limit": cpu_limit,
            "priority": priority,
            "time": None if time is None else str(time),
            "grace": None if grace is None else str(grace),
            "signal": signal,
            "setup": None if setup is None else wire_text(setup),
            "workdir": wire_text(resolve_workdir(workdir)),
            "env": None if env is None else wire_env(env),
            "hold": hold or None,
            "begin": wire_time(begin),
            "after": [str(job) for job in after] or None,
            "afterok": [str(job) for job in afterok] or None,
            "afterany": [str(job) for job in afterany] or None,
            "afternotok": [str(job) for job in afternotok] or None,
            "singleton": singleton or None,
            "array": array,
            "retries": retries,
            "retry_delay": None if retry_delay is None else str(retry_delay),
            "retry_on": [str(each) for each in retry_on] or None,
            "params": [wire_text(_param(*param)) for param in (params or {}).items()] or None,
        }
        reply = self._call(
            "Submit",
            {
                "job": {option: value for option, value in spec.items() if value is not None},
                "context": capture(export=export),
                "key": key or os.urandom(16).hex(),
            },
        )
        self.warnings = [str(text) for text in reply[-1].get("warnings") or ()]
        job_id = reply[-1].get("id")
        if not isinstance(job_id, int):
            raise self._unexpected("id isn't an integer")
        return job_id

    def list(
        self,
        ids: Iterable[int | str] | None = None,
        *,
        all_users: bool = False,
        statuses: Iterable[str] | None = None,
        unfinished: bool = False,
        limit: int = 1000,
        tasks: bool = False,
    ) -> Listing:
        """Jobs by id, the newest `limit` of them (0: all); the caller's own unless `all_users`.

        With `tasks` those of arrays in their place.
        """
        from sysjobs.answers import JobView, Listing

        replies = self._call(
            "List",
            {
                "ids": None if ids is None else [str(job_id) for job_id in ids],
                "all_users": all_users,
                "statuses": None if statuses is None else [*statuses],
                "unfinished": unfinished,
                "limit": limit,
                "tasks": tasks or None,
            },
            more=True,
        )
        jobs = [job for reply in replies for job in self._views(JobView, reply.get("jobs"))]
        left_out = replies[-1].get("left_out")
        return Listing(jobs, left_out if isinstance(left_out, int) else 0, _damaged(replies))

    def show(self, job_id: int | str) -> JobDetails:
        """All that is known of one job."""
        from sysjobs.answers import JobDetails

        reply = self._call("Show", {"id": str(job_id)})
        return self._view(JobDetails, reply[-1].get("details"))

    def cancel(
        self,
        ids: Iterable[int | str] | None = None,
        *,
        all_jobs: bool = False,
        all_users: bool = False,
        reason: str | None = None,
        grace: str | float | None = None,
    ) -> Changed:
        """Cancels these, or `all_jobs` of the caller (of `all_users`, for root) that haven't ended.

        Tells what became of each.
        """
        return self._change(
            "Cancel",
            ids,
            {
                "all": all_jobs or None,
                "all_users": all_users or None,
                "reason": reason,
                "grace": None if grace is None else str(grace),
            },
        )

    def requeue(
        self,
        ids: Iterable[int | str],
        *,
        reason: str | None = None,
        grace: str | float | None = None,
    ) -> Changed:
        """Ends jobs that run, and has them begin again with another attempt."""
        options = {"reason": reason, "grace": None if grace is None else str(grace)}
        return self._change("Requeue", ids, options)

    def hold(self, ids: Iterable[int | str]) -> Changed:
        """Keeps jobs that haven't started from doing so, until they are released."""
        return self._change("Hold", ids, {})

    def release(self, ids: Iterable[int | str]) -> Changed:
        """Lets jobs go on that were held."""
        return self._change("Release", ids, {})

    def signal(self, ids: Iterable[int | str], signal: str, *, everybody: bool = False) -> Changed:
        """Sends a signal ("USR1") to the main process of jobs that run, or to all of their processes."""
        return self._change("Signal", ids, {"signal": signal, "everybody": everybody or None})

    def set(
        self,
        ids: Iterable[int | str],
        *,
        priority: int | None = None,
        time: str | float | None = None,
        cpus: float | None = None,
        memory: str | int | None = None,
        gpus: str | float | None = None,
        array_limit: int | None = None,
    ) -> Changed:
        """Changes what jobs asked for that wait, or the time limit ("none": none) of jobs that run.

        `array_limit` is how many tasks of an array may run at a time; 0: as many as fit.
        """
        return self._change(
            "Set",
            ids,
            {
                "priority": priority,
                "time": None if time is None else str(time),
                "cpus": cpus,
                "memory": None if memory is None else str(memory),
                "gpus": None if gpus is None else str(gpus),
                "array_limit": array_limit,
            },
        )

    def _change(self, method: str, ids: Iterable[int | str] | None, more: Mapping[str, object]) -> Changed:
        from sysjobs.answers import Changed, ChangeResult

        texts = None if ids is None else [str(job_id) for job_id in ids]
        reply = self._call(method, {"ids": texts, **more})[-1]
        missing = [str(text) for text in reply.get("missing") or ()]
        return Changed([*self._views(ChangeResult, reply.get("results"))], missing, _damaged([reply]))

    def node(self) -> NodeState:
        """What the node has for jobs, and who uses it."""
        from sysjobs.answers import NodeState

        return self._view(NodeState, self._call("Node", {})[-1].get("node"))

    def report(
        self,
        by: str = "user",
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        all_users: bool = False,
    ) -> Sequence[ReportRow]:
        """Sums of the caller's jobs (of `all_users`) that ended, by user, name or day."""
        from sysjobs.answers import ReportRow

        span = {"since": wire_time(since), "until": wire_time(until)}
        reply = self._call("Report", {"by": by, "all_users": all_users or None, **span})
        return [*self._views(ReportRow, reply[-1].get("rows"))]

    def drain(self, reason: str | None = None) -> None:
        """Lets no job start until `resume()`; for root."""
        self._call("Drain", {"reason": reason})

    def resume(self) -> None:
        self._call("Resume", {})

    def check(self) -> tuple[dict[str, str], ...]:
        """What the daemon finds wrong with the node: subject, level, text, advice.

        A level is ok, mended (just now, which is done for root), warning or problem.
        """
        found = self._call("Check", {})[-1].get("findings")
        return tuple({str(key): str(value) for key, value in each.items()} for each in found or ())

    def watch(self, ids: Iterable[int | str]) -> Iterator[JobView]:
        """The state of each of these jobs now, and again after every change, until all have ended."""
        for job in self.follow(ids, tick=3600.0):
            if job is not None:
                yield job

    def follow(self, ids: Iterable[int | str], tick: float) -> Iterator[JobView | None]:
        """Like `watch()`, and None whenever nothing was heard for `tick` seconds."""
        from sysjobs.answers import JobView

        wanted = self._resolve([str(job_id) for job_id in ids])
        seen: dict[str, JobView] = {}
        patience = Patience(self._CONNECT_PATIENCE)
        while True:
            try:
                with Connection(self.socket, self.timeout) as connection:
                    connection.send(request("Watch", {"ids": wanted}, more=True))
                    for message in self._messages(connection, tick):
                        if message is None:
                            yield None
                            continue
                        job = self._view(JobView, self._parameters(message, "Watch").get("job"))
                        patience = Patience(self._WATCH_PATIENCE)
                        if seen.get(job.label) != job:
                            seen[job.label] = job
                            yield job
                return
            except NotListening as error:
                failure: Exception = error
            except Lost as error:
                patience = patience.at_least(self._LOST_PATIENCE)
                failure = error
            pause = patience.next_pause()
            if pause is None:
                raise self._gone(failure)
            while pause > 0:
                sleep(min(pause, tick))
                pause -= tick
                yield None

    def _messages(self, connection: Connection, tick: float) -> Iterator[dict[str, object] | None]:
        """The replies to one call with `more`; None at every tick. Only the first one has to come in time."""
        deadline: float | None = monotonic() + self.timeout
        while True:
            message = connection.receive(tick if deadline is None else min(tick, self.timeout))
            if message is not None:
                deadline = None
            elif deadline is not None and monotonic() >= deadline:
                raise connection.silent()
            yield message
            if message is not None and not message.get("continues"):
                return

    def _resolve(self, ids: Sequence[str]) -> Sequence[str]:
        """Numbers for the rest: after a reconnect, "@" or a name might mean another job."""
        resolved = []
        for text in ids:
            if text[:1].isdecimal() and not text.strip("0123456789_-[],:%"):
                resolved.append(text)
            else:
                found = self.list([text], limit=0)
                resolved += [*(job.label for job in found.jobs), *map(str, found.damaged)]
        return resolved


def _param(name: str, values: Text) -> bytes:
    return os.fsencode(name) + b"=" + os.fsencode(values)


def _damaged(replies: Replies) -> list[int]:
    return sorted(int(job_id) for reply in replies for job_id in reply.get("damaged") or ())
