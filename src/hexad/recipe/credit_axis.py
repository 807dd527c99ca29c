"""Axis 4 of a recipe: how reward reaches actions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hexad.recipe.axis import Axis, Fraction, Positive


class TrackerSpec(Axis):
    """A Beta tracker of each task's success, which forgets as the policy moves (SPO)."""

    low: float = Field(ge=0, lt=1)
    """Smallest share of the old counts that is kept; reimplementations say .875 or .5."""
    high: float = Field(ge=0, le=1)
    """Largest share; both say .96."""
    half_life: float = Field(gt=0)
    """Change of a task's mean log-prob that halves the counts; both say .06."""
    initial: Fraction = 0.5
    """Value of a task that was never seen."""


class CreditSpec(Axis):
    """Axis 4: how reward reaches actions."""

    estimator: str = "grpo"
    """The advantage estimator: none, reinforce, rloo, grpo, dr_grpo, reinforce_pp, turn_group,
    gigpo, vine, gae, n_step, vtrace, or ``package.module:object`` of user code. ``turn_group``
    compares what was still paid after turn k with that of the group's other episodes after their
    turn k; ``vine`` takes the value of a state from continuations of it (VinePPO)."""
    baseline: Literal["none", "batch", "group", "prompt_mean", "beta", "greedy"] | None = None
    """Estimator ``reinforce``: what is subtracted from the return. ``prompt_mean``: mean of the
    task's last scores; ``beta``: a discounted Beta tracker of the task's success;
    ``greedy``: the score of a greedy rollout (ReMax), an auxiliary one a task. Estimator
    ``reinforce_pp``: nothing, or ``group``, the mean score of the group."""
    window: Positive | None = None
    """Baseline ``prompt_mean``: how many scores of a task are remembered."""
    tracker: TrackerSpec | None = None
    """Baseline ``beta``: how fast it forgets."""
    std: Literal["population", "sample"] | None = None
    """Which standard deviation divides: population (by K) or sample (by K - 1), also that of
    ``whiten``. Estimators ``gigpo`` and ``turn_group``: ``null`` divides by none."""
    threshold: float | None = Field(default=None, ge=0)
    """With ``std``: at or below this standard deviation the advantage is exactly 0."""
    omega: float | None = Field(default=None, ge=0)
    """Estimator ``gigpo``: weight of the state groups beside the episode groups."""
    clock: Literal["token", "span", "turn", "segment"] = "token"
    """The time step of the estimator: what discounts and traces count."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount a clock step; Monte Carlo estimators of one number an episode need 1."""
    lambda_policy: float | None = Field(default=None, ge=0, le=1)
    """Estimators ``gae`` and ``vtrace``: trace of the advantage, unless ``alpha`` sets it."""
    lambda_critic: float | None = Field(default=None, ge=0, le=1)
    """Estimator ``gae``: trace of the critic's target, which is the lambda return."""
    alpha: float | None = Field(default=None, gt=0)
    """Estimator ``gae``: trace 1 - 1 / (alpha l) in [0, 1], of an episode of l clock steps."""
    steps: Positive | None = None
    """Estimator ``n_step``: after how many clock steps the return bootstraps from the value."""
    continuations: Positive | None = None
    """Estimator ``vine``: how many fresh continuations give the value of a state. Each is an
    auxiliary rollout of what is left of the episode; the paper takes 9."""
    rho_bar: float | None = Field(default=None, gt=0)
    """Estimator ``vtrace``: cap of the ratio in the temporal difference; sets the fixed point."""
    c_bar: float | None = Field(default=None, gt=0)
    """Estimator ``vtrace``: cap of the ratio in the trace; sets speed and variance only."""
    shaping: str | None = None
    """Estimators on the clock: ``package.module:object`` of a potential, a function of a batch that
    gives Phi [T] of the prefix ending with each token; gamma Phi(s') - Phi(s) joins the rewards."""
    whiten: Literal["batch", "group"] | None = None
    """Subtract the mean of the advantages of action tokens and divide by their deviation, over the
    batch or each group."""
    truncation: Literal["score", "mask", "terminal"] | None = None
    """A truncated episode, Monte Carlo estimators: ``score`` keeps its score, ``mask`` leaves it
    out of the loss. Estimators with a critic bootstrap from the value where it was cut; with
    ``terminal`` they do not, because the limits belong to the task: a policy that never finishes
    would be paid what the critic expects of finishing."""
