"""How much a logged episode is worth imitating: exponential weights of its advantage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal


def weights(
    scores: Sequence[float],
    groups: Sequence[str],
    *,
    beta: float,
    cap: float,
    baseline: Literal["group", "data"],
) -> list[float]:
    """``w_i = min(exp((R_i - b_i) / beta), cap)``, NaN where the score is NaN.

    ``b_i`` is the mean of the finite scores of the episode's group, or of all. Source: Peng et al.
    2019 (AWR); beta > 0 in units of the score, cap > 0.
    """
    kept: dict[str, list[float]] = {}
    names = groups if baseline == "group" else [""] * len(scores)
    for score, name in zip(scores, names, strict=True):
        if not math.isnan(score):
            kept.setdefault(name, []).append(score)
    means = {name: math.fsum(found) / len(found) for name, found in kept.items()}
    top = math.log(cap)
    return [
        math.nan if math.isnan(score) else math.exp(min((score - means[name]) / beta, top))
        for score, name in zip(scores, names, strict=True)
    ]
