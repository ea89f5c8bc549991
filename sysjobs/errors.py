"""Errors that reach people: what went wrong with which value, what to do, and the exit code."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3


class SysjobsError(Exception):
    """A refusal or failure with a `code` for programs, a `message` and a `hint` for people.

    `varlink` is the error's name on the wire, `exit_code` what the command line ends with.
    """

    varlink = "io.sysjobs.Refused"
    exit_code = EXIT_FAILED

    def __init__(self, message: str, hint: str = "", *, code: str = "refused") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class Refused(SysjobsError):
    """The request can't be met as it stands; the caller can mend it.

    A code that begins with "bad-" blames a value: to the command line that is wrong usage.
    """

    def __init__(self, message: str, hint: str = "", *, code: str = "refused") -> None:
        super().__init__(message, hint, code=code)
        if code.startswith("bad-"):
            self.exit_code = EXIT_USAGE


class UsageError(SysjobsError):
    """An option or argument of the command line is wrong."""

    exit_code = EXIT_USAGE


class NotFound(SysjobsError):
    """No such job."""

    varlink = "io.sysjobs.NotFound"


class Denied(SysjobsError):
    """The job belongs to somebody else."""

    varlink = "io.sysjobs.Denied"


class Unavailable(SysjobsError):
    """The daemon lives but can't do it now, for instance because the disk is full."""

    varlink = "io.sysjobs.Unavailable"


class Unreachable(SysjobsError):
    """The daemon can't be reached, or what answers there isn't one."""

    exit_code = EXIT_UNREACHABLE


class ConfigError(SysjobsError):
    """The settings file is wrong; the message names file and line."""


class StoreError(SysjobsError):
    """The database can't be used: written by a newer version, damaged, not writable."""


WIRE_ERRORS: dict[str, type[SysjobsError]] = {
    cls.varlink: cls for cls in (Refused, NotFound, Denied, Unavailable)
}
