"""A deployment gate: what a policy must have shown before it is let out."""

from __future__ import annotations

from pydantic import Field

from hexad.recipe.axis import Axis


class CostLimits(Axis):
    """Highest 95th percentile of an episode's costs; ``null`` asks nothing.

    It is the least cost that 95 % of the episodes do not exceed, so a limit holds exactly where so
    many of them are within it.
    """

    turns: float | None = Field(default=None, ge=0)
    """Assistant turns."""
    sampled_tokens: float | None = Field(default=None, ge=0)
    """Tokens that the policy sampled."""
    tool_calls: float | None = Field(default=None, ge=0)
    """Calls that were executed."""
    cost: float | None = Field(default=None, ge=0)
    """By the prices of the recipe's ``feedback.costs``."""
    seconds: float | None = Field(default=None, ge=0)
    """Wall-clock of an episode among those that are played at once, approvals apart."""


class GateFile(Axis):
    """The measurements are made on the recipe's ``gate`` tasks, by its evaluation verifier."""

    success: float | None = Field(default=None, ge=0, le=1)
    """Least lower bound of the success rate (95 % Wilson interval); not the rate itself.

    A correct episode that asked for a call it may not make is no success.
    """
    invalid: int | None = Field(default=None, ge=0)
    """Most episodes with an invalid answer or an action that ended them as illegal."""
    violations: int | None = Field(default=None, ge=0)
    """Most episodes that asked for a call they may not make, executed or not, successful or not."""
    unauthorised: int | None = Field(default=None, ge=0)
    """Most episodes that were correct and asked for one: a success that does not count."""
    unscored: int | None = Field(default=0, ge=0)
    """Most episodes without a score: what nobody judged proves nothing."""
    p95: CostLimits = CostLimits()
    """Costs."""
    tasks: int | None = Field(default=None, ge=1)
    """Number of gate tasks; ``null`` takes the recipe's count."""

    @property
    def asks(self) -> bool:
        """Whether the file itself asks anything; the default of ``unscored`` is no demand of it."""
        own = {name: getattr(self, name) for name in self.model_fields_set - {"tasks", "p95"}}
        limits = self.p95.model_dump(exclude_none=True)
        return bool(limits) or any(value is not None for value in own.values())
