"""The seed's two tables about critics: when one is natural, and what it must show."""

from __future__ import annotations

from dataclasses import dataclass

SECTION = "Critic：用 value 计算，还是用额外 rollout 比较"


@dataclass(frozen=True, slots=True)
class Condition:
    """What makes doing without a critic natural, and what makes a learned one natural.

    ``answer`` is the question that asks for it, with the values of either side.
    """

    condition: str
    critic_free: str
    learned: str
    answer: str = ""
    free_values: tuple[str, ...] = ()
    learned_values: tuple[str, ...] = ()
    source: str = SECTION


CONDITIONS: tuple[Condition, ...] = (
    Condition(
        "candidates at one task",
        "cheap, in parallel, K >= 2",
        "one or very few trajectories a state",
        "critic.candidates",
        ("cheap",),
        ("single",),
    ),
    Condition(
        "reward",
        "reliable end reward with variance inside the group",
        "sparse and delayed: a baseline that depends on the state is needed",
        "credit.reward",
        ("end",),
        ("steps", "transitions"),
    ),
    Condition(
        "horizon",
        "short, or of like length",
        "very long: bootstrapping or credit by turn is needed",
        "credit.horizon",
        ("short",),
        ("long",),
    ),
    Condition(
        "system",
        "can bear the group barrier",
        "wants to consume what is finished, or runs asynchronously all the time",
        "timing.durations",
        ("similar",),
        ("heavy_tailed",),
    ),
    Condition(
        "main cost",
        "further rollouts, groups without signal, waiting for the slowest",
        "parameters of the value, its pretraining, updates and calibration",
    ),
)
"""Table 1: critic-free or learned, condition by condition."""


@dataclass(frozen=True, slots=True)
class Check:
    """What has to be looked at beside the value loss; ``metric`` is where it is found."""

    what: str
    metric: str
    source: str = SECTION


CHECKS: tuple[Check, ...] = (
    Check("explained variance, with the variance of returns", "critic/explained_variance"),
    Check("calibration of values against realised returns", "critic/bias"),
    Check("speed of actor and critic", "critic/behind"),
    Check("early states systematically over- or underestimated", "critic/early_bias"),
    Check("truncated episodes bootstrap as the contract says", "critic/bootstrapped"),
)
"""Table 2: what a critic must show, by horizon, ending and version (slices of the ledger)."""
