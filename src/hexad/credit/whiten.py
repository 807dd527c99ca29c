"""Whitening over a declared scope, and REINFORCE++ that is made of it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hexad.credit.baselines import group_mean
from hexad.credit.clock import Clock
from hexad.credit.group_relative import Std, grpo
from hexad.credit.reward_to_go import less, reward_to_go

Scope = Literal["batch", "group", "minibatch"]


def whiten(
    clock: Clock,
    values: Tensor,
    *,
    scope: Scope,
    index: Tensor | None = None,
    std: Std = "population",
    threshold: float = 1e-6,
) -> Tensor:
    """float64 [M]: ``(x - mean) / std`` over all clock steps of one scope; every step weighs 1.

    ``batch`` is all steps that count, on every rank; ``group`` needs ``index`` int64 [E], the group
    of each episode; ``minibatch`` needs ``index`` int64 [M], the optimiser step of each clock step.
    Exactly 0 where the standard deviation is at most ``threshold``. On the token clock moments are
    weighted by tokens, and observations are in none.
    """
    if values.shape != clock.episode.shape or values.dtype != torch.float64:
        raise ValueError(f"values must be float64 {tuple(clock.episode.shape)}")
    if not torch.isfinite(values).all():
        raise ValueError("a value to whiten is not finite")
    if (index is None) != (scope == "batch"):
        raise ValueError("the scopes group and minibatch need an index, and batch has none")
    if index is None:
        of = torch.zeros_like(clock.episode)
    else:
        of = index[clock.episode] if scope == "group" else index
    counted = torch.ones_like(values, dtype=torch.bool)
    return grpo(values, counted, of, std=std, threshold=threshold)


def reinforce_pp(
    clock: Clock, group: Tensor | None, *, gamma: float, std: Std, threshold: float = 1e-6
) -> Tensor:
    """REINFORCE++: returns-to-go, whitened over all actions of the batch; float64 [M].

    With ``group`` int64 [E] (the "baseline" variant) the mean score of the group is subtracted
    first. The KL penalty (k1) belongs in the rewards: give a clock whose rewards hold it. The
    return lives on the clock, so an observation cannot reset it. Source: arXiv 2501.03262.
    """
    returns = reward_to_go(clock, gamma=gamma)
    if group is not None:
        counted = clock.lengths > 0
        returns = less(clock, returns, group_mean(clock.scores(), counted, group))
    return whiten(clock, returns, scope="batch", std=std, threshold=threshold)
