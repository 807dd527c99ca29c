"""What waiting for the slowest costs, and what a machine cannot be faster than.

A group of K episodes that take T_i seconds is ready after max T_i, and K max T_i - sum T_i seconds
of its places are idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Turn:
    """``tokens`` are sampled, then the environment takes ``wait`` seconds to answer."""

    tokens: int
    wait: float


@dataclass(frozen=True, slots=True)
class Path:
    """One measured episode: ``reset`` seconds until the initial state, then its turns."""

    reset: float
    turns: tuple[Turn, ...]

    @property
    def tokens(self) -> int:
        """Sampled tokens."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def waits(self) -> float:
        """Seconds that the environment took."""
        return self.reset + sum(turn.wait for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured of a recipe on a small real batch.

    ``groups`` are the measured episodes, group by group. One decode step of n rows occupies a core
    for ``step_seconds + n row_seconds``, everything that an episode costs beside included.
    ``learner_seconds`` are for one batch of the recipe, from scoring to publishing, on
    ``learner_cores`` cores.
    """

    groups: tuple[tuple[Path, ...], ...]
    step_seconds: float
    row_seconds: float
    learner_seconds: float
    learner_cores: int = 1

    @property
    def paths(self) -> tuple[Path, ...]:
        """All measured episodes."""
        return tuple(path for group in self.groups for path in group)

    def step(self, rows: float) -> float:
        """Seconds of one decode step of ``rows`` rows."""
        return self.step_seconds + rows * self.row_seconds

    def seconds(self, path: Path, rows: float) -> float:
        """Seconds of ``path`` by itself, decoded in the company of ``rows`` rows."""
        return path.waits + path.tokens * self.step(rows)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Seconds of groups: when each was ready, and the work that waited for it."""

    ready: tuple[float, ...]
    idle: tuple[float, ...]
    idle_share: float
    """Of all seconds that the places of a group were held."""

    def row(self) -> dict[str, Any]:
        """JSON."""
        return {
            "groups": len(self.ready),
            "ready": quantiles(self.ready),
            "idle_seconds": quantiles(self.idle),
            "idle_share": self.idle_share,
        }


def barrier(groups: Sequence[Sequence[float]]) -> Barrier:
    """The barrier of ``groups`` of durations in seconds. Raises ``ValueError`` for an empty one."""
    if not groups or not all(groups):
        raise ValueError("a barrier needs at least one group, and each at least one duration")
    ready = tuple(max(group) for group in groups)
    idle = tuple(len(group) * max(group) - sum(group) for group in groups)
    held = sum(len(group) * last for group, last in zip(groups, ready, strict=True))
    return Barrier(ready, idle, sum(idle) / held if held > 0 else 0.0)


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Mean, p50, p95, p99 and the largest; linear between order statistics. Empty for no value."""
    if not values:
        return {}
    p50, p95, p99 = (float(q) for q in np.quantile(values, (0.5, 0.95, 0.99)))
    return {"mean": float(np.mean(values)), "p50": p50, "p95": p95, "p99": p99, "max": max(values)}
