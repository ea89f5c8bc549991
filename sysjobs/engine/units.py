"""Pure: a job's unit as properties for systemd, and systemd's properties as a typed `Unit`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

from sysjobs.devices import core_number
from sysjobs.jobs import Job

Property = tuple[str, str, object]
"""Name, D-Bus signature, value; sequences are tuples, so that it can be hashed."""

INFINITY = 2**64 - 1
TASKS_MAX = 32768
EXITED, DUMPED = 1, 3
"""systemd's ExecMainCode: CLD_EXITED and its kin; the other one, 2, is a signal without a core."""

LOG_LEVELS = {"failures": 5, "all": 6}
"""LogLevelMax= for what systemd may say of jobs' units. Its word that it sent a signal because somebody asked
for that, as `systemctl kill` does, comes only with all their comings and goings, some kB of journal a job."""

_USER_SLICE = re.compile(r"sysjobs-u(\d{1,10})\.slice", re.ASCII)
_UNIT = re.compile(r"sysjobs-([1-9]\d{0,17})\.service", re.ASCII)


@dataclass(frozen=True, slots=True)
class Unit:
    """A service as systemd shows it. Codes are 0 and times None where it has nothing to say."""

    active_state: str = "inactive"
    sub_state: str = "dead"
    result: str = "success"
    invocation_id: str | None = None
    main_code: int = 0
    main_status: int = 0
    main_pid: int = 0
    main_started_at: int | None = None
    main_exited_at: int | None = None
    changed_at: int | None = None
    setup_code: int = 0
    setup_status: int = 0
    setup_pid: int = 0
    log_level: int | None = None
    """What systemd may say of it, -1: all; None: that wasn't read."""
    has_job: bool = False
    # The same moments in CLOCK_MONOTONIC.
    main_exited_monotonic: int | None = None
    changed_monotonic: int | None = None

    @property
    def main_ended(self) -> bool:
        return self.main_code != 0

    @property
    def signalled(self) -> bool:
        """A signal ended its main process or its setup."""
        return max(self.main_code, self.setup_code) > EXITED

    @property
    def tells_all(self) -> bool:
        """systemd says of it what it was asked to send to it."""
        return self.log_level is not None and not 0 <= self.log_level < LOG_LEVELS["all"]

    @property
    def over(self) -> bool:
        """systemd is done with it: no process of it is left that systemd could do anything about.

        A unit that is just being started shows as inactive too, but with a job to start it.
        """
        return self.active_state == "failed" or (self.active_state == "inactive" and not self.has_job)

    @property
    def exited(self) -> bool:
        """It ended well, and is there to tell (RemainAfterExit=)."""
        return (self.active_state, self.sub_state) == ("active", "exited")

    @property
    def stopping(self) -> bool:
        return self.active_state == "deactivating"


def user_slice(uid: int) -> str:
    return f"sysjobs-u{uid}.slice"


def user_of(slice_: str) -> int | None:
    """'sysjobs-u1000.slice' -> 1000; None for another one."""
    match = _USER_SLICE.fullmatch(slice_)
    return int(match[1]) if match else None


def slice_name(uid: int, shard: int) -> str:
    return f"sysjobs-u{uid}-{shard}.slice"


def cgroup_path(job: Job) -> str:
    """The job's cgroup below the root of the system manager's tree."""
    assert job.shard is not None
    return f"sysjobs.slice/{user_slice(job.uid)}/{slice_name(job.uid, job.shard)}/{job.unit}"


def job_id_of(unit: str) -> int | None:
    """'sysjobs-42.service' -> 42; None for what isn't a job's unit."""
    match = _UNIT.fullmatch(unit)
    return int(match[1]) if match else None


def cores_of(job: Job) -> set[int]:
    """The CPUs that it is kept to; none: it isn't."""
    return {number for share in job.shares if (number := core_number(share.device)) is not None}


@dataclass(frozen=True, slots=True)
class Confines:
    """What a node has a job's unit held to besides what the job asked for.

    `weight` is that of its CPUs; `devices` are those that it may open, None: all; `io` tells whether what it
    does with disks is counted; `log_level` is the least important that the journal is told of it.
    """

    weight: int
    devices: tuple[str, ...] | None = None
    io: bool = False
    log_level: int = LOG_LEVELS["failures"]


