"""Whitening over a declared scope."""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.credit.clock import Clock
from hexad.credit.group_relative import Std, grpo


def whiten(
    clock: Clock, values: Tensor, *, group: Tensor | None = None, std: Std = "population"
) -> Tensor:
    """float64 [M]: ``(x - mean) / std`` over all clock steps of one scope; every step weighs 1.

    The scope is all steps that count, on every rank; or with ``group`` int64 [E] those of a group.
    Exactly 0 where the standard deviation is at most 1e-6. On the token clock moments are weighted
    by tokens, and observations are in none. REINFORCE++ (arXiv 2501.03262) is this of returns.
    """
    if values.shape != clock.episode.shape or values.dtype != torch.float64:
        raise ValueError(f"values must be float64 {tuple(clock.episode.shape)}")
    if not torch.isfinite(values).all():
        raise ValueError("a value to whiten is not finite")
    scope = torch.zeros_like(clock.episode) if group is None else group[clock.episode]
    return grpo(values, torch.ones_like(values, dtype=torch.bool), scope, std=std)
