"""What a recipe says of an environment beside its tasks: what may be called, what disturbs it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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


class ForbiddenSpec(Axis):
    """Calls that are never executed."""

    tool: str
    """Name of the tool."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Only calls with these arguments; none: every call of the tool."""


class ApprovalSpec(Axis):
    """Calls that wait until somebody approves them."""

    tools: tuple[str, ...] = Field(min_length=1)
    """Names of the tools."""
    approver: str
    """``package.module:object``: called with the application, and only ``True`` approves."""
    seconds: Seconds = 60.0
    """How long the answer may take; silence is a no. The policy's time does not run meanwhile."""


class GuardSpec(Axis):
    """What is reviewed before a tool is executed. A turn with a refused call executes nothing."""

    forbidden: tuple[ForbiddenSpec, ...] = ()
    """Calls that are never executed."""
    rule: str | None = None
    """``package.module:object``: called with task and call, it says why the call is forbidden, or
    nothing."""
    approval: ApprovalSpec | None = None
    """Calls that wait for somebody; ``null`` asks nobody."""
