"""Named points at which a test may kill the process, to prove that a kill loses nothing."""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "HEXAD_CRASH_AT"
_passed: Counter[str] = Counter()


def point(name: str) -> None:
    """Kill this process by SIGKILL if ``HEXAD_CRASH_AT`` is ``name`` or ``name:count``.

    With a count the process dies the ``count``-th time it passes here. Does nothing otherwise.
    """
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    count = 1
    if wanted != name:
        prefix, _, tail = wanted.rpartition(":")
        if prefix != name or not tail.isdigit():
            return
        count = int(tail)
    _passed[name] += 1
    if _passed[name] == count:
        os.kill(os.getpid(), signal.SIGKILL)
