"""Named probability ratios. Every name says which two policies it divides.

Roles: ``behaviour`` (the engine's record, mu), ``sampled`` (the version that sampled, evaluated by
the learner), ``old`` (the learner before the batch's first optimiser step), ``current`` and
``reference`` (the anchor of a penalty). Roles are keyword arguments, so that no two can be swapped
by position. A role that is missing is missing: these functions have no default for it.

Every function returns the **log**-ratio, float32 (float64 if a role is), of the roles' shape. Where
``mask`` is false it is exactly 0 (ratio 1) whatever the inputs hold, NaN included, and no gradient
flows; such positions must be left out of statistics.
"""

from __future__ import annotations

import torch
from torch import Tensor

LIMIT = 20.0
"""Log-ratios are clamped to +-LIMIT before ``exp``, and only there (algorithms.md 0.2)."""


def log_ratio(numerator: Tensor, denominator: Tensor, mask: Tensor) -> Tensor:
    """``log numerator - log denominator`` where ``mask``, else exactly 0."""
    wide = torch.promote_types(numerator.dtype, denominator.dtype)
    exact = torch.promote_types(wide, torch.float32)
    # `where` on the inputs too: a NaN behind the mask must not reach the backward pass.
    above = torch.where(mask, numerator.to(exact), 0.0)
    below = torch.where(mask, denominator.to(exact), 0.0)
    return above - below


def masked(role: Tensor, mask: Tensor) -> Tensor:
    """``role`` where ``mask``, else exactly 0 and without gradient, whatever it holds there."""
    return torch.where(mask, role, 0.0)


def ratio(log: Tensor) -> Tensor:
    """``exp`` of a log-ratio clamped to +-:data:`LIMIT`: finite, with zero gradient beyond it."""
    return log.clamp(-LIMIT, LIMIT).exp()


def update(*, current: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """log rho = log pi_current - log pi_old: how far this batch's steps have moved the policy."""
    return log_ratio(current, old.detach(), mask)


def engine(*, sampled: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    """log kappa = log pi_sampled - log mu: same weights, learner against engine."""
    return log_ratio(sampled.detach(), behaviour.detach(), mask)


def staleness(*, old: Tensor, sampled: Tensor, mask: Tensor) -> Tensor:
    """log pi_old - log pi_sampled: versions between sampling and this batch, learner only."""
    return log_ratio(old.detach(), sampled.detach(), mask)


def proximal(*, old: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    """log pi_old - log mu = staleness + engine."""
    return log_ratio(old.detach(), behaviour.detach(), mask)


def direct(*, current: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    """log pi_current - log mu = update + proximal."""
    return log_ratio(current, behaviour.detach(), mask)


def anchored(*, current: Tensor, reference: Tensor, mask: Tensor) -> Tensor:
    """log pi_current - log pi_reference: the x of every penalty in :mod:`hexad.update.kl`."""
    return log_ratio(current, reference.detach(), mask)


def k3(log: Tensor) -> Tensor:
    """``(rho - 1) - log rho`` >= 0, whose mean over actions of pi_old estimates KL(old, current).

    Source: Schulman, "Approximating KL divergence" (2020). Beyond +-:data:`LIMIT` the first part
    is clamped like every ratio.
    """
    return torch.expm1(log.clamp(-LIMIT, LIMIT)) - log
