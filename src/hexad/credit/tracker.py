"""A Beta tracker of each prompt's success rate, which forgets as the policy moves (SPO)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hexad.credit.group_relative import usable


@dataclass(frozen=True, slots=True)
class Forgetting:
    """``rho = clip(2^(-D / half_life), low, high)``: the share of old counts that is kept.

    ``D`` >= 0 says how far the policy moved since the prompt was last visited (absolute change of
    its mean log-prob). The paper's values are not confirmed; two reimplementations agree on high
    .96 and half life .06, and disagree on low (.875, .5). Hence no defaults.
    """

    low: float
    high: float
    half_life: float

    def __post_init__(self) -> None:
        if not (0 <= self.low <= self.high <= 1 and self.low < 1 and self.half_life > 0):
            raise ValueError("needs 0 <= low <= high <= 1, low < 1 and half_life > 0")

    def kept(self, drift: float) -> float:
        """rho of a drift."""
        if not 0 <= drift < float("inf"):
            raise ValueError(f"drift {drift} must be finite and not negative")
        share: float = 2.0 ** (-drift / self.half_life)
        return min(max(share, self.low), self.high)


class BetaTracker:
    """``v = alpha / (alpha + beta)``; ``alpha <- rho * alpha + r``, ``beta <- rho * beta + 1 - r``.

    Scores lie in [0, 1]. A task that was never seen has the value ``initial`` with the count
    ``1 / (1 - low)``, the steady state of the fastest forgetting. Read with :meth:`baseline`
    *before* :meth:`update`, or the baseline is biased. Advantages are then whitened over the batch.
    Source: Single-stream policy optimisation, arXiv 2509.13232.
    """

    def __init__(self, forgetting: Forgetting, initial: float) -> None:
        if not 0 <= initial <= 1:
            raise ValueError("initial must lie in [0, 1]")
        self.forgetting = forgetting
        self.initial = initial
        self._counts: dict[str, tuple[float, float]] = {}

    def counts(self, task: str) -> tuple[float, float]:
        """(alpha, beta) of a task."""
        count = 1.0 / (1.0 - self.forgetting.low)
        return self._counts.get(task, (self.initial * count, (1.0 - self.initial) * count))

    def value(self, task: str) -> float:
        """The tracked success rate; near .5 a task teaches most."""
        alpha, beta = self.counts(task)
        return alpha / (alpha + beta)

    def baseline(self, tasks: Sequence[str], score: Tensor, scored: Tensor) -> Tensor:
        """float64 [E]: the value of each episode's task; NaN where the episode is missing."""
        present = self._checked(tasks, score, scored)
        known = torch.tensor([self.value(task) for task in tasks], dtype=torch.float64)
        return torch.where(present, known, torch.nan)

    def update(
        self, tasks: Sequence[str], score: Tensor, scored: Tensor, drift: Mapping[str, float]
    ) -> None:
        """Count a batch. A task forgets once, by its ``drift``, and then counts all its scores."""
        present = self._checked(tasks, score, scored).tolist()
        found: dict[str, list[float]] = {}
        for task, value, there in zip(tasks, score.tolist(), present, strict=True):
            if there:
                found.setdefault(task, []).append(value)
        for task, values in found.items():
            rho = self.forgetting.kept(drift[task])
            alpha, beta = self.counts(task)
            won = sum(values)
            self._counts[task] = (rho * alpha + won, rho * beta + len(values) - won)

    def state(self) -> dict[str, Any]:
        """Both counts of every task that was seen."""
        return {"counts": {task: list(pair) for task, pair in self._counts.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self._counts = {task: (pair[0], pair[1]) for task, pair in state["counts"].items()}

    def _checked(self, tasks: Sequence[str], score: Tensor, scored: Tensor) -> Tensor:
        if not (score.shape == scored.shape == (len(tasks),)):
            raise ValueError("tasks, score and scored must be [E]")
        if score.dtype != torch.float64 or scored.dtype != torch.bool:
            raise ValueError("expected float64 and bool")
        present = usable(score, scored)
        inside = score[present]
        if not ((inside >= 0) & (inside <= 1)).all():
            raise ValueError("a Beta tracker needs scores in [0, 1]")
        return present
