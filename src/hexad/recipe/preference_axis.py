"""Preferences: the numbers of a preference loss, and how pairs are made of episodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hexad.recipe.axis import Axis, Fraction


class PreferenceSpec(Axis):
    """The numbers of ``update.surrogate: dpo``, ``ipo``, ``simpo`` or ``kto``."""

    beta: float = Field(gt=0)
    """How much a difference of scores counts; the larger, the closer to the reference."""
    reduction: Literal["sum", "mean"]
    """Score of a side: the sum of its action tokens' log-ratios, or their mean."""
    smoothing: float | None = Field(default=None, ge=0, lt=0.5)
    """``dpo``: probability that a label is the wrong way round."""
    gamma: float | None = Field(default=None, ge=0)
    """``simpo``: margin that the chosen side should win by, after ``beta``."""
    weight_desirable: float | None = Field(default=None, gt=0)
    """``kto``: weight of desirable episodes; 1 unless written."""
    weight_undesirable: float | None = Field(default=None, gt=0)
    """``kto``: weight of the others; 1 unless written."""
    excess: Fraction | None = None
    """Reduction ``sum``: share of the tokens behind the length that both sides have (LD-DPO)."""
    decay: float | None = Field(default=None, gt=0, le=1)
    """Reduction ``sum``: discount by which later turns weigh less (DMPO)."""
    nll: float | None = Field(default=None, gt=0)
    """Weight of the chosen side's mean negative log-likelihood, against its displacement."""
