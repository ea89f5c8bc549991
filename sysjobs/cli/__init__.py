"""The command line. Here is its entry; `app` has the list of commands, one file has each of them."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

EXIT_INTERRUPTED = 130


def main() -> NoReturn:
    """Runs the command line of this process and ends it.

    Most commands live for some 50 ms. A quarter of that would go into looking for garbage, of which there
    is none yet, and into taking Python down piece by piece; so neither is done.
    """
    gc.set_threshold(100_000)
    try:
        # Within the try, for Ctrl-C may come while Python still imports.
        from sysjobs.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    os._exit(code)
