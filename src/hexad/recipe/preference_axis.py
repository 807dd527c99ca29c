"""Preferences: the numbers of a preference loss, and how pairs are made of episodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hexad.recipe.axis import Axis, Fraction, Positive


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


class PairsSpec(Axis):
    """How the attempts at one task become pairs, or single labels for KTO."""

    rule: Literal["reward_gap", "shortest_correct", "branch", "labels"]
    """``reward_gap``: best with worst. ``shortest_correct``: the shortest correct attempt with a
    wrong or longer one. ``branch``: attempts that are equal up to some turn, the latest such turn
    first, compared from there on. ``labels``: no pairs, but correct attempts and others (KTO)."""
    gap: float | None = Field(default=None, gt=0)
    """Rules ``reward_gap`` and ``branch``: least difference of the two scores."""
    most: Positive = 1
    """Pairs a task; every attempt is in one at most."""


class RoundsSpec(Axis):
    """Regime ``iterative``: the policy samples, then learns from what was made of its samples."""

    tasks: Positive
    """Train tasks tried at the start of a round, each ``data.group_size`` times."""
    passes: Positive | None = None
    """Passes over what was made of them; ``null`` repeats until a budget ends the run."""
    rounds: Positive = 1
    """Rounds; each samples new tasks with the policy as it is then."""
    reference: Literal["initial", "round_start"] | None = None
    """Several rounds: the frozen policy that the loss compares with is the one that the run starts
    with, or at every round the one that sampled it."""
    forks: Positive | None = None
    """Rule ``branch``: so many further ends of one attempt at every task, before each of its turns
    but the first. It is the first wrong attempt where another is right, else the first."""
    keep: Literal["correct", "best", "expert"] | None = None
    """Imitation. One's own samples: all correct ones, or the best one of every task. ``expert``:
    the expert's turn in every state that they visited, those of earlier rounds, too (DAgger)."""
