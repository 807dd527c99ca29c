"""Rules of asynchronous timing: what means something there, and only there."""

from __future__ import annotations

from collections.abc import Iterator

from hexad.recipe.axes import Recipe
from hexad.recipe.problem import Problem

_KEYS = ("workers", "refresh", "stale", "partial")


def schedule(recipe: Recipe) -> Iterator[Problem]:
    """Keys of the other mode, and what cannot overlap with training."""
    timing, data = recipe.timing, recipe.data
    if timing.mode == "synchronous":
        for key in _KEYS:
            if getattr(timing, key) is not None:
                reason = "has no effect in mode: synchronous, where nothing overlaps"
                yield Problem(f"timing.{key}", reason, "remove it, or use mode: asynchronous")
        return
    if data.regime != "online":
        reason = "stored data is there already: nothing is sampled while training"
        yield Problem("timing.mode", reason, "use timing.mode: synchronous")
    if recipe.credit.baseline == "greedy":
        reason = "the greedy rollout of a task would be played by other weights than its attempts"
        yield Problem("credit.baseline", reason, "use baseline: batch, or timing.mode: synchronous")
    if data.dynamic is not None and data.dynamic.surplus == "carry":
        reason = "groups that wait for a later batch are in the queue's own order and age there"
        yield Problem("data.dynamic.surplus", reason, "use surplus: drop")
    if timing.partial is not None and timing.max_lag == 0:
        reason = "a paused episode goes on under newer weights, which max_lag: 0 forbids"
        yield Problem("timing.max_lag", reason, "use max_lag: 1 or more, or partial: null")
