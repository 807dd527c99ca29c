"""Dynamic sampling: which groups are trained on, and what becomes of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Signal(StrEnum):
    """What a group can teach a group-relative method, judged by its live members alone."""

    USABLE = "usable"
    """At least two live members whose scores differ by more than the tolerance."""
    ALL_RIGHT = "all_right"
    """Equal scores, every live member a success."""
    ALL_WRONG = "all_wrong"
    """Equal scores, no live member a success."""
    FLAT = "flat"
    """Equal scores although verdicts differ."""
    ALONE = "alone"
    """Fewer than two live members."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One generated group: per member ``scores``, ``live`` and ``success``; ``tokens`` sampled.

    A member is live if it is scored and not masked; the scores of others are not read.
    """

    scores: tuple[float, ...]
    live: tuple[bool, ...]
    success: tuple[bool, ...]
    tokens: int

    @property
    def usable(self) -> tuple[int, ...]:
        """Indices of live members with a finite score."""
        both = enumerate(zip(self.scores, self.live, strict=True))
        return tuple(i for i, (score, live) in both if live and math.isfinite(score))

    @property
    def mixed(self) -> bool:
        """By verdict: live members that succeeded beside live ones that failed."""
        return len({self.success[i] for i in self.usable}) == 2


@dataclass(frozen=True, slots=True)
class Selection:
    """Indices of outcomes, each in exactly one place, in task order.

    ``kept`` are trained on now, ``carried`` wait for a later batch, ``surplus`` were usable and are
    thrown away, ``dropped`` have no signal. ``short``: the target was not reached; if the
    cap was not reached either, ``more`` groups are wanted.
    """

    kept: tuple[int, ...]
    carried: tuple[int, ...]
    surplus: tuple[int, ...]
    dropped: dict[Signal, tuple[int, ...]]
    short: bool
    more: int


def signal(outcome: Outcome, *, tolerance: float = 1e-6) -> Signal:
    """Whether scores differ, and if not, why. Scores within ``tolerance`` are equal."""
    members = outcome.usable
    if len(members) < 2:
        return Signal.ALONE
    scores = [outcome.scores[i] for i in members]
    if max(scores) - min(scores) > tolerance:
        return Signal.USABLE
    if outcome.mixed:
        return Signal.FLAT
    return Signal.ALL_RIGHT if outcome.success[members[0]] else Signal.ALL_WRONG


def select(
    outcomes: Sequence[Outcome],
    target: int,
    *,
    surplus: Literal["carry", "drop"],
    capped: bool,
    at_cap: Literal["partial", "skip"],
    tolerance: float = 1e-6,
) -> Selection:
    """The first ``target`` usable groups in task order - never in order of arrival.

    ``outcomes`` are all groups generated for this batch, carried ones first. What is usable beyond
    the target is ``surplus``: carried to the next batch, or dropped. Short of the target, nothing
    is kept before the cap of refills or the budget is reached (``capped``); then a ``partial``
    batch is trained with its own denominator, or the step is skipped (``skip``, and whenever no
    group is usable) and its groups are carried. Source: DAPO, arXiv 2503.14476.
    """
    if target < 1:
        raise ValueError("target must be at least 1")
    signals = [signal(outcome, tolerance=tolerance) for outcome in outcomes]
    usable = tuple(i for i, found in enumerate(signals) if found is Signal.USABLE)
    dropped: dict[Signal, tuple[int, ...]] = {
        reason: tuple(i for i, found in enumerate(signals) if found is reason)
        for reason in Signal
        if reason is not Signal.USABLE
    }
    kept, rest = usable[:target], usable[target:]
    short = len(kept) < target
    if short and not (capped and at_cap == "partial"):
        kept, rest = (), kept
    waits = rest if short or surplus == "carry" else ()
    gone = () if short or surplus == "carry" else rest
    more = target - len(usable) if short and not capped else 0
    return Selection(kept, waits, gone, dropped, short, more)
