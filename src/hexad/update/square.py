"""Kimi's surrogates: a squared log-ratio holds the policy, and a zero advantage still pulls back.

The squares have no clamp: they are finite at any finite log-ratio.
"""

from __future__ import annotations

from torch import Tensor


def squared(log_ratio: Tensor, advantage: Tensor, tau: float) -> Tensor:
    """Kimi k1.5: ``(A - tau x)^2 / (2 tau)``, x the *sum* of an episode's log-ratios.

    The gradient is ``-(A - tau x) grad x``, that of ``-A x + (tau / 2) x^2``: mirror descent
    towards ``old exp(A / tau)``. A is the score less the group's mean. Takes the
    episode's log-ratio at each of its tokens (``combine(..., "sum")``), averaged over the episode.
    Sources: Kimi k1.5, arXiv 2501.12599; K2, arXiv 2507.20534, whose loss is 2 tau times
    this. The papers disclose no tau.
    """
    _positive(tau)
    return (advantage.detach() - tau * log_ratio).square() / (2.0 * tau)


def token_clip(log_ratio: Tensor, advantage: Tensor, low: float, high: float, tau: float) -> Tensor:
    """Kimi K2.5: ``-exp(clip(log rho, -low, high)) A + tau (log rho)^2``.

    Bounds are of the *log*-ratio, both >= 0: outside [-low, high] the first term has no gradient,
    whatever the sign of A; the second has it everywhere. Source: Kimi K2.5, arXiv 2602.02276
    (secondary readings); it discloses no number, and its interval might be of the ratio.
    """
    _positive(tau)
    if not (low >= 0 and high >= 0):
        raise ValueError(f"bounds of a log-ratio around 0 are not negative, got {low} and {high}")
    return tau * log_ratio.square() - log_ratio.clamp(-low, high).exp() * advantage.detach()


def apart(log_ratio: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """What :func:`token_clip` stops, two bool tensors: log rho < -low, and log rho > high."""
    log = log_ratio.detach()
    return log < -low, log > high


def _positive(tau: float) -> None:
    if not tau > 0:
        raise ValueError(f"tau must be positive, got {tau}")
