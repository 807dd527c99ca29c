"""CompactionRL's credit: local GAE inside each segment, decayed by what was done after it."""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.credit.clock import Clock
from hexad.credit.scan import scan
from hexad.credit.values import Estimate, at_decision, at_successor, carry, check_unit


def cross_segment(
    clock: Clock,
    value: Tensor,
    segment: Tensor,
    *,
    gamma: float,
    policy: float | Tensor,
    critic: float | Tensor,
) -> Estimate:
    """``A_{s,i} = (gamma * lambda)^{N_{>s}} * A_local_{s,i}``, with N the later segments' steps.

    Every segment is paid the episode's outcome at its own last step, and nothing bootstraps across
    a seam; only the last segment of a truncated episode bootstraps. ``target`` is ``A_local + V``
    at lambda = ``critic``: the decayed A would shrink the critic's error. ``segment`` int64 [M] is
    the row of each clock step; a lambda is a number, or float64 [M] equal inside an episode.

    Exact for V = 0 and for gamma = lambda = 1, otherwise an approximation: :func:`gae` on the same
    clock is the unbroken trajectory. Raises ``ValueError`` when a reward is not on an episode's
    last step, and as :func:`gae`. Source: arXiv 2607.05378 (bootstrap and target as its published
    code has them; the paper does not say).
    """
    check_unit(gamma=gamma, policy=policy, critic=critic)
    if segment.shape != clock.episode.shape or segment.dtype != torch.int64:
        raise ValueError(f"segment must be int64 {tuple(clock.episode.shape)}: one a step")
    if (clock.reward[~clock.last] != 0).any():
        raise ValueError("cross-segment credit is defined for a reward at the episode's end")
    ends = clock.last.clone()
    ends[:-1] |= segment[1:] != segment[:-1]
    outcome = torch.where(ends, clock.scores()[clock.episode], 0.0)
    now = at_decision(clock, value)
    after = torch.where(ends & ~clock.last, 0.0, at_successor(clock, value, now))
    residual = outcome + gamma * after - now
    local, own = (
        scan(residual, torch.where(ends, 0.0, carry(clock, gamma * lam)))
        for lam in (policy, critic)
    )
    behind = _later(clock, ends).to(torch.float64)
    factor = torch.as_tensor(gamma * policy, dtype=torch.float64).pow(behind)
    return Estimate(factor * local, now + own)


def _later(clock: Clock, ends: Tensor) -> Tensor:
    """int64 [M]: steps of the same episode behind the segment of each step."""
    place = torch.arange(len(ends))
    bounds = ends.nonzero().squeeze(1)
    final = clock.last.nonzero().squeeze(1)
    own = bounds[torch.searchsorted(bounds, place)]
    return final[torch.searchsorted(final, place)] - own
