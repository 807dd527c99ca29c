"""What kind of episode is this? Labels by which populations of episodes are compared."""

from __future__ import annotations

import re

from hexad.contract.episode import Episode

_UNNAMED = re.compile(r"[^A-Za-z0-9.-]+")
LONGEST = 64
"""The last horizon: so many turns or more."""


def labels(episode: Episode) -> tuple[str, ...]:
    """``ending_KIND``, ``horizon_N`` for N to 2 N - 1 turns (0, 1, 2, 4, ... 64), ``task_STRATUM``.

    The last only where the environment names strata; what is no letter, digit, dot or dash becomes
    an underscore.
    """
    turns = episode.costs.turns
    low = min(1 << (turns.bit_length() - 1), LONGEST) if turns else 0
    found = (f"ending_{episode.ending.kind}", f"horizon_{low}")
    kind = _UNNAMED.sub("_", episode.stratum)
    return (*found, f"task_{kind}") if kind else found
