"""`python -m sysjobs` is the command line too."""

from sysjobs.cli import main

main()
