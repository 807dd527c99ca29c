"""Surrogates that weigh the log-prob by a bounded ratio, or drop tokens by a gate.

A dropped token contributes 0. It stays in the denominator, so that gating can only shrink an
update, unless ``action.gated: out`` is declared.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.update.ratio import ratio


def cispo(log_ratio: Tensor, current: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """``-sg(clip(rho, 1 - low, 1 + high)) A log pi``: the gradient saturates, it never vanishes.

    ``low`` >= 1 is no lower bound. Source: MiniMax-M1, arXiv 2506.13585, which keeps only an upper
    bound and does not disclose it; other code names the cap itself, 1 + high.
    """
    weight = ratio(log_ratio.detach()).clamp(1.0 - low, 1.0 + high)
    return -(weight * advantage.detach() * current)


def dis(
    log_ratio: Tensor,
    current: Tensor,
    advantage: Tensor,
    low: float,
    high: float,
    *,
    through: bool = False,
) -> Tensor:
    """Direct double-sided importance sampling: ``-sg(f(d)) A log pi``, d = pi / mu.

    ``f(d) = d`` on the *open* interval (1 - low, 1 + high), else 0, whatever the sign of A. The
    paper does not say whether f is detached. Detached, the gradient is ``-d A grad log pi``, the
    off-policy policy gradient. ``through=True`` differentiates f too: ``-d A (1 + log pi) grad log
    pi``, which is biased and has the wrong sign where pi > 1 / e; it is there to reproduce code
    that does so. Source: SAO, arXiv 2607.07508 (secondary readings).
    """
    closed = dis_closed(log_ratio, current, advantage, low, high)
    weight = torch.where(closed, 0.0, ratio(log_ratio))
    return -((weight if through else weight.detach()) * advantage.detach() * current)


def beyond(log_ratio: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """What :func:`dis` drops, two bool tensors: d <= 1 - low, and d >= 1 + high."""
    rho = ratio(log_ratio.detach())
    return rho <= 1.0 - low, rho >= 1.0 + high


def dis_closed(
    log_ratio: Tensor, current: Tensor, advantage: Tensor, low: float, high: float
) -> Tensor:
    """Bool [N]: what :func:`dis` drops, on either side, whatever the sign of A."""
    below, above = beyond(log_ratio, low, high)
    return below | above


def difference(
    log_ratio: Tensor, current: Tensor, advantage: Tensor, low: float, high: float
) -> Tensor:
    """``-rho A`` unless the probability has moved too far the way that A pushes.

    Dropped where A > 0 and ``pi - mu > high``, or A <= 0 and ``pi - mu < -low``. Unlike a ratio's,
    this gate lets rare tokens move (0.01 -> 0.05) and holds frequent ones (0.70 -> 0.95). Source:
    prime-rl's default loss; DPPO with the binary total variation, arXiv 2602.04879.
    """
    closed = difference_closed(log_ratio, current, advantage, low, high)
    return -(torch.where(closed, 0.0, ratio(log_ratio)) * advantage.detach())


def difference_closed(
    log_ratio: Tensor, current: Tensor, advantage: Tensor, low: float, high: float
) -> Tensor:
    """Bool [N]: what :func:`difference` drops: moved too far the way that A pushes."""
    below, above = moved(log_ratio, current, low, high)
    return torch.where(advantage.detach() > 0, above, below)


def moved(log_ratio: Tensor, current: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Two bool tensors: the probability is lower than mu by more than ``low``, higher by ``high``.

    mu is ``current`` less the log-ratio, so the two must be of the same tokens (no unit's ratio).
    """
    new = current.detach()
    change = new.exp() - (new - log_ratio.detach()).exp()
    return change < -low, change > high
