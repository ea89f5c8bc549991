"""sysjobs doctor."""

from __future__ import annotations

import click

from sysjobs.cli.output import emit, emit_json_list, printable
from sysjobs.client import Client
from sysjobs.errors import EXIT_FAILED, EXIT_OK, SysjobsError, Unreachable


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object for each finding.")
@click.pass_obj
def doctor(socket: str | None, as_json: bool) -> int:
    """Tell what this node can't do and what is wrong with it, and what to do about that.

    Exits with 1 if there is a problem. As root it checks the database too, its newest 100,000
    records one by one, and has sysjobsd look at all units again and remove start scripts of jobs that are
    gone: what that changes is called "mended". Units, logs and damaged records are left alone.

    \b
    Example:
      sudo sysjobs doctor
    """
    try:
        with Client(socket) as client:
            findings = client.check()
    except Unreachable as error:
        findings = tuple(_without_daemon(error))
    if as_json:
        emit_json_list(findings)
    else:
        for found in findings:
            emit(f"{found['level']:<8} {found['subject']:<9} {printable(found['text'])}")
            if found.get("advice"):
                emit(f"{'':18} {printable(found['advice'])}")
    return EXIT_FAILED if any(found["level"] == "problem" for found in findings) else EXIT_OK


def _without_daemon(error: Unreachable) -> list[dict[str, str]]:
    """What can be seen from here."""
    from sysjobs.capacity import inventory
    from sysjobs.config import SYSTEM, read_settings
    from sysjobs.room import FileSystems

    advice = f"{error.hint} For a damaged database there is `sysjobsd --repair`."
    found = [{"subject": "daemon", "level": "problem", "text": error.message, "advice": advice}]
    try:
        inventory(read_settings(SYSTEM.settings))
    except SysjobsError as wrong:
        # It doesn't start with these.
        found.append({"subject": "settings", "level": "problem", "text": wrong.message, "advice": wrong.hint})
    return [*found, *FileSystems(SYSTEM.database, SYSTEM.logs, SYSTEM.scripts).findings()]
