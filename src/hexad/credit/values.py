"""Values at the two ends of every clock step, and what the end of an episode does to them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hexad.credit.clock import TERMINAL, Clock
from hexad.credit.scan import positions

ALL = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """``advantage`` for the policy and ``target`` for the critic, both float64 [M], detached."""

    advantage: Tensor
    target: Tensor


def at_decision(
    clock: Clock, value: Tensor, part: slice = ALL, *, out: Tensor | None = None
) -> Tensor:
    """float64 [M]: V(s). ``value`` float [T], read at decisions only; detached.

    ``part`` of the steps only, where given; ``out`` receives the result. Raises ``ValueError`` when
    a value that is read is not finite, or ``value`` is not [T].
    """
    return _finite(read(clock, value, clock.decision[part], out=out))


def at_successor(clock: Clock, value: Tensor, now: Tensor) -> Tensor:
    """float64 [M]: V(s'); 0 behind a termination, V of the stored final state behind a truncation.

    ``now`` is V(s): inside an episode a step's successor is the next one's decision. Raises
    ``ValueError`` as :func:`at_ends`.
    """
    at, found = at_ends(clock, value)
    after = torch.empty_like(now)
    after[:-1] = now[1:]
    after[at] = found
    return after


def at_ends(clock: Clock, value: Tensor, part: slice = ALL) -> tuple[Tensor, Tensor]:
    """The steps after which no next one of the ``part`` follows, int64 [k], and V(s') there, [k].

    Raises ``ValueError`` as :func:`at_decision`, and when a final state is missing: such episodes
    are refused by every estimator that bootstraps (drop ``clock.missing`` with ``clock.keep``).
    """
    if clock.missing.any():
        which = clock.missing.nonzero().squeeze(1).tolist()
        raise ValueError(f"episodes {which} have no final state to bootstrap from")
    last = clock.last[part]
    at = positions(last)
    if len(last) and not last[-1]:  # the part ends inside an episode
        at = torch.cat((at, at.new_tensor([len(last) - 1])))
    successor = clock.successor[part][at]
    found = read(clock, value, successor.clamp_min(0)).masked_fill_(successor == TERMINAL, 0.0)
    return at, _finite(found)


def carry(clock: Clock, factor: float | Tensor, part: slice = ALL) -> Tensor:
    """float64 [M]: ``factor`` (a number or [M]) where the trace goes on, exactly 0 where it stops.

    It stops at the end of an episode, terminated or truncated, and goes on across a seam.
    """
    last = clock.last[part]
    if isinstance(factor, Tensor) and factor.ndim:
        return factor[part].to(torch.float64).masked_fill(last, 0.0)
    return torch.full(last.shape, float(factor), dtype=torch.float64).masked_fill_(last, 0.0)


def check_unit(**numbers: float | Tensor) -> None:
    """Raise ``ValueError`` unless every number lies in [0, 1]."""
    for name, number in numbers.items():
        inside = torch.as_tensor(number, dtype=torch.float64)
        if not ((inside >= 0) & (inside <= 1)).all():
            raise ValueError(f"{name} must lie in [0, 1]")


def read(clock: Clock, value: Tensor, places: Tensor, *, out: Tensor | None = None) -> Tensor:
    """float64: the values at ``places`` (tokens), whatever they are; fresh, or in ``out``."""
    if value.shape != clock.step.shape or not value.is_floating_point():
        raise ValueError(f"value must be float {tuple(clock.step.shape)}: one number a token")
    if out is None:
        return value.detach().index_select(0, places).to(torch.float64)
    if value.dtype == out.dtype:
        return torch.index_select(value.detach(), 0, places, out=out)
    return out.copy_(value.detach().index_select(0, places))


def _finite(values: Tensor) -> Tensor:
    # The sum is quick, and finite only if all are; the other way round it may overflow.
    if not torch.isfinite(values.sum()) and not torch.isfinite(values).all():
        raise ValueError("a value that is read is not finite")
    return values
