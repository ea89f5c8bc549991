"""sysjobsd, the command: to serve, to check the settings, to repair the database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import stat
import sys
from collections.abc import Sequence

from sysjobs import __version__
from sysjobs.capacity import inventory
from sysjobs.config import SYSTEM, Paths, read_settings
from sysjobs.daemon import Daemon
from sysjobs.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, SysjobsError
from sysjobs.rescue import put_back, repair_database
from sysjobs.service import listening_socket, start_logging

log = logging.getLogger(__name__)

EXIT_CONFIG = 78
"""Starting again won't help (EX_CONFIG); the unit has it in RestartPreventExitStatus=."""

_USAGE = """Usage: sysjobsd [--check | --repair | --version]
It is started by systemd: systemctl start sysjobsd.socket
With --check it reads the settings, says what is wrong with them, and ends. With --repair it saves what can be
read of a damaged database into a new one, and keeps the damaged file; the daemon has to be stopped for that.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        sys.stdout.write(f"sysjobsd {__version__}\n")
        return EXIT_OK
    if arguments in (["-h"], ["--help"]):
        sys.stdout.write(_USAGE)
        return EXIT_OK
    if arguments not in ([], ["--check"], ["--repair"]):
        sys.stderr.write(_USAGE)
        return EXIT_USAGE
    start_logging()
    try:
        if arguments == ["--repair"]:
            repair_database(SYSTEM)
            return EXIT_OK
        if arguments:
            inventory(read_settings(SYSTEM.settings))
            return EXIT_OK
        make_directories(SYSTEM)
        put_back(SYSTEM)
        loop = asyncio.new_event_loop()
        with (
            contextlib.closing(loop),
            contextlib.closing(Daemon(SYSTEM, read_settings(SYSTEM.settings), loop)) as daemon,
        ):
            return loop.run_until_complete(daemon.run(listening_socket(SYSTEM)))
    except SysjobsError as error:
        log.error("%s %s", error.message, error.hint)
        return EXIT_FAILED if arguments == ["--repair"] else EXIT_CONFIG
    except OSError as error:
        log.error("can't start: %s: %s", error.filename or "socket", error.strerror)
        return EXIT_FAILED
    return EXIT_OK


def make_directories(paths: Paths) -> None:
    for directory, mode in ((paths.database.parent, 0o700), (paths.scripts, 0o711), (paths.logs, 0o755)):
        directory.mkdir(parents=True, exist_ok=True)
        if stat.S_IMODE(directory.stat().st_mode) != mode:
            directory.chmod(mode)
