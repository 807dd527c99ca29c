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
    CALL = "call"
    """One tool call, by the number of its span among the tool calls of the whole episode."""


@dataclass(frozen=True, slots=True)
class Owner:
    """``index`` is a turn, span or call number; ``segment`` is the segment of a span."""

    kind: OwnerKind = OwnerKind.END
    index: int = -1
    segment: int = -1


@dataclass(frozen=True, slots=True)
class Reward:
    """One raw component, before any weight. Missing is absent, never 0."""

    component: str
    value: float
    owner: Owner = Owner()


@dataclass(frozen=True, slots=True)
class Gate:
    """The reward that an episode has, whatever its components are: ``reason`` says why."""

    reward: float
    reason: str


@dataclass(frozen=True, slots=True)
class Levels:
    """What a process signal said of every state: ``values[k]`` of the one that turn k began in.

    The last value, one more than there are turns, is of the state that the episode stopped in.
    """

    name: str
    values: tuple[float, ...]
