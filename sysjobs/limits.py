"""How much one user may have at once, and all of them together, as the administrator sets it."""

from __future__ import annotations

from dataclasses import dataclass

from sysjobs.devices import format_gpus
from sysjobs.errors import Refused
from sysjobs.resources import Amount, Total, format_cpus, format_memory


@dataclass(frozen=True, slots=True)
class Limits:
    """None: as much as there is."""

    highest_priority: int | None = None
    """Of a user's job; root is free to choose."""
    pending: int | None = None
    pending_per_user: int | None = None
    running: int | None = None
    running_per_user: int | None = None
    cpus_per_user: int | None = None
    """In thousandths."""
    memory_per_user: int | None = None
    """In bytes."""
    gpus_per_user: int | None = None
    """In thousandths."""

    def refuse_pending(self, users: int, everybodys: int) -> None:
        """Raise Refused for one more job of a user who has so many waiting."""
        if self.pending_per_user is not None and users >= self.pending_per_user:
            raise Refused(
                f"You have {users:,} jobs waiting, and nobody may have more than {self.pending_per_user:,}.",
                "Submit more when some have started, or cancel some; "
                "the administrator sets pending-per-user in [limits].",
                code="too-many-pending",
            )
        if self.pending is not None and everybodys >= self.pending:
            raise Refused(
                f"{everybodys:,} jobs are waiting, and here no more may than {self.pending:,}.",
                "Submit when some have started; the administrator sets pending in [limits].",
                code="too-many-pending",
            )

    def refuse_priority(self, asked: int, uid: int) -> None:
        if uid != 0 and self.highest_priority is not None and asked > self.highest_priority:
            raise Refused(
                f"--priority {asked} is more than the {self.highest_priority} that a user may give.",
                "Give no more than that; the administrator sets highest-priority in [limits].",
                code="too-high-priority",
            )

    def refuse_amount(self, asked: Amount) -> None:
        """Raise Refused for a job that alone is more than a user may have."""
        said, key = "", ""
        if self.cpus_per_user is not None and asked.cpus > self.cpus_per_user:
            most = format_cpus(self.cpus_per_user)
            said, key = f"--cpus {format_cpus(asked.cpus)} is more than the {most}", "cpus-per-user"
        elif self.memory_per_user is not None and asked.memory > self.memory_per_user:
            most = format_memory(self.memory_per_user)
            said, key = f"--memory {format_memory(asked.memory)} is more than the {most}", "memory-per-user"
        elif self.gpus_per_user is not None and asked.gpus > self.gpus_per_user:
            most, gpus = format_gpus(self.gpus_per_user), format_gpus(asked.gpus, asked.model)
            said, key = f"--gpus {gpus} is more than the {most}", "gpus-per-user"
        if key:
            raise Refused(
                f"{said} that a user may have at once.",
                f"Ask for no more than that; the administrator sets {key} in [limits].",
                code="infeasible",
            )

    def full(self, running: int) -> str | None:
        """Why no job can start at all, where so many run."""
        if self.running is None or running < self.running:
            return None
        if not self.running:
            return "No job starts here for now (running is 0 in [limits])."
        return (
            f"Waits for others to end: {running:,} run, and here no more may at once (running in [limits])."
        )

    def broken(self, running: int, has: Total, asked: Amount) -> str | None:
        """Why a user of whom so many run, with so much, can't have another one that asks for so much."""
        if (alone := self._beyond(asked)) is not None:
            return alone
        if self.running_per_user is not None and running >= self.running_per_user:
            why, key = f"{running:,} run", "running-per-user"
        elif self.cpus_per_user is not None and has.cpus + asked.cpus > self.cpus_per_user:
            of_all = f"{format_cpus(has.cpus)} of the {format_cpus(self.cpus_per_user)} CPUs"
            why, key = f"they have {of_all} that a user may have", "cpus-per-user"
        elif self.memory_per_user is not None and has.memory + asked.memory > self.memory_per_user:
            of_all = f"{format_memory(has.memory)} of the {format_memory(self.memory_per_user)} of memory"
            why, key = f"they have {of_all} that a user may have", "memory-per-user"
        elif self.gpus_per_user is not None and has.gpus + asked.gpus > self.gpus_per_user:
            of_all = f"{format_gpus(has.gpus)} of the {format_gpus(self.gpus_per_user)} GPUs"
            why, key = f"they have {of_all} that a user may have", "gpus-per-user"
        else:
            return None
        return f"Waits for others of the same user to end: {why} at once ({key} in [limits])."

    def _beyond(self, asked: Amount) -> str | None:
        """Why a user can't have one of these, even with nothing else."""
        if self.running_per_user == 0:
            return "No job of a user starts here for now (running-per-user is 0 in [limits])."
        if self.cpus_per_user is not None and asked.cpus > self.cpus_per_user:
            most, key = f"CPUs than the {format_cpus(self.cpus_per_user)}", "cpus-per-user"
        elif self.memory_per_user is not None and asked.memory > self.memory_per_user:
            most, key = f"memory than the {format_memory(self.memory_per_user)}", "memory-per-user"
        elif self.gpus_per_user is not None and asked.gpus > self.gpus_per_user:
            most, key = f"GPUs than the {format_gpus(self.gpus_per_user)}", "gpus-per-user"
        else:
            return None
        more = f"{most} that a user may have by now ({key} in [limits])"
        return f"Asks for more {more}: cancel it, or wait for more."
