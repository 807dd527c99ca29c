"""Raw reward components: unweighted, each with an owner."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OwnerKind(StrEnum):
    """What a reward belongs to: a credit-assignment choice that is stored with it."""

    END = "end"
    """The end of the episode."""
    TURN = "turn"
    """One assistant turn, by its number."""
    SPAN = "span"
    """One span of one segment, by its index in the span table."""


@dataclass(frozen=True, slots=True)
class Owner:
    """``index`` is a turn or span number; ``segment`` is the segment of a span."""

    kind: OwnerKind = OwnerKind.END
    index: int = -1
    segment: int = -1


@dataclass(frozen=True, slots=True)
class Reward:
    """One raw component, before any weight. Missing is absent, never 0."""

    component: str
    value: float
    owner: Owner = Owner()
