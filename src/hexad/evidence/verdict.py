"""Better, worse, no difference within the margin, or not enough data."""

from __future__ import annotations

from collections.abc import Sequence

BETTER, WORSE = "better", "worse"
SAME = "no difference within margin"
OPEN = "not enough data"
UNLIKE = "not comparable"
"""The evaluations were made under unlike conditions, so a difference says nothing of the arms."""
LEAST_SEEDS = 3
ALPHA = 0.05


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of p-values, in the order given.

    The i-th smallest of k is multiplied by k - i + 1, none falls below one before it, none exceeds
    1. (.01, .04, .03) gives (.03, .06, .06). Holm 1979.
    """
    order = sorted(range(len(values)), key=lambda i: values[i])
    adjusted, least = [0.0] * len(values), 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, values[index] * (len(values) - rank)))
        adjusted[index] = least
    return adjusted


def judge(
    seeds: int, span: tuple[float, float], margin: float, different: float, within: float
) -> str:
    """The verdict on a difference with interval ``span`` and Holm's p-values.

    Interval and test must agree. ``within`` is tried first: a certain difference that is smaller
    than ``margin`` does not matter. Below three seeds nothing is said.
    """
    low, high = span
    if seeds < LEAST_SEEDS:
        return OPEN
    if within <= ALPHA and -margin < low and high < margin:
        return SAME
    if different <= ALPHA and low > 0.0:
        return BETTER
    if different <= ALPHA and high < 0.0:
        return WORSE
    return OPEN
