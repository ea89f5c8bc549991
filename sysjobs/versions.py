"""What to say where the client and the daemon don't understand each other."""

from __future__ import annotations

import re

from sysjobs import __version__


def described(daemon: str) -> str:
    """Both sides of a misunderstanding."""
    return f"sysjobsd {daemon or 'of an unknown version'}, asked by sysjobs {__version__},"


def advice(daemon: str) -> str:
    """What to do when the two don't understand each other."""
    if daemon == __version__:
        return "They are of the same version, so this is a fault in sysjobs, or a value has the wrong type."
    if daemon and _numbers(daemon) > _numbers(__version__):
        return f"Install sysjobs {daemon} here too: this one is older than the daemon."
    return (
        "Have the daemon restarted, which harms no job: systemctl restart sysjobsd. "
        f"If it is {daemon or 'the same'} then too, upgrade its package."
    )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
