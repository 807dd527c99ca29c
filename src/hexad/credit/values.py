"""Values at the two ends of every clock step, and what the end of an episode does to them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hexad.credit.clock import MISSING, TERMINAL, Clock


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """``advantage`` for the policy and ``target`` for the critic, both float64 [M], detached."""

    advantage: Tensor
    target: Tensor


def at_decision(clock: Clock, value: Tensor) -> Tensor:
    """float64 [M]: V(s). ``value`` float [T], read at decisions only; detached.

    Raises ``ValueError`` when a value that is read is not finite, or ``value`` is not [T].
    """
    if value.shape != clock.step.shape or not value.is_floating_point():
        raise ValueError(f"value must be float {tuple(clock.step.shape)}: one number a token")
    return _finite(value.detach()[clock.decision].to(torch.float64))


def at_successor(clock: Clock, value: Tensor) -> Tensor:
    """float64 [M]: V(s'); 0 behind a termination, V of the stored final state behind a truncation.

    Raises ``ValueError`` as :func:`at_decision`, and when a final state is missing: such episodes
    are refused by every estimator that bootstraps (drop ``clock.missing`` with ``clock.keep``).
    """
    if value.shape != clock.step.shape or not value.is_floating_point():
        raise ValueError(f"value must be float {tuple(clock.step.shape)}: one number a token")
    if (clock.successor == MISSING).any():
        which = clock.missing.nonzero().squeeze(1).tolist()
        raise ValueError(f"episodes {which} have no final state to bootstrap from")
    ends = clock.successor == TERMINAL
    found = value.detach()[clock.successor.clamp_min(0)].to(torch.float64)
    return _finite(found.masked_fill_(ends, 0.0))


def carry(clock: Clock, factor: float | Tensor) -> Tensor:
    """float64 [M]: ``factor`` (a number or [M]) where the trace goes on, exactly 0 where it stops.

    It stops at the end of an episode, terminated or truncated, and goes on across a seam.
    """
    factor = torch.as_tensor(factor, dtype=torch.float64)
    return torch.where(clock.last, 0.0, factor)


def check_unit(**numbers: float | Tensor) -> None:
    """Raise ``ValueError`` unless every number lies in [0, 1]."""
    for name, number in numbers.items():
        inside = torch.as_tensor(number, dtype=torch.float64)
        if not ((inside >= 0) & (inside <= 1)).all():
            raise ValueError(f"{name} must lie in [0, 1]")


def _finite(values: Tensor) -> Tensor:
    if not torch.isfinite(values).all():
        raise ValueError("a value that is read is not finite")
    return values
