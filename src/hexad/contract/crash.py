"""Named points at which a test may kill the process, to prove that a kill loses nothing."""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "HEXAD_CRASH_AT"
_WANTED = os.environ.get(VARIABLE)
"""Read once: points lie where every token passes, and the environment is slow to ask."""
_passed: Counter[str] = Counter()


def point(name: str) -> None:
    """Kill this process by SIGKILL if it was started with ``HEXAD_CRASH_AT`` = ``name[:count]``.

    With a count the process dies the ``count``-th time it passes here. Does nothing otherwise.
    """
    if not _WANTED:
        return
    count = 1
    if name != _WANTED:
        prefix, _, tail = _WANTED.rpartition(":")
        if prefix != name or not tail.isdigit():
            return
        count = int(tail)
    _passed[name] += 1
    if _passed[name] == count:
        os.kill(os.getpid(), signal.SIGKILL)
