"""A later version of the package, made of this one's .deb: what an upgrade meets, and what it has to outlive.

It has a version of its own, a schema that is one further, a command for a method that this version's daemon
doesn't know, and answers with more in them than this version's client knows. The maintainer script that the
file KILL names kills dpkg, as an impatient administrator would.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

from sysjobs.store.database import SCHEMA_VERSION

VERSION = "99.0.0"
SCHEMA = SCHEMA_VERSION + 1
KILL = "/run/kill-dpkg"

_MIGRATION = "CREATE TABLE moods (job INTEGER, mood TEXT);\n"
_COMMAND = """
import click

from sysjobs.client import Client


@click.command()
@click.pass_obj
def ponder(socket):
    with Client(socket) as client:
        client._call("Ponder", {"id": "1"})
"""
_METHOD = """

def _ponder(exchange, call):
    exchange.finish({})


_table = Handlers.table
Handlers.table = lambda self: _table(self) | {"io.sysjobs.Ponder": _ponder}
"""
_VIEW = """

_job_view = job_view


def job_view(job, **more):
    return _job_view(job, **more) | {"mood": {"today": "good"}}
"""
_DIES = f"""#!/bin/sh
set -e
if [ "$(cat {KILL} 2>/dev/null)" = "$DPKG_MAINTSCRIPT_NAME" ]; then
    rm {KILL}
    kill -KILL $PPID
    exit 1
fi
"""


def newer_deb(deb: Path, folder: Path) -> Path:
    """The later version of `deb`, made in `folder`."""
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
    python = tree / "usr/lib/python3/dist-packages"
    package = python / "sysjobs"
    old = _replace(tree / "DEBIAN/control", r"(?m)^Version: (.*)$", f"Version: {VERSION}")
    _replace(package / "__init__.py", r'(__version__ =) "(.*)"', rf'\1 "{VERSION}"')
    (python / f"sysjobs-{old[1]}.dist-info").rename(python / f"sysjobs-{VERSION}.dist-info")
    _replace(package / "store/database.py", r"(?m)^SCHEMA_VERSION = \d+$", f"SCHEMA_VERSION = {SCHEMA}")
    (package / f"store/migrations/{SCHEMA:04}_moods.sql").write_text(_MIGRATION)
    _append(package / "store/schema.sql", _MIGRATION)
    (package / "cli/ponder.py").write_text(_COMMAND)
    _append(package / "cli/app.py", 'COMMANDS["ponder"] = ("sysjobs.cli.ponder", "Ponder a job.")\n')
    _append(package / "handlers.py", _METHOD)
    _append(package / "views.py", _VIEW)
    for name in ("preinst", "postinst"):
        script = tree / "DEBIAN" / name
        text = script.read_text() if script.exists() else ""
        script.write_text(_DIES + text.removeprefix("#!/bin/sh\n"))
        script.chmod(0o755)
    files = sorted(path for path in tree.rglob("*") if path.is_file() and path.parent.name != "DEBIAN")
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n" for path in files]
    (tree / "DEBIAN/md5sums").write_text("".join(sums))
    made = folder / f"sysjobs_{VERSION}_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, made], check=True, capture_output=True)
    return made


def _replace(path: Path, pattern: str, text: str) -> re.Match[str]:
    """Replaces the one match of the pattern, and returns it."""
    before = path.read_text()
    (match,) = re.finditer(pattern, before)
    path.write_text(before[: match.start()] + match.expand(text) + before[match.end() :])
    return match


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)
