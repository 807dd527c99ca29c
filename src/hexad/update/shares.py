"""Where a clip or gate acts: shares by sign of advantage, length and lag."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import Tensor

LENGTHS = (0, 64, 256, 1024, 4096)
"""Lower ends of the buckets of an episode's action tokens; the last is open."""
LAGS = (0, 1, 2, 4, 8)
"""Lower ends of the buckets of versions between sampling and learning; the last is open."""


def shares(
    name: str, flag: Tensor, advantage: Tensor, length: Tensor, lag: Tensor
) -> dict[str, Tensor]:
    """Bool values to be tallied: the mean of each is the share of tokens with ``flag``.

    All inputs are [N] action tokens that count: ``flag`` bool (outside on one side, or dropped),
    ``advantage``, ``length`` (action tokens of the token's episode) and ``lag`` int64. Keys:
    ``name`` itself; ``NAME_positive`` and ``NAME_negative``, without the tokens of advantage 0;
    ``NAME/length_64`` and ``NAME/lag_2``, by lower end. Every key is always there: no token, no
    value. Raises ``ValueError`` for a negative lag or length.
    """
    if bool((lag < 0).any()) or bool((length < 0).any()):
        raise ValueError("lag and length are not negative")
    found = {
        name: flag,
        f"{name}_positive": flag[advantage > 0],
        f"{name}_negative": flag[advantage < 0],
    }
    for kind, values, edges in (("length", length, LENGTHS), ("lag", lag, LAGS)):
        for low, high in pairwise((*edges, math.inf)):
            found[f"{name}/{kind}_{low:g}"] = flag[(values >= low) & (values < high)]
    return found
