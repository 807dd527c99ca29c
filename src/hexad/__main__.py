"""``python -m hexad``: the command line."""

from hexad.cli.main import main

main()
