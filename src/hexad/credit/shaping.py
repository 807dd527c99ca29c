"""Potential-based shaping: a dense reward that leaves the best policy what it was."""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.credit.clock import Clock
from hexad.credit.scan import positions
from hexad.credit.values import at_decision, at_successor, check_unit

ROUNDING = 1e-9
"""Largest telescoping error, as a share of the largest potential and the number of steps."""


def shaped(clock: Clock, potential: Tensor, *, gamma: float, bootstrap: bool) -> Clock:
    """The clock with ``F_t = gamma * Phi(s_{t+1}) - Phi(s_t)`` added to every reward.

    ``potential`` float [T] lies like a value: Phi of the prefix ending with a token, a function of
    the state alone, frozen. ``gamma`` must be the estimator's own. Phi is 0 behind a termination.
    Behind a truncation it is 0 too for an estimator that does not ``bootstrap`` (there the episode
    simply stops); one that does keeps Phi of the final state, because its critic learns V - Phi.
    Then ``sum_t gamma^t F_t = gamma^N Phi(s_N) - Phi(s_0)``, and Phi(s_0) is no action's doing;
    every call checks that (:func:`require_telescoping`).

    Sources: Ng, Harada, Russell 1999; Grzes 2017. Raises ``ValueError`` as
    :func:`hexad.credit.values.at_successor`.
    """
    check_unit(gamma=gamma)
    now = at_decision(clock, potential)
    if bootstrap:
        after = at_successor(clock, potential, now)
    else:
        after = torch.where(clock.last, 0.0, now.roll(-1))
    extra = gamma * after - now
    require_telescoping(clock, extra, (now, after), gamma)
    return clock.rewarded(clock.reward + extra)


def require_telescoping(
    clock: Clock, extra: Tensor, potential: tuple[Tensor, Tensor], gamma: float
) -> None:
    """Raise ``ValueError`` unless every episode's ``extra`` float64 [M] sums to its ends alone.

    ``sum_t gamma^t F_t = gamma^N Phi(s_N) - Phi(s_0)``, where ``potential`` holds Phi(s) and
    Phi(s') of every step, both [M]. It fails where a state is not worth the same as the end of one
    step and as the beginning of the next: then the sum would depend on the way.
    """
    if not len(extra):
        return
    now, after = potential
    ends = positions(clock.last)
    begins = torch.cat((ends.new_zeros(1), ends[:-1] + 1))
    lengths = ends - begins + 1
    place = torch.arange(len(extra)) - torch.repeat_interleave(begins, lengths)
    episode = torch.repeat_interleave(torch.arange(len(ends)), lengths)
    powers = gamma ** place.to(torch.float64)
    total = torch.zeros(len(ends), dtype=torch.float64).index_add(0, episode, powers * extra)
    due = gamma ** lengths.to(torch.float64) * after[ends] - now[begins]
    scale = 1.0 + float(now.abs().max()) + float(after.abs().max())
    wrong = (total - due).abs() > ROUNDING * scale * lengths
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise ValueError(
            f"shaping of episode {int(clock.episode[ends[at]])} sums to {float(total[at]):.6g} "
            f"and its ends say {float(due[at]):.6g}: it does not telescope"
        )
