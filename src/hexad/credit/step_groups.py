"""Credit of single steps relative to other steps of the group: GiGPO and turn-level GRPO.

``group`` int64 [E] is the carried group of each episode; only episodes on the clock take part.
Every comparison is exactly 0 where a step has nothing to be compared with, or all are equal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hexad.credit.clock import Clock
from hexad.credit.group_relative import Deviation, dr_grpo, grpo
from hexad.credit.reward_to_go import reward_to_go

UNKNOWN = -1
"""State code of a step whose state has no digest: it is compared with no other step."""


def gigpo(
    clock: Clock,
    group: Tensor,
    state: Tensor,
    *,
    gamma: float,
    omega: float = 1.0,
    by: Deviation | None = None,
) -> Tensor:
    """``A = A_E + omega * A_S``, float64 [M].

    ``A_E``: the episode's undiscounted score relative to its group. ``A_S``: the step's return with
    ``gamma`` (the paper: .95) relative to all steps of the *same group* that were taken in the same
    state: ``state`` int64 [M] codes the environment's state digest at the decision, or
    :data:`UNKNOWN`. Both are divided by the deviation ``by``, where one is given. A state that
    lacks history the future depends on is not the same state; an episode that visits a state twice
    counts twice. Meant for the turn clock. Source: arXiv 2505.10978.
    """
    if state.shape != clock.episode.shape or state.dtype != torch.int64:
        raise ValueError(f"state must be int64 {tuple(clock.episode.shape)}: one code a step")
    if (state < UNKNOWN).any():
        raise ValueError("a state code is negative")
    whole = _relative(clock.scores(), clock.lengths > 0, _checked(clock, group), by)
    returns = reward_to_go(clock, gamma=gamma)
    key = _pair(group[clock.episode], state)
    return whole[clock.episode] + omega * _relative(returns, state != UNKNOWN, key, by)


def turn_relative(
    clock: Clock, group: Tensor, *, gamma: float, by: Deviation | None = None
) -> Tensor:
    """float64 [M]: the return-to-go of a step relative to the group's steps of equal number.

    Step k of an episode is compared with step k of the group's other episodes that have one: the
    numbers of steps, not their states, are equal; where it has no other the advantage is 0. Divided
    by the deviation ``by``, where one is given. Meant for the turn clock.
    """
    returns = reward_to_go(clock, gamma=gamma)
    starts = torch.cumsum(clock.lengths, 0) - clock.lengths
    order = torch.argsort(clock.episode, stable=True)
    number = torch.empty_like(order)
    number[order] = torch.arange(len(order)) - starts[clock.episode[order]]
    key = _pair(_checked(clock, group)[clock.episode], number)
    return _relative(returns, torch.ones_like(clock.last), key, by)


def _relative(values: Tensor, counted: Tensor, key: Tensor, by: Deviation | None) -> Tensor:
    if by is None:
        return dr_grpo(values, counted, key)
    return grpo(values, counted, key, std=by.std, threshold=by.threshold)


def _pair(group: Tensor, inner: Tensor) -> Tensor:
    """int64 [M]: one key for each pair that occurs."""
    _, outer = torch.unique(group, return_inverse=True)
    found, within = torch.unique(inner, return_inverse=True)
    key: Tensor = outer * max(len(found), 1) + within
    return key


def _checked(clock: Clock, group: Tensor) -> Tensor:
    if group.shape != clock.terminated.shape or group.dtype != torch.int64:
        raise ValueError(f"group must be int64 {tuple(clock.terminated.shape)}: one an episode")
    return group
