"""What waiting for the slowest costs, and what a machine cannot be faster than.

A group of K episodes that take T_i seconds is ready after max T_i, and K max T_i - sum T_i seconds
of its places are idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hexad.environments.latency import Latency


@dataclass(frozen=True, slots=True)
class Turn:
    """``tokens`` are sampled, then the environment takes ``wait`` seconds to answer.

    ``drawn`` of these were a draw of the recipe's own ``task.latency``.
    """

    tokens: int
    wait: float
    drawn: float = 0.0


@dataclass(frozen=True, slots=True)
class Path:
    """One measured episode: ``reset`` seconds until the initial state, then its turns.

    ``drawn`` seconds of the reset were a draw of the recipe's own ``task.latency``.
    """

    reset: float
    turns: tuple[Turn, ...]
    drawn: float = 0.0

    @property
    def tokens(self) -> int:
        """Sampled tokens."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def waits(self) -> float:
        """Seconds that the environment took."""
        return self.reset + sum(turn.wait for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Streaming:
    """What a decode step costs a worker that streams, which records every turn and sends episodes.

    ``arrival_seconds`` are the learner's, to read one episode.
    """

    step_seconds: float
    row_seconds: float
    arrival_seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured of a recipe on a small real batch.

    ``groups`` are the measured episodes, group by group. One decode step of n rows occupies a core
    for ``step_seconds + n row_seconds``, everything that an episode costs beside included.
    ``learner_seconds`` are for one batch of the recipe, from scoring to publishing, on
    ``learner_cores`` cores. ``streaming`` has the costs in a worker where they were measured, and
    ``latency`` is what the recipe declares: a small batch seldom meets its tail, so a simulation
    draws it afresh.
    """

    groups: tuple[tuple[Path, ...], ...]
    step_seconds: float
    row_seconds: float
    learner_seconds: float
    learner_cores: int = 1
    streaming: Streaming | None = None
    latency: Latency | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All measured episodes."""
        return tuple(path for group in self.groups for path in group)

    def streamed(self, episodes: int) -> Profile:
        """The profile where workers stream batches of ``episodes`` episodes to the learner."""
        costs = self.streaming
        if costs is None:
            return self
        return replace(
            self,
            step_seconds=costs.step_seconds,
            row_seconds=costs.row_seconds,
            learner_seconds=self.learner_seconds + episodes * costs.arrival_seconds,
            streaming=None,
        )

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
