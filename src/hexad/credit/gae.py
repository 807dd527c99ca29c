"""Generalised advantage estimation, n-step and lambda returns on the explicit clock.

``delta_t = r_t + gamma * V(s_{t+1}) - V(s_t)`` with V = 0 behind a termination and V of the final
state behind a truncation; the trace stops at both. One clock step is one ``gamma * lambda``,
whatever stands between two decisions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hexad.credit.clock import Clock
from hexad.credit.scan import Steady, Sweep, chunks, scan
from hexad.credit.values import ALL, Estimate, at_decision, at_ends, carry, check_unit

_Trace = Callable[[slice, Tensor, Tensor, Tensor], None]
"""``(part, ends, x, y)``."""


def gae(
    clock: Clock, value: Tensor, *, gamma: float, policy: float | Tensor, critic: float | Tensor
) -> Estimate:
    """``A_t = delta_t + gamma * lambda * A_{t+1}``, with one lambda for each of the two uses.

    ``advantage`` is A at lambda = ``policy``; ``target`` is ``V(s_t) + A_t`` at lambda = ``critic``
    (1: the return), from the same ``value`` float [T] of before any update. A lambda is a number or
    float64 [M] (:func:`adaptive`). Raises ``ValueError`` when a value that is read is not finite, a
    final state is missing, or gamma or a lambda lies outside [0, 1].

    Sources: Schulman et al., arXiv 1506.02438; decoupled: VAPO, arXiv 2504.05118; observations
    skipped: SAO, arXiv 2607.07508.
    """
    check_unit(gamma=gamma, policy=policy, critic=critic)
    same = not isinstance(policy, Tensor) and not isinstance(critic, Tensor) and policy == critic
    parts = list(chunks(len(clock.reward)))
    widest = len(clock.reward[parts[0]]) if parts else 0
    advantage, target = torch.empty_like(clock.reward), torch.empty_like(clock.reward)
    space = torch.empty((2, widest), dtype=torch.float64)
    actor, own = _sweep(clock, gamma * policy), _sweep(clock, gamma * critic)
    for part in parts:
        now = at_decision(clock, value, part, out=target[part])
        residual, traced = space[:, : len(now)]
        ends = _residual(clock, value, now, gamma, part, out=residual)
        actor(part, ends, residual, advantage[part])
        if same:
            now.add_(advantage[part])
        else:
            own(part, ends, residual, traced)
            now.add_(traced)
    return Estimate(advantage, target)


def _sweep(clock: Clock, factor: float | Tensor) -> _Trace:
    """A call writes the trace ``y`` of a part's residuals ``x``; parts come last to first."""
    if isinstance(factor, Tensor) and factor.ndim:
        varied = Sweep()
        return lambda part, ends, x, y: varied(x, carry(clock, factor, part), y)
    steady = Steady(float(factor))
    return lambda part, ends, x, y: steady(x, ends, y)


def adaptive(clock: Clock, *, alpha: float) -> Tensor:
    """float64 [M]: ``lambda = 1 - 1 / (alpha * l)``, clamped to [0, 1], ``l`` the episode's steps.

    Derived for gamma = 1: then the trace reaches over ``alpha * l`` steps. ``alpha`` has no default
    because sources disagree by a factor of 30: VAPO 0.05, SAO 1.5. ``alpha * l < 1`` gives 0.
    """
    if not alpha > 0:
        raise ValueError("alpha must be positive")
    steps = clock.lengths.to(torch.float64)[clock.episode]
    return (1.0 - 1.0 / (alpha * steps)).clamp(0.0, 1.0)


def n_step(clock: Clock, value: Tensor, *, gamma: float, n: int) -> Tensor:
    """float64 [M]: ``G^(n)_t = sum_{k<n} gamma^k r_{t+k} + gamma^n V(s_{t+n})``.

    Stops early where the episode ends, and bootstraps there only if it was truncated. Computed from
    sums of residuals: with ``S_t`` their discounted sum to the end, ``G = V + S_t - gamma^n
    S_{t+n}``.
    """
    check_unit(gamma=gamma)
    if n < 1:
        raise ValueError("n must be at least 1")
    now = at_decision(clock, value)
    residual = torch.empty_like(now)
    _residual(clock, value, now, gamma, out=residual)
    whole = scan(residual, carry(clock, gamma))
    behind = torch.zeros_like(whole)
    if n < len(whole):
        inside = clock.episode[n:] == clock.episode[:-n]
        behind[:-n] = torch.where(inside, whole[n:], 0.0)
    return now + whole - gamma**n * behind


def _residual(
    clock: Clock, value: Tensor, now: Tensor, gamma: float, part: slice = ALL, *, out: Tensor
) -> Tensor:
    """Write delta [m] of a part into ``out``; returns where its episodes end, int64 [k]."""
    reward = clock.reward[part]
    at, after = at_ends(clock, value, part)
    torch.sub(reward, now, out=out)
    out[:-1].add_(now[1:], alpha=gamma)
    out[at] = reward[at] + gamma * after - now[at]
    return at[clock.last[part][at]]
