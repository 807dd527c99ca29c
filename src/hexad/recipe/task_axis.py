"""What a recipe says about slow and failing environments: for tests of a training system."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hexad.recipe.axis import Axis, Fraction

Seconds = Annotated[float, Field(gt=0)]
SplitName = Literal["train", "selection", "hidden", "gate"]


class LatencySpec(Axis):
    """Seconds that calls of the environment wait, drawn by run, group, member, attempt and turn.

    Equal keys wait equally long. Wraps any environment.
    """

    kind: Literal["constant", "lognormal", "pareto"]
    """The distribution of the seconds."""
    mean: Seconds
    """Its mean in seconds, before ``cap``."""
    sigma: float | None = Field(default=None, gt=0)
    """Kind ``lognormal``: standard deviation of the logarithm."""
    alpha: float | None = Field(default=None, gt=1)
    """Kind ``pareto``: the tail index; up to 2 the variance is infinite."""
    cap: Seconds | None = None
    """No wait is longer; ``null`` for no limit."""
    at: Literal["step", "reset", "both"] = "step"
    """Which calls wait."""
    splits: tuple[SplitName, ...] = ("train",)
    """Whose tasks wait; evaluations do not, unless they are named."""


class SlowStartSpec(Axis):
    """Some resets take longer."""

    p: Fraction
    """Probability of one reset."""
    seconds: Seconds
    """How much longer it takes."""


class ChaosSpec(Axis):
    """Failures of the environment and its verifier, drawn by the same key as latency."""

    crash: Fraction = 0.0
    """Probability that one call (a reset or a step) raises."""
    hang: Fraction = 0.0
    """Probability that one call never returns: ``task.limits`` ends it."""
    junk: Fraction = 0.0
    """Probability that one call returns no observation."""
    slow_start: SlowStartSpec | None = None
    """Some resets take longer; ``null`` for none."""
    flaky_verifier: Fraction = 0.0
    """Probability that the verifier fails on one episode."""
    splits: tuple[SplitName, ...] = ("train",)
    """Whose tasks are hit."""
