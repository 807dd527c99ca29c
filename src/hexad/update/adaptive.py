"""A coefficient that follows the divergence it is meant to hold."""

from __future__ import annotations

import math
from typing import Any

BOUND = 0.2
"""Largest relative error that one move answers to (Ziegler et al., arXiv 1909.08593)."""


class AdaptiveCoefficient:
    """``beta <- beta exp((n / horizon) clip(D / target - 1, -BOUND, BOUND))`` after n episodes.

    D is the measured mean divergence in nats, of the quantity that ``target`` bounds; ``horizon``
    counts episodes. beta stays positive. To first order it is the published ``1 + ...``. Sources:
    contract.md 2.17; Ziegler et al., arXiv 1909.08593.
    """

    def __init__(self, coefficient: float, *, target: float, horizon: float) -> None:
        """Raise ``ValueError`` unless all three are positive."""
        if not (coefficient > 0 and target > 0 and horizon > 0):
            raise ValueError(
                f"coefficient, target and horizon must be positive, got {coefficient}, {target}, "
                f"{horizon}"
            )
        self.coefficient = coefficient
        self.target, self.horizon = target, horizon

    def update(self, divergence: float, episodes: int) -> None:
        """Move after ``episodes`` with mean ``divergence``. Raises ``ValueError`` if not finite."""
        if not math.isfinite(divergence):
            raise ValueError(f"the measured divergence is {divergence}")
        error = min(max(divergence / self.target - 1.0, -BOUND), BOUND)
        self.coefficient *= math.exp(error * episodes / self.horizon)

    def state(self) -> dict[str, Any]:
        """What a resume needs."""
        return {"coefficient": self.coefficient}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where :meth:`state` was taken."""
        self.coefficient = float(state["coefficient"])
