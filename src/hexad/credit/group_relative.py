"""Monte Carlo advantages of a terminal reward: one number an episode, relative to a baseline.

Shapes are the same everywhere: ``score`` float64 [E], ``scored`` bool [E], ``group`` int64 [E] ->
``advantage`` float64 [E], finite, without gradient. ``group`` holds carried group ids: any integers
in any order; groups may have different sizes. Nothing is inferred from order or from text.

A member that is not scored, or whose score is NaN or infinite, is *missing*: its advantage is 0 and
it moves nobody's baseline (:func:`usable` names the others, so that callers can count them). The
caller keeps missing members out of the loss's numerator and denominator. All estimators assume that
the members of a group started from the same initial state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Baseline = Literal["none", "batch"]
Std = Literal["population", "sample"]


@dataclass(frozen=True, slots=True)
class Deviation:
    """Which standard deviation divides, and at or below which one an advantage is exactly 0."""

    std: Std = "population"
    threshold: float = 1e-6


def usable(score: Tensor, scored: Tensor) -> Tensor:
    """bool [E]: judged, with a finite score. The rest is missing, never 0."""
    return scored & torch.isfinite(score)


def reinforce(
    score: Tensor, scored: Tensor, group: Tensor, *, baseline: Baseline = "none"
) -> Tensor:
    """REINFORCE: ``A_i = R_i - b``, with ``b = 0`` or the mean over all usable episodes.

    The batch mean includes the episode's own score, so it shrinks the advantage by ``(N - 1) / N``
    and mixes the difficulty of tasks. Source: Williams 1992. ``group`` is not used.
    """
    _check(score, scored, group)
    if baseline == "none":
        return torch.where(usable(score, scored), score, 0.0)
    whole = _Groups.of(score, scored, torch.zeros_like(group))
    return whole.centred


def rloo(score: Tensor, scored: Tensor, group: Tensor) -> Tensor:
    """Leave-one-out: ``A_i = R_i - mean_{j != i} R_j = K / (K - 1) * (R_i - mean R)``.

    ``K`` counts the usable members; with ``K < 2`` there is no baseline and the advantage is 0 (the
    group has no signal). Unbiased. Source: Kool et al. 2019; Ahmadian et al., arXiv 2402.14740.
    """
    _check(score, scored, group)
    groups = _Groups.of(score, scored, group)
    paired = groups.count >= 2
    factor = torch.where(paired, groups.count / torch.where(paired, groups.count - 1, 1.0), 0.0)
    return groups.centred * factor[groups.inverse]


def grpo(
    score: Tensor,
    scored: Tensor,
    group: Tensor,
    *,
    std: Std = "population",
    threshold: float = 1e-6,
) -> Tensor:
    """GRPO: ``A_i = (R_i - mean R) / std R``; exactly 0 where ``std R <= threshold``.

    There is no epsilon in the quotient. ``std`` divides by ``K`` (population) or ``K - 1`` (sample)
    usable members; a single member has standard deviation 0. Biased: groups are re-weighted by
    their inverse dispersion. Source: DeepSeekMath, arXiv 2402.03300.
    """
    _check(score, scored, group)
    groups = _Groups.of(score, scored, group)
    freedom = groups.count if std == "population" else groups.count - 1
    squares = groups.sum(groups.centred.square())
    has_freedom = freedom > 0
    variance = torch.where(has_freedom, squares / torch.where(has_freedom, freedom, 1.0), 0.0)
    deviation = variance.sqrt()
    spread = deviation > threshold
    scale = torch.where(spread, 1.0 / torch.where(spread, deviation, 1.0), 0.0)
    return groups.centred * scale[groups.inverse]


def dr_grpo(score: Tensor, scored: Tensor, group: Tensor) -> Tensor:
    """Dr. GRPO: ``A_i = R_i - mean R`` inside the group, without a standard deviation.

    Equals ``(K - 1) / K`` times :func:`rloo`; a single usable member gets 0. Belongs with the
    ``fixed`` denominator. Source: Liu et al., arXiv 2503.20783.
    """
    _check(score, scored, group)
    return _Groups.of(score, scored, group).centred


@dataclass(frozen=True, slots=True)
class _Groups:
    """Per-group sums over usable members. ``inverse`` [E] -> row of the [G] tensors."""

    inverse: Tensor
    count: Tensor
    centred: Tensor
    """float64 [E]: score minus group mean; exactly 0 for missing members and in flat groups."""

    @classmethod
    def of(cls, score: Tensor, scored: Tensor, group: Tensor) -> _Groups:
        present = usable(score, scored)
        ids, inverse = torch.unique(group, return_inverse=True)
        size = len(ids)
        filled = torch.where(present, score, 0.0)
        count = _scatter(present.to(score.dtype), inverse, size)
        some = count > 0
        mean = _scatter(filled, inverse, size) / torch.where(some, count, 1.0)
        # A flat group is exactly 0: its mean can differ from its members in the last bit.
        low, high = (_extreme(score, present, inverse, size, reduce) for reduce in ("amin", "amax"))
        informative = present & (low != high)[inverse]
        centred = torch.where(informative, filled - mean[inverse], 0.0)
        return cls(inverse, count, centred)

    def sum(self, values: Tensor) -> Tensor:
        """float64 [G]: sum of ``values`` [E] over each group."""
        return _scatter(values, self.inverse, len(self.count))


def _scatter(values: Tensor, inverse: Tensor, size: int) -> Tensor:
    return torch.zeros(size, dtype=values.dtype, device=values.device).index_add(0, inverse, values)


def _extreme(
    score: Tensor, present: Tensor, inverse: Tensor, size: int, reduce: Literal["amin", "amax"]
) -> Tensor:
    worst = float("inf") if reduce == "amin" else float("-inf")
    start = torch.full((size,), worst, dtype=score.dtype, device=score.device)
    return start.scatter_reduce(0, inverse, torch.where(present, score, worst), reduce)


def _check(score: Tensor, scored: Tensor, group: Tensor) -> None:
    if not (score.shape == scored.shape == group.shape and score.ndim == 1):
        raise ValueError(
            f"score {tuple(score.shape)}, scored {tuple(scored.shape)} and group "
            f"{tuple(group.shape)} must be one-dimensional and of equal length"
        )
    kinds = (score.dtype, scored.dtype, group.dtype)
    if kinds != (torch.float64, torch.bool, torch.int64):
        raise ValueError(f"expected float64, bool and int64, got {kinds}")
