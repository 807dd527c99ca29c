"""What a recipe adds to an outcome's reward: signals, prices, budgets, gates, constraints."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from hexad.recipe.axis import Axis, Fraction, Positive

Price = Annotated[float, Field(ge=0)]
Quantity = Literal["turns", "calls", "sampled_tokens", "violations", "cost"]
"""What an episode consumed or did: assistant turns, tool calls written, tokens sampled, calls that
it may not make and tried to, and the sum of ``feedback.costs``."""


class ProcessSpec(Axis):
    """A number for every state of an episode, and how its changes are paid."""

    signal: str
    """``remaining_operations`` (calculators), or ``package.module:object``."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What the signal is made with."""
    paid: Literal["potential", "increment", "cumulative"]
    """``potential``: gamma Phi(s') - Phi(s) on the declared clock, with Phi 0 at every stop, which
    leaves the best policy what it was. ``increment``: each turn is paid the change. ``cumulative``:
    each turn is paid the level itself, so that progress is paid again in every later turn. Neither
    of these two has a guarantee."""
    owner: Literal["turn", "call"] = "turn"
    """What is paid, unless it is a potential: the turn, or its last tool call where it has one."""


class CostSpec(Axis):
    """Prices, charged as the reward component ``cost`` to the turn or call that caused them."""

    turn: Price = 0.0
    """Price of an assistant turn."""
    call: Price = 0.0
    """Price of a tool call, executed or not, of a tool that ``tools`` does not name."""
    tools: dict[str, Price] = Field(default_factory=dict)
    """Price of a call by tool."""


class LengthSpec(Axis):
    """Length reward inside a group (Kimi k1.5), the reward component ``length``.

    ``lambda = 1/2 - (l - shortest) / (longest - shortest)`` for a correct episode, ``min(0,
    lambda)`` for another; 0 where all are equally long. The group's scored episodes are compared.
    """

    counted: Literal["sampled_tokens", "turns", "calls"] = "sampled_tokens"
    """What length is."""
    begin: Fraction = 0.0
    """Share of the budget that is used up before it begins; the paper enables it late."""


class EffortSpec(Axis):
    """An effort budget: beyond ``factor * budget`` an episode is paid ``reward`` instead."""

    budget: float = Field(gt=0)
    """b0: what the policy needs before training, measured by an evaluation of it."""
    factor: float = Field(gt=0)
    """tau: how many times as much is tolerated."""
    counted: Literal["sampled_tokens", "turns", "calls"] = "sampled_tokens"
    """What effort is."""
    per: str | None = None
    """Key of a number in a task's data: the budget is for one of it (``operations``); ``null``: for
    the whole task."""
    reward: float = -1.0
    """What an episode beyond it gets."""


class HardGateSpec(Axis):
    """An episode in which the policy asked for what it may not do has ``reward``, whatever else."""

    reward: float = 0.0
    """The declared reward of a violation."""


class PidSpec(Axis):
    """PID-Lagrangian (Stooke et al. 2020), with the defaults of omnisafe's code."""

    kp: float = Field(default=0.1, ge=0)
    """Weight of the smoothed excess."""
    ki: float = Field(default=0.01, ge=0)
    """Weight of each excess in the integral."""
    kd: float = Field(default=0.01, ge=0)
    """Weight of a rise of the smoothed cost over ``delay`` batches."""
    ema_p: float = Field(default=0.95, ge=0, lt=1)
    """Share of the old smoothed excess that is kept."""
    ema_d: float = Field(default=0.95, ge=0, lt=1)
    """Share of the old smoothed cost that is kept."""
    delay: Positive = 10
    """Batches between the two costs that are compared."""


class ConstraintSpec(Axis):
    """A limit on the mean of a quantity, held by a multiplier that the run learns."""

    of: Quantity
    """What is limited."""
    limit: float = Field(ge=0)
    """d: highest mean over all episodes of a batch, also those that are not trained on."""
    rate: float | None = Field(default=None, gt=0)
    """Lagrangian: after every batch it is max(0, multiplier + rate * (mean - limit))."""
    pid: PidSpec | None = None
    """PID-Lagrangian instead of ``rate``."""
    initial: float = Field(default=0.0, ge=0)
    """The multiplier (with ``pid``: the integral) that the run begins with."""
    most: float | None = Field(default=None, gt=0)
    """The multiplier never exceeds it; ``null`` for no bound."""
    normalise: bool = False
    """Divide the combined reward by 1 + the sum of such multipliers, as omnisafe does."""
