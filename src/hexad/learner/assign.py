"""Credit of a batch: which estimator, by name, and its broadcast to action tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from hexad.credit.group_relative import dr_grpo, grpo, reinforce, rloo, usable
from hexad.learner.batch import Batch, Credit
from hexad.recipe.axes import CreditSpec

Estimator = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``(score [E], scored [E], group [E]) -> advantage [E]``."""


def _none(score: Tensor, scored: Tensor, group: Tensor) -> Tensor:
    return torch.zeros_like(score)


def _reinforce(spec: CreditSpec) -> Estimator:
    return partial(reinforce, baseline="batch" if spec.baseline == "batch" else "none")


def _grpo(spec: CreditSpec) -> Estimator:
    threshold = 1e-6 if spec.threshold is None else spec.threshold
    return partial(grpo, std=spec.std or "population", threshold=threshold)


ESTIMATORS: dict[str, Callable[[CreditSpec], Estimator]] = {
    "none": lambda spec: _none,
    "reinforce": _reinforce,
    "rloo": lambda spec: rloo,
    "grpo": _grpo,
    "dr_grpo": lambda spec: dr_grpo,
}
"""Estimator name of the recipe -> the function with its options bound."""


def episode_advantage(batch: Batch, spec: CreditSpec) -> Tensor:
    """float64 [E]: one advantage an episode; 0 where it has no usable score."""
    return ESTIMATORS[spec.estimator](spec)(batch.score, batch.scored, batch.episode_group)


def assign(batch: Batch, spec: CreditSpec) -> Credit:
    """Give every action token of an episode that episode's advantage; 0 everywhere else."""
    advantage = episode_advantage(batch, spec)
    inside = batch.action & usable(batch.score, batch.scored)[batch.token_episode]
    return Credit(torch.where(inside, advantage[batch.token_episode], 0.0))
