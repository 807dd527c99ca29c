"""JSON lines on disk: one row a line, forced to disk before it counts as written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from hexad.contract.digest import canonical_json
from hexad.contract.durable import disk_errors
from hexad.contract.faults import UserError

METRICS = "metrics.jsonl"
"""One row a batch: what it was like."""
LEDGER = "ledger.jsonl"
"""One row a batch: the books of the run up to it."""
EVALUATIONS = "evaluation.jsonl"
"""One row a closed-loop evaluation."""
HIDDEN = "hidden.jsonl"
"""One row a use of the hidden tasks; a resume never rewinds it."""
LOST = "lost.jsonl"
"""One row a loss of work by a kill, one when it was dropped; a resume never rewinds it."""


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Add ``row`` and force it to disk. Non-finite numbers are refused (``ValueError``).

    A torn last line, left by a kill, is cut off first: it was never a row.
    """
    line = canonical_json(row).encode() + b"\n"
    with disk_errors(f"append to {path.name}", path), open(path, "a+b") as file:
        if file.tell() and not _ends_whole(file):
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def rows(path: Path) -> list[dict[str, Any]]:
    """Every whole row; none when there is no file. A torn last line is not a row.

    Raises ``UserError`` for a broken line before the last.
    """
    if not path.exists():
        return []
    *lines, torn = path.read_bytes().split(b"\n")
    del torn  # what follows the last newline was not committed
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            fix = "restore the file, or resume the run: that rewinds it to the last checkpoint"
            raise UserError("a row is broken", where=f"{path}:{number}", fix=fix) from error
    return found


def hidden_uses(folder: Path) -> int:
    """How often the hidden tasks were run in this run folder, interrupted runs included."""
    return len(rows(folder / HIDDEN))


def _ends_whole(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"
