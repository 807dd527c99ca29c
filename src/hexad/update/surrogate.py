"""Per-token losses (minimised) of the policy. The reducer owns every weight and denominator.

Inputs and outputs have one shape, usually [N] selected action tokens. ``log_ratio`` is the *update*
ratio log pi_current - log pi_old; ``advantage`` carries no gradient. Masked tokens must have been
left out, or given log-ratio 0 and advantage 0.
"""

from __future__ import annotations

from torch import Tensor

from hexad.update.ratio import ratio


def nll(logprob: Tensor) -> Tensor:
    """Imitation: ``-log pi(a | h)``, of raw full-support log-probs."""
    return -logprob


def plain(log_ratio: Tensor, advantage: Tensor) -> Tensor:
    """Importance-weighted policy gradient: ``-rho A``.

    At rho = 1 its gradient is REINFORCE's, ``-A grad log pi``.
    """
    return -(ratio(log_ratio) * advantage.detach())


def clip(log_ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """PPO: ``-min(rho A, clip(rho, 1 - low, 1 + high) A)``, the pessimistic bound.

    The gradient is zero exactly where (A > 0 and rho > 1 + high) or (A < 0 and rho < 1 - low). It
    is neither a hard KL limit nor an off-policy correction. Sources: Schulman et al., arXiv
    1707.06347; unequal bounds ("clip higher"): DAPO, arXiv 2503.14476.
    """
    fixed, rho = advantage.detach(), ratio(log_ratio)
    return -(rho * fixed).minimum(rho.clamp(1.0 - low, 1.0 + high) * fixed)


def outside(log_ratio: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Two bool tensors: rho below 1 - low, and rho above 1 + high."""
    rho = ratio(log_ratio.detach())
    return rho < 1.0 - low, rho > 1.0 + high
