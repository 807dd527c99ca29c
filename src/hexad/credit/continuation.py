"""Values from fresh continuations of a state instead of a critic (VinePPO)."""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.credit.clock import Clock
from hexad.credit.values import check_unit


def continued(returns: Tensor) -> Tensor:
    """float64 [N]: ``V(s) = mean_k R(tau_k)`` over K continuations of each of N states.

    ``returns`` float64 [N, K], NaN where a continuation is missing; a state without any has NaN.
    Nine coin flips leave a standard error of .16: K = 9 cannot tell small effects from noise.
    """
    if returns.ndim != 2 or returns.dtype != torch.float64:
        raise ValueError("returns must be float64 [N, K]")
    return returns.nanmean(1)


def continuation_advantage(clock: Clock, value: Tensor, *, gamma: float) -> Tensor:
    """``A_t = r_t + gamma * V(s_{t+1}) - V(s_t)``, float64 [M].

    ``value`` float64 [M] is the continued value of each decision's state. Behind the end of an
    episode V is 0: nothing more is paid, also where a limit cut it, as in the continuations
    themselves. Needs an environment that can be forked. Raises ``ValueError`` when a value is not
    finite. Source: VinePPO, arXiv 2410.01679.
    """
    check_unit(gamma=gamma)
    if value.shape != clock.episode.shape or value.dtype != torch.float64:
        raise ValueError(f"value must be float64 {tuple(clock.episode.shape)}: one a step")
    if not torch.isfinite(value).all():
        raise ValueError("a value that is read is not finite")
    after = torch.where(clock.last, 0.0, value.roll(-1))
    return clock.reward + gamma * after - value
