"""Potential-based shaping: a dense reward that leaves the best policy what it was."""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.credit.clock import Clock
from hexad.credit.values import at_decision, at_successor, check_unit


def shaped(clock: Clock, potential: Tensor, *, gamma: float, bootstrap: bool) -> Clock:
    """The clock with ``F_t = gamma * Phi(s_{t+1}) - Phi(s_t)`` added to every reward.

    ``potential`` float [T] lies like a value: Phi of the prefix ending with a token, a function of
    the state alone, frozen. ``gamma`` must be the estimator's own. Phi is 0 behind a termination.
    Behind a truncation it is 0 too for an estimator that does not ``bootstrap`` (there the episode
    simply stops); one that does keeps Phi of the final state, because its critic learns V - Phi.
    Then ``sum_t gamma^t F_t = gamma^N Phi(s_N) - Phi(s_0)``, and Phi(s_0) is no action's doing.

    Sources: Ng, Harada, Russell 1999; Grzes 2017. Raises ``ValueError`` as
    :func:`hexad.credit.values.at_successor`.
    """
    check_unit(gamma=gamma)
    now = at_decision(clock, potential)
    if bootstrap:
        after = at_successor(clock, potential, now)
    else:
        after = torch.where(clock.last, 0.0, now.roll(-1))
    return clock.rewarded(clock.reward + gamma * after - now)
