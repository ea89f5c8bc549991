"""Sends this package to a machine, where it runs: `python3 -m tests.crash` in /opt."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from tests.node import Machine

_TESTS = Path(__file__).resolve().parent.parent
_NEEDED = ("__init__.py", "waiting.py", "crash")


def send(machine: Machine) -> None:
    archived = io.BytesIO()
    with tarfile.open(fileobj=archived, mode="w") as archive:
        for name in _NEEDED:
            archive.add(_TESTS / name, f"tests/{name}")
    machine.run(["tar", "-x", "-C", "/opt"], input=archived.getvalue())
