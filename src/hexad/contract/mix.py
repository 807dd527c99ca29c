"""What kind of episode is this? Labels by which populations of episodes are compared."""

from __future__ import annotations

from hexad.contract.episode import Episode

LONGEST = 64
"""The last horizon: so many turns or more."""


def labels(episode: Episode) -> tuple[str, ...]:
    """``ending_KIND``, and ``horizon_N`` for N to 2 N - 1 turns (0, 1, 2, 4, ... 64)."""
    turns = episode.costs.turns
    low = min(1 << (turns.bit_length() - 1), LONGEST) if turns else 0
    return (f"ending_{episode.ending.kind}", f"horizon_{low}")
