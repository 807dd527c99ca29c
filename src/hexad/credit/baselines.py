"""Baselines of episodes' scores, each float64 [E], NaN where it does not exist.

``score``, ``scored`` and ``group`` as in :mod:`hexad.credit.group_relative`; an advantage is
``score - baseline`` (:func:`advantage`), or a return-to-go less the baseline
(:func:`hexad.credit.reward_to_go.less`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.credit.group_relative import dr_grpo, usable


def group_mean(score: Tensor, scored: Tensor, group: Tensor) -> Tensor:
    """Mean score of the group, the episode's own included. Source: Dr. GRPO, arXiv 2503.20783."""
    # From the advantage, so that a flat group keeps an advantage of exactly 0.
    found = score - dr_grpo(score, scored, group)
    return torch.where(usable(score, scored), found, torch.nan)


def greedy(score: Tensor, scored: Tensor, group: Tensor, greedy_score: Tensor) -> Tensor:
    """ReMax: the score [E] of a greedy rollout from the same initial state, NaN where it failed.

    Source: Li et al., arXiv 2310.10505.
    """
    if greedy_score.shape != score.shape or greedy_score.dtype != torch.float64:
        raise ValueError("greedy_score must be float64 [E]")
    present = usable(score, scored) & torch.isfinite(greedy_score)
    return torch.where(present, greedy_score, torch.nan)


def advantage(score: Tensor, scored: Tensor, baseline: Tensor) -> Tensor:
    """float64 [E]: ``R - b``; 0 where the episode is missing or has no baseline."""
    if baseline.shape != score.shape or baseline.dtype != torch.float64:
        raise ValueError("baseline must be float64 [E]")
    present = usable(score, scored) & ~baseline.isnan()
    return torch.where(present, score - baseline, 0.0)
