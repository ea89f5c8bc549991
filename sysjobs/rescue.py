"""A database that is damaged, or was removed while in use: what sysjobsd does about it before it serves."""

from __future__ import annotations

import logging
import os
import shutil
import time

from sysjobs.config import Paths
from sysjobs.engine.files import JobFiles
from sysjobs.selectors import ranges
from sysjobs.store.repair import repair
from sysjobs.store.reserve import forget_log

log = logging.getLogger(__name__)


def repair_database(paths: Paths) -> None:
    """What `sysjobsd --repair` does, and says."""
    os.umask(0o077)
    highest = JobFiles(paths.scripts, paths.logs).highest_log()
    done = repair(paths.database, highest, time.strftime("%Y%m%d-%H%M%S"))
    if done.kept is None:
        log.info("%s is whole: %d jobs can be read", paths.database, done.saved)
        return
    log.warning("%s was damaged: %s", paths.database, done.wrong)
    log.warning("it is kept as %s; a new one has the %d jobs that could be read", done.kept, done.saved)
    if done.lost:
        log.warning("of these numbers no job could be read: %s", ranges(done.lost))
    log.info("`systemctl start sysjobsd` takes it up")


def put_back(paths: Paths) -> None:
    """The database that was removed under the last daemon, directory and all, back to its place."""
    if paths.rescued.exists():
        if not paths.database.exists():
            made = paths.database.with_name(f"{paths.database.name}.new")
            shutil.copyfile(paths.rescued, made)
            made.rename(paths.database)
            forget_log(paths.database)
            log.warning("%s was put back", paths.database)
        paths.rescued.unlink()
