"""Several attempts at one task: the chance that one succeeds, and that all do."""

from __future__ import annotations

import math
from collections.abc import Callable

from hexad.recipe.study import METRIC

Score = Callable[[int, int], float]
"""``(scored, correct)`` attempts at one task to its score in [0, 1]."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased chance that at least one of ``k`` attempts succeeds, ``c`` of ``n`` being correct.

        1 - C(n - c, k) / C(n, k) = 1 - prod_{i=n-c+1}^{n} (1 - k / i);  1 where n - c < k

    Chen et al. 2021 (openai/human-eval). (10, 3, 5) gives .916667. Raises ``ValueError`` unless
    ``0 <= c <= n`` and ``1 <= k <= n``.
    """
    _require(n, c, k)
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Unbiased chance that all of ``k`` attempts succeed: C(c, k) / C(n, k).

    (10, 8, 3) gives .4667. Raises ``ValueError`` as :func:`pass_at_k`.
    """
    _require(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def score_of(metric: str) -> tuple[Score, int]:
    """The score that ``metric`` names, and the attempts it needs. ``ValueError`` for no metric."""
    found = METRIC.fullmatch(metric)
    if found is None:
        raise ValueError(f"there is no metric {metric!r}")
    if metric == "success":
        return (lambda n, c: c / n), 1
    k, formula = int(found[1]), pass_at_k if metric.startswith("pass@") else pass_hat_k
    return (lambda n, c: formula(n, c, k)), k


def _require(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"{c} correct of {n} attempts, {k} at a time")
