"""The command line. Here is its entry; `app` has the commands' list, one file each group of commands."""

from __future__ import annotations

import sys

EXIT_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    try:
        # Within the try, for Ctrl-C may come while Python still imports.
        from sysjobs.cli.app import run

        return run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
