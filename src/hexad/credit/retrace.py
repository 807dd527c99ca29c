"""Retrace(lambda): off-policy targets for action values over the kept support."""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.credit.clock import Clock
from hexad.credit.scan import scan
from hexad.credit.values import at_successor, carry, check_unit, read
from hexad.credit.vtrace import importance


def retrace(
    clock: Clock, q: Tensor, expected: Tensor, log_ratio: Tensor, *, gamma: float, lam: float
) -> Tensor:
    """float64 [M]: ``G_t = r_t + gamma * (E_pi q(s_{t+1}) + c_{t+1} * (G_{t+1} - q_{t+1}))``.

    ``c_t = lam * min(1, w_t)`` with ``w = exp(log_ratio)``, log pi - log mu of each step; nothing
    behind a termination, ``E_pi q`` of the stored final state behind a truncation. ``q`` float64
    [M] is q(s_t, a_t) of the taken action; ``expected`` float [T] lies like a value: E_pi q(s, .)
    of the prefix ending with a token (:func:`expectation`). Both from before any update.

    Meant for the token clock, where the actions of a state are the tokens of its kept support.
    Source: Munos et al., arXiv 1606.02647.
    """
    check_unit(gamma=gamma, lam=lam)
    if q.shape != clock.episode.shape or q.dtype != torch.float64:
        raise ValueError(f"q must be float64 {tuple(clock.episode.shape)}: one a step")
    q = q.detach()
    trace = lam * importance(clock, log_ratio).clamp(max=1.0)
    known = read(clock, expected, clock.decision)
    excess = at_successor(clock, expected, known).mul_(gamma).add_(clock.reward).sub_(q)
    return q + scan(excess, carry(clock, gamma * trace.roll(-1)))


def expectation(q: Tensor, logprob: Tensor, kept: Tensor) -> Tensor:
    """float64 [N]: ``sum_a pi(a) q(a)`` over the kept support.

    ``q`` and ``logprob`` float [N, S], ``kept`` bool [N, S]; what stands outside the support is not
    read. Raises ``ValueError`` where the probabilities of the support do not sum to 1 within 1e-4:
    every role is normalised over the recorded set.
    """
    if not (q.shape == logprob.shape == kept.shape and q.ndim == 2) or kept.dtype != torch.bool:
        raise ValueError("q, logprob and kept (bool) must be [N, S]")
    probability = torch.where(kept, logprob.detach().to(torch.float64).exp(), 0.0)
    if not ((probability.sum(1) - 1).abs() <= 1e-4).all():
        raise ValueError("a distribution is not normalised over its kept support")
    return (probability * torch.where(kept, q.detach().to(torch.float64), 0.0)).sum(1)
