"""`python -m sysjobs` is the command line too."""

import sys

from sysjobs.cli import main

sys.exit(main())
