"""Corrections for a policy that sampled other than the one that learns: detached weights.

``log`` is a log-ratio over ``behaviour``: ``engine`` (one version, two engines) or ``proximal``
(stale data too). A correction multiplies the per-token terms of the policy loss, and nothing else:
a dropped token stays in every denominator. Decoupled PPO (AReaL, arXiv 2505.24298) is the clip of
``update`` times :func:`tis` on ``proximal``. Token weights correct each step but not the states
that the other policy visited. Sources: algorithms.md 6.15, with the usual bounds; sources
disagree, so none is a default.

``unit`` and ``counted``, int64 and bool [N], are those of :func:`hexad.update.unit.combine`; units
must be whole. Rules of a unit hold at all its tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hexad.update import ratio
from hexad.update.unit import combine


class Correction(NamedTuple):
    """``weight`` float [N] multiplies the terms, 0 where dropped; ``keep`` bool [N]: not dropped.

    Neither carries a gradient. A NaN in the log-ratio stays NaN in the weight of the rules that
    weigh, and drops the unit by those that only reject.
    """

    weight: Tensor
    keep: Tensor


def tis(log: Tensor, high: float) -> Correction:
    """Truncated importance sampling: ``min(w, high)``. ``high`` = inf weighs without a cap."""
    _positive(high)
    weight = _weight(log).clamp(max=high)
    return Correction(weight, torch.ones_like(weight, dtype=torch.bool))


def icepop(log: Tensor, low: float, high: float) -> Correction:
    """IcePop: ``w`` on the *closed* interval [low, high], else 0. Source: arXiv 2510.18855."""
    _positive(low, high, ordered=True)
    weight = _weight(log)
    return _kept(weight, (weight < low) | (weight > high))


def mis(log: Tensor, high: float) -> Correction:
    """Masked importance sampling: ``w`` where w <= high, else 0; of tokens, or a unit's ``log``."""
    _positive(high)
    weight = _weight(log)
    return _kept(weight, weight > high)


def sequence_tis(log: Tensor, unit: Tensor, counted: Tensor, high: float) -> Correction:
    """``min(prod_{t in u} w_t, high)`` at every token of unit u."""
    return tis(combine(log.detach(), unit, counted, "sum"), high)


def geometric(log: Tensor, unit: Tensor, counted: Tensor, low: float, high: float) -> Correction:
    """Keep u, unweighted, where its geometric mean ratio lies in the closed [low, high]."""
    _positive(low, high, ordered=True)
    mean = _weight(combine(log.detach(), unit, counted, "mean"))
    return _rejected((mean >= low) & (mean <= high), mean)


def k3(log: Tensor, unit: Tensor, counted: Tensor, high: float) -> Correction:
    """Keep u, unweighted, where the mean over its tokens of ``(w - 1) - log w`` is <= high."""
    _positive(high)
    mean = combine(ratio.k3(log.detach()), unit, counted, "mean")
    return _rejected(mean <= high, mean)


def opsm(log: Tensor, advantage: Tensor, unit: Tensor, counted: Tensor, high: float) -> Correction:
    """Off-policy sequence masking: drop tokens with A < 0 of units that have grown unlikely.

    Unlikely: the unit's mean of ``log mu - log pi`` exceeds ``high``, that is the mean of ``-log``.
    A response that the policy has already left teaches nothing by being pushed down further.
    Published with ``direct``; with ``proximal`` the verdict is fixed for the batch. Source:
    DeepSeek-V3.2 (secondary), which gives no bound.
    """
    _positive(high)
    mean = combine(-log.detach(), unit, counted, "mean")
    return _rejected((advantage.detach() >= 0) | (mean <= high), mean)


def _weight(log: Tensor) -> Tensor:
    return ratio.ratio(log.detach())


def _kept(weight: Tensor, dropped: Tensor) -> Correction:
    return Correction(torch.where(dropped, 0.0, weight), ~dropped)


def _rejected(keep: Tensor, like: Tensor) -> Correction:
    return Correction(keep.to(like.dtype), keep)


def _positive(*bounds: float, ordered: bool = False) -> None:
    if not all(bound > 0 for bound in bounds) or (ordered and not bounds[0] < bounds[1]):
        raise ValueError(f"bounds of a ratio are positive and ascend, got {bounds}")
