"""Confidence intervals of a proportion."""

from __future__ import annotations

import math

from scipy.stats import norm


def wilson(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float] | None:
    """Wilson's score interval of ``successes`` out of ``n``; ``None`` when nothing was counted.

        (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Wilson 1927, Probable Inference. 26 of 30 gives [0.703, 0.947]. ``successes`` need not be whole:
    means of several attempts at each of ``n`` tasks may be added up. Raises ``ValueError`` for
    counts that are not ``0 <= successes <= n`` and for a confidence outside (0, 1).
    """
    if not 0 <= successes <= n or not 0.0 < confidence < 1.0:
        raise ValueError(f"{successes} of {n} at confidence {confidence} is not a proportion")
    if n == 0:
        return None
    z = float(norm.ppf(0.5 + confidence / 2.0))
    p, width = successes / n, z * z / n
    center = (p + width / 2.0) / (1.0 + width)
    half = math.sqrt(p * (1.0 - p) * width + width * width / 4.0) / (1.0 + width)
    # Rounding may leave the exact bounds 0 and 1 by one unit in the last place.
    return (0.0 if successes == 0 else center - half, 1.0 if successes == n else center + half)
