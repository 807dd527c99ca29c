"""``python -m hexad``: the command line, also under torchrun."""

from hexad.cli.main import main

main()
