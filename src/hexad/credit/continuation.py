"""Values from fresh continuations of a state instead of a critic (VinePPO)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hexad.credit.clock import Clock
from hexad.credit.values import check_unit


@dataclass(frozen=True, slots=True, eq=False)
class Continued:
    """``value`` and its standard error ``error``, with ``count`` continuations; all [N]."""

    value: Tensor
    error: Tensor
    count: Tensor


def continued(score: Tensor, scored: Tensor) -> Continued:
    """``V(s) = mean_k R(tau_k)`` over the usable ones of K continuations of each of N states.

    ``score`` float64 [N, K], ``scored`` bool [N, K]. ``error = sqrt(mean (R - V)^2 / n)``: nine
    coin flips leave .16, so that K = 9 cannot tell small effects from noise. NaN where a state has
    no usable continuation.
    """
    if score.ndim != 2 or score.shape != scored.shape:
        raise ValueError("score and scored must be [N, K]")
    if score.dtype != torch.float64 or scored.dtype != torch.bool:
        raise ValueError("expected float64 and bool")
    present = scored & torch.isfinite(score)
    count = present.sum(1)
    some = torch.where(count > 0, count.to(torch.float64), torch.nan)
    mean = torch.where(present, score, 0.0).sum(1) / some
    squares = torch.where(present, score - mean[:, None], 0.0).square().sum(1) / some
    return Continued(mean, (squares / some).sqrt(), count)


def continuation_advantage(clock: Clock, value: Tensor, final: Tensor, *, gamma: float) -> Tensor:
    """``A_t = r_t + gamma * V(s_{t+1}) - V(s_t)``, float64 [M].

    ``value`` float64 [M] is the continued value of each decision's state, ``final`` float64 [E]
    that of the state a truncated episode stopped in; behind a termination V is 0 and ``final`` is
    not read. Needs an environment that can be forked. Raises ``ValueError`` when a value that is
    read is not finite. Source: VinePPO, arXiv 2410.01679.
    """
    check_unit(gamma=gamma)
    if value.shape != clock.episode.shape or final.shape != clock.terminated.shape:
        raise ValueError("value must be [M] and final [E]")
    if value.dtype != torch.float64 or final.dtype != torch.float64:
        raise ValueError("expected float64")
    end = torch.where(clock.terminated, 0.0, final)[clock.episode]
    after = torch.where(clock.last, end, value.roll(-1))
    if not (torch.isfinite(value) & torch.isfinite(after)).all():
        raise ValueError("a value that is read is not finite")
    return clock.reward + gamma * after - value
