"""Monte Carlo credit on the clock: what was still paid after each decision, less a baseline."""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.credit.clock import Clock
from hexad.credit.scan import scan
from hexad.credit.values import carry, check_unit


def reward_to_go(clock: Clock, *, gamma: float) -> Tensor:
    """float64 [M]: ``G_t = sum_{k >= t} gamma^(k - t) r_k`` to the end of the episode.

    Nothing bootstraps: behind a truncation nothing more is paid. Observations neither tick nor
    reset the sum. Source: Williams 1992; Sutton et al. 2000.
    """
    check_unit(gamma=gamma)
    return scan(clock.reward, carry(clock, gamma))


def less(clock: Clock, returns: Tensor, baseline: Tensor) -> Tensor:
    """float64 [M]: ``G_t - b`` of the step's episode; 0 where ``baseline`` [E] is NaN (missing).

    The baseline must not depend on the episode's own actions to leave the gradient unbiased.
    """
    if returns.shape != clock.episode.shape or baseline.shape != clock.terminated.shape:
        raise ValueError("returns must be [M] and baseline [E]")
    if returns.dtype != torch.float64 or baseline.dtype != torch.float64:
        raise ValueError("expected float64")
    own = baseline[clock.episode]
    return torch.where(own.isnan(), 0.0, returns - own)