def properties(job: Job, run: str, setup: str | None, log: str, confines: Confines) -> list[Property]:
    """The transient unit of a job whose start script is at `run` (and setup's at `setup`)."""
    assert job.shard is not None
    wanted: list[Property] = [
        ("Description", "s", f"sysjobs job {job.label}: {printable(job.name)} ({printable(job.user)})"),
        ("Documentation", "as", (f"file:{quote(log)}",)),
        ("Slice", "s", slice_name(job.uid, job.shard)),
        ("DefaultDependencies", "b", False),
        # At a shutdown the job is told at once, not after everything else has ended.
        ("Conflicts", "as", ("shutdown.target",)),
        ("Before", "as", ("shutdown.target",)),
        ("Type", "s", "exec"),
        # The outcome stays to be read until the queue has it on disk.
        ("RemainAfterExit", "b", True),
        ("User", "s", str(job.uid)),
        ("Group", "s", str(job.gid)),
        ("ExecStart", "a(sasb)", (("/bin/sh", ("/bin/sh", run), False),)),
        ("StandardOutput", "s", "null"),
        ("StandardError", "s", "null"),
        ("TimeoutStartUSec", "t", INFINITY),
        ("TimeoutStopUSec", "t", max(1, int(job.grace * 1_000_000))),
        ("OOMPolicy", "s", "stop"),
        ("IgnoreSIGPIPE", "b", False),
        ("LogLevelMax", "i", confines.log_level),
        ("TasksMax", "t", TASKS_MAX),
        ("CPUWeight", "t", confines.weight),
    ]
    if setup is not None:
        wanted.append(("ExecStartPre", "a(sasb)", (("/bin/sh", ("/bin/sh", setup), False),)))
    if job.amount.memory:
        wanted += [("MemoryMax", "t", job.amount.memory), ("MemorySwapMax", "t", 0)]
    if job.hard_cpus:
        wanted.append(("CPUQuotaPerSecUSec", "t", job.amount.cpus * 1000))
    if cores := cores_of(job):
        wanted.append(
            ("AllowedCPUs", "ay", sum(1 << core for core in cores).to_bytes(max(cores) // 8 + 1, "little"))
        )
    if confines.io:
        wanted.append(("IOAccounting", "b", True))
    if confines.devices is not None:
        wanted += [
            ("DevicePolicy", "s", "closed"),
            ("DeviceAllow", "a(ss)", tuple((device, "rwm") for device in confines.devices)),
        ]
    return wanted


def printable(text: str) -> str:
    """Text with whatever could break a line or a terminal shown as an escape."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def updated(unit: Unit, changes: Mapping[str, object]) -> Unit:
    """The unit after changes as systemd gives them: whole property sets or only what changed."""
    fields: dict[str, object] = {}
    for name, (field, convert) in _FIELDS.items():
        if name in changes:
            fields[field] = convert(changes[name])
    pre = changes.get("ExecStartPre")
    if isinstance(pre, list) and pre:
        # path, argv, ignore, start, its monotonic twin, exit, its twin, pid, code, status
        fields["setup_pid"], fields["setup_code"], fields["setup_status"] = pre[0][7:10]
    return replace(unit, **fields)  # type: ignore[arg-type]


def _text(value: object) -> str:
    assert isinstance(value, bytes)
    return value.decode("utf-8", "replace")


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _has_job(value: object) -> bool:
    assert isinstance(value, tuple)
    return bool(value[0])


def _time(value: object) -> int | None:
    assert isinstance(value, int)
    return value or None


def _id(value: object) -> str | None:
    return bytes(value).hex() if isinstance(value, list) and value else None


_FIELDS = {
    "ActiveState": ("active_state", _text),
    "SubState": ("sub_state", _text),
    "Job": ("has_job", _has_job),
    "Result": ("result", _text),
    "InvocationID": ("invocation_id", _id),
    "LogLevelMax": ("log_level", _number),
    "ExecMainCode": ("main_code", _number),
    "ExecMainStatus": ("main_status", _number),
    "ExecMainPID": ("main_pid", _number),
    "ExecMainStartTimestamp": ("main_started_at", _time),
    "ExecMainExitTimestamp": ("main_exited_at", _time),
    "StateChangeTimestamp": ("changed_at", _time),
    "ExecMainExitTimestampMonotonic": ("main_exited_monotonic", _time),
    "StateChangeTimestampMonotonic": ("changed_monotonic", _time),
}
