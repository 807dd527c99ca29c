"""V-trace on the explicit clock: off-policy value targets with clipped ratios."""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.credit.clock import Clock
from hexad.credit.scan import scan
from hexad.credit.values import Estimate, at_decision, at_successor, carry, check_unit

LIMIT = 20.0
"""Log-ratios are clamped to +-LIMIT before ``exp`` (algorithms.md 0.2)."""


def vtrace(
    clock: Clock,
    value: Tensor,
    log_ratio: Tensor,
    *,
    gamma: float,
    lam: float = 1.0,
    bars: tuple[float, float] = (1.0, 1.0),
) -> Estimate:
    """Targets ``v_t = V_t + e_t`` with ``e_t = delta_t + gamma * c_t * e_{t+1}``.

    ``delta_t = rho_t * (r_t + gamma * V_{t+1} - V_t)``, ``rho_t = min(rho_bar, w_t)``,
    ``c_t = lam * min(c_bar, w_t)``, ``w_t = exp(log_ratio_t)``; ``bars`` is (rho_bar, c_bar) with
    rho_bar >= c_bar > 0. rho_bar sets the fixed point (a policy between mu and pi), c_bar only
    variance and speed. The advantage is ``rho_t * (r_t + gamma * q_{t+1} - V_t)`` with
    ``q = lam * v + (1 - lam) * V``, so that equal policies give GAE at ``lam``.

    ``log_ratio`` float64 [M] is log pi - log mu of each clock step (``Clock.sum`` of the tokens'
    log-ratios: a product over the step), and is frozen: with PPO's own moving ratio on top, pi is
    ``old``. Raises ``ValueError`` on a ratio that is not finite, and as :func:`gae`.

    Source: IMPALA, arXiv 1802.01561; the advantage at lam < 1 as in rlax.
    """
    check_unit(gamma=gamma, lam=lam)
    rho_bar, c_bar = bars
    if not rho_bar >= c_bar > 0:
        raise ValueError(f"rho_bar {rho_bar} must be at least c_bar {c_bar}, and both positive")
    weight = importance(clock, log_ratio)
    rho, trace = weight.clamp(max=rho_bar), lam * weight.clamp(max=c_bar)
    now = at_decision(clock, value)
    residual = at_successor(clock, value, now).mul_(gamma).add_(clock.reward).sub_(now)
    excess = scan(rho * residual, carry(clock, gamma * trace))
    ahead = torch.where(clock.last, 0.0, excess.roll(-1))
    return Estimate(rho * (residual + gamma * lam * ahead), now + excess)


def importance(clock: Clock, log_ratio: Tensor) -> Tensor:
    """float64 [M]: ``exp(log_ratio)`` with the log-ratio clamped to +-:data:`LIMIT`; detached."""
    if log_ratio.shape != clock.episode.shape or log_ratio.dtype != torch.float64:
        raise ValueError(f"log_ratio must be float64 {tuple(clock.episode.shape)}: one a step")
    if not torch.isfinite(log_ratio).all():
        raise ValueError("a log-ratio is not finite")
    return log_ratio.detach().clamp(-LIMIT, LIMIT).exp()
