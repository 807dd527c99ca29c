"""Where two attempts at a task part: the first turn in which the policy said something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from hexad.contract.episode import Episode

NO_ACTION = "no_divergent_action"
"""One of the two ends where the other goes on: nobody chose that."""
OTHER_OBSERVATION = "other_observation"
"""The environment answered equal actions differently, before any action differs."""
OTHER_STATE = "other_state"
"""The environment names different states behind equal tokens."""
EQUAL = "equal_sides"
"""No action differs."""


@dataclass(frozen=True, slots=True)
class Turn:
    """An assistant turn: what it ``said`` from token ``start`` of segment number ``segment`` on.

    ``before`` is what that context held since the turn before. ``weighed``: all of it is in the
    loss.
    """

    segment: int
    start: int
    before: bytes
    said: bytes
    weighed: bool


@dataclass(frozen=True, slots=True)
class Path:
    """The turns of an episode, and the states that they began in as far as they have names."""

    turns: tuple[Turn, ...]
    states: tuple[str, ...]

    @classmethod
    def of(cls, episode: Episode) -> Path:
        """The path of ``episode``."""
        return cls(tuple(_turns(episode)), episode.states)


@dataclass(frozen=True, slots=True)
class Branch:
    """Two episodes are equal up to ``turn``, which begins at token ``start`` of ``segment``.

    ``weighed``: on both sides the turn is in the loss.
    """

    turn: int
    segment: int
    start: int
    weighed: bool = True

    def cut(self, episode: Episode) -> Episode:
        """``episode`` with loss weight 0 on everything before the branch; tokens stay."""
        rows = list(episode.segments)
        for number in range(self.segment + 1):
            weight = rows[number].weight.copy()
            weight[: self.start if number == self.segment else None] = 0.0
            rows[number] = replace(rows[number], weight=weight)
        return replace(episode, segments=tuple(rows))


def branch(left: Path, right: Path) -> Branch | str:
    """The first turn whose tokens differ, from equal contexts and equal states.

    A whole turn is one action, so it is the branch also where only its last token differs. Where
    there is no such turn: the reason why.
    """
    for number, (one, other) in enumerate(zip_longest(left.turns, right.turns)):
        if one is None or other is None:
            return NO_ACTION
        if (one.segment, one.before) != (other.segment, other.before):
            return OTHER_OBSERVATION
        if left.states[: number + 1] != right.states[: number + 1]:
            return OTHER_STATE
        if one.said != other.said:
            return Branch(number, one.segment, one.start, one.weighed and other.weighed)
    return EQUAL


def _turns(episode: Episode) -> Iterator[Turn]:
    for number, segment in enumerate(episode.segments):
        places, end = np.flatnonzero(segment.action), 0
        edges = np.flatnonzero(np.diff(segment.turn[places])) + 1
        for run in np.split(places, edges) if len(places) else ():
            start, stop = int(run[0]), int(run[-1]) + 1
            before, said = segment.ids[end:start].tobytes(), segment.ids[start:stop].tobytes()
            yield Turn(number, start, before, said, bool((segment.weight[run] > 0).all()))
            end = stop
