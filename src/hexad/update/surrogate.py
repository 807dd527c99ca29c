"""Per-token losses (minimised) of the policy. The reducer owns every weight and denominator.

Inputs and outputs have one shape, usually [N] selected action tokens. ``log_ratio`` is that of
:mod:`hexad.update.ratio` in the role that :mod:`hexad.update.table` names, or a unit's
(:mod:`hexad.update.unit`); ``advantage`` carries no gradient. Masked tokens must have been left
out, or given log-ratio 0, advantage 0 and a ``current`` of 0 (``ratio.masked``). What is NaN at a
token that counts stays NaN: no gate hides it.

At ratio 1 every one has REINFORCE's gradient, ``-A grad log pi``. Here are the surrogates that
differentiate the ratio; gates on it are in :mod:`hexad.update.gate`, squared penalties in
:mod:`hexad.update.square`, and all can be had from this module.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.update.gate import cispo, difference, dis
from hexad.update.ratio import ratio
from hexad.update.square import squared, token_clip

__all__ = [
    "cispo",
    "clip",
    "difference",
    "dis",
    "nll",
    "outside",
    "plain",
    "sapo",
    "squared",
    "token_clip",
]


def nll(logprob: Tensor) -> Tensor:
    """Imitation: ``-log pi(a | h)``, of raw full-support log-probs."""
    return -logprob


def plain(log_ratio: Tensor, advantage: Tensor) -> Tensor:
    """Importance-weighted policy gradient: ``-rho A``."""
    return -(ratio(log_ratio) * advantage.detach())


def clip(
    log_ratio: Tensor, advantage: Tensor, low: float, high: float, dual: float | None = None
) -> Tensor:
    """PPO: ``-min(rho A, clip(rho, 1 - low, 1 + high) A)``, the pessimistic bound.

    The gradient is zero exactly where (A > 0 and rho > 1 + high) or (A < 0 and rho < 1 - low). It
    is neither a hard KL limit nor an off-policy correction. With ``dual`` = c > 1 the objective of
    a negative advantage is at least ``c A``, so that a ratio above c (an action that has become far
    *more* likely) has no gradient either. Sources: Schulman et al., arXiv 1707.06347; unequal
    bounds ("clip higher"): DAPO, arXiv 2503.14476; dual clip: Ye et al., arXiv 1912.09729.
    """
    if dual is not None and dual <= 1.0:
        raise ValueError(f"dual clip needs a bound above 1, got {dual}")
    fixed, rho = advantage.detach(), ratio(log_ratio)
    loss = -(rho * fixed).minimum(rho.clamp(1.0 - low, 1.0 + high) * fixed)
    if dual is None:
        return loss
    return torch.where(fixed < 0, loss.minimum(-dual * fixed), loss)


def sapo(log_ratio: Tensor, advantage: Tensor, tau: float, tau_negative: float) -> Tensor:
    """Soft gate: ``-(4 / tau) sigmoid(tau (rho - 1)) A``, tau by the sign of A.

    The coefficient of ``A grad log pi`` is ``rho sech^2(tau (rho - 1) / 2)``: 1 at rho = 1 and
    vanishing far away, but not monotone (at tau = 1 it peaks with 1.57 at rho = 2.06). ``tau``
    holds for A > 0, ``tau_negative`` otherwise; sources disagree on the second (1.05 and 2).
    Source: contract.md 2.9, algorithms.md 6.18.
    """
    if not (tau > 0 and tau_negative > 0):
        raise ValueError(f"temperatures must be positive, got {tau} and {tau_negative}")
    fixed = advantage.detach()
    heat = torch.where(fixed > 0, tau, tau_negative).to(log_ratio.dtype)
    return -(4.0 / heat) * torch.sigmoid(heat * (ratio(log_ratio) - 1.0)) * fixed


def outside(log_ratio: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Two bool tensors: rho below 1 - low, and rho above 1 + high."""
    rho = ratio(log_ratio.detach())
    return rho < 1.0 - low, rho > 1.0 + high
