"""One command, hexad."""
