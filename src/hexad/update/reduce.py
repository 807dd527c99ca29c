"""The one reducer: it owns every denominator of every loss.

It returns coefficients, one a token, such that ``loss = sum_t coefficient_t * term_t``. They are
computed over all tokens of one optimiser step, so that micro-batches and ranks only add up: the
loss and its gradient do not depend on split, order, padding or number of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hexad.contract.faults import ContractViolation

Denominator = Literal["token", "response", "segment", "episode", "prompt", "fixed", "pair"]
Inner = Literal["token", "episode"]


@dataclass(frozen=True, slots=True)
class Index:
    """Where each of ``T`` tokens belongs; all tensors are [T].

    ``row`` (segment), ``episode``, ``group`` and ``turn`` (number inside the episode) are int64 and
    carried. ``valid`` bool: the token counts in denominators; false on observations and on every
    token of a faulted or unscored episode. ``weight`` float: share in the loss, >= 0. A token whose
    advantage is 0, or that a gate has closed, stays valid.
    """

    row: Tensor
    turn: Tensor
    episode: Tensor
    group: Tensor
    valid: Tensor
    weight: Tensor

    def take(self, tokens: Tensor) -> Index:
        """The index of a subset (bool or int64) of the tokens."""
        fields = (self.row, self.turn, self.episode, self.group, self.valid, self.weight)
        return Index(*(field[tokens] for field in fields))


@dataclass(frozen=True, slots=True)
class Reduction:
    """A denominator with what it needs: ``inner`` for ``prompt``, ``length`` for ``fixed``."""

    denominator: Denominator
    inner: Inner | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        if (self.denominator == "prompt") != (self.inner is not None):
            raise ValueError("`inner` belongs to the denominator `prompt`, and only there")
        if (self.denominator == "fixed") != (self.length is not None):
            raise ValueError("`length` belongs to the denominator `fixed`, and only there")


def coefficients(index: Index, reduction: Reduction) -> Tensor:
    """float64 [T]: each token's factor in the loss; exactly 0 where it is not valid.

    With weights w, term l and W the sum of w over the valid tokens of a unit:

    - ``token``: sum w l / W of all tokens
    - ``response``, ``segment``, ``episode``: mean over units of (sum w l / W). A response is one
      assistant turn of an episode, a segment one row
    - ``prompt``: mean over groups of (sum w l / W), or, with ``inner="episode"``, of the mean over
      the group's episodes of (sum w l / W)
    - ``fixed``: sum w l / (N length), N episodes and a declared length
    - ``pair``: mean over pairs of (sum w l / W). A pair is a group of two, and its term is one
      number, which all its tokens share

    A unit without weight leaves its N. Raises ``ContractViolation``, naming the denominator, when
    no unit is left. Source: contract.md 2.1, algorithms.md 6.2.
    """
    weight = torch.where(index.valid, index.weight.to(torch.float64), 0.0)
    if not bool((weight > 0).any()):
        raise ContractViolation(
            f"the denominator `{reduction.denominator}` is zero: no valid token has weight"
        )
    match reduction.denominator:
        case "token":
            return weight / weight.sum()
        case "response":
            return _unit_mean(weight, pair(index.episode, index.turn))
        case "segment":
            return _unit_mean(weight, index.row)
        case "episode":
            return _unit_mean(weight, index.episode)
        case "pair":
            return _unit_mean(weight, index.group)
        case "fixed":
            _, units = _totals(weight, index.episode)
            return weight / (units * float(reduction.length or 0))
        case "prompt":
            if reduction.inner == "token":
                return _unit_mean(weight, index.group)
            return _nested_mean(weight, index.episode, index.group)


def pair(major: Tensor, minor: Tensor) -> Tensor:
    """One int64 key of two non-negative ones."""
    return major * (minor.max() + 1) + minor


def _totals(weight: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """[T]: the unit's total weight at each token; and the number of units that have any."""
    ids, inverse = torch.unique(unit, return_inverse=True)
    total = torch.zeros(len(ids), dtype=weight.dtype, device=weight.device)
    total = total.index_add(0, inverse, weight)
    return total[inverse], (total > 0).sum()


def _unit_mean(weight: Tensor, unit: Tensor) -> Tensor:
    total, units = _totals(weight, unit)
    counted = weight > 0
    return torch.where(counted, weight / torch.where(counted, total, 1.0), 0.0) / units


def _nested_mean(weight: Tensor, episode: Tensor, group: Tensor) -> Tensor:
    """Mean over groups of the mean over episodes of the weighted token mean."""
    counted = weight > 0
    total, _ = _totals(weight, episode)
    share = torch.where(counted, weight / torch.where(counted, total, 1.0), 0.0)
    # Shares sum to 1 in each non-empty episode, so a group's total is its number of episodes.
    return _unit_mean(share, group)
