"""A source decides when experience is consumed. The loop knows no other difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hexad.contract.episode import Episode
from hexad.policy.engine import Weights


@dataclass(frozen=True, slots=True)
class Harvest:
    """Finished episodes in task order, groups whole; ``exhausted`` when no task is left.

    ``dropped`` are others that will never be trained on, with the reason; ``sampled`` are all that
    were sampled for this batch, where these are not simply the batch. An episode may be in both
    ``episodes`` and ``dropped``: its reward stays in a baseline, and its tokens have weight 0.
    ``greedy`` holds the score of an auxiliary greedy rollout by group id, NaN where it was not
    scored; ``values`` holds, by episode id, the value of the state that each turn began in, from
    continuations. ``reused`` names episodes that an earlier batch was trained on: they are booked
    already. ``begins``: a round of data begins with these; ``open``: more of its samples wait to be
    trained on, so no budget of samples ends the run yet. ``ages`` are seconds since the end of an
    episode, by id, where it waited. An ``interrupted`` harvest is none: the user asked for the end.
    """

    episodes: tuple[Episode, ...]
    exhausted: bool = False
    dropped: tuple[tuple[Episode, str], ...] = ()
    sampled: tuple[Episode, ...] | None = None
    greedy: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    ages: Mapping[str, float] = field(default_factory=dict)
    interrupted: bool = False
    reused: frozenset[str] = frozenset()
    begins: bool = False
    open: bool = False


class Source(Protocol):
    """Where the loop's episodes come from: rollouts, or a store."""

    def next(self, version: int) -> Harvest:
        """The episodes of the next batch, sampled or read at learner version ``version``."""
        ...

    def publish(self, weights: Weights | None, version: int, lineage: str) -> None:
        """Hand out new weights; returns when the engine has loaded them."""
        ...

    def finish(self) -> None:
        """The run has ended: sample no more, and tell the books of what was under way."""
        ...

    def state(self) -> dict[str, Any]:
        """Cursors and counters as JSON-serialisable values (tensors allowed)."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where ``state`` was taken."""
        ...

    def close(self) -> None:
        """Release engines, environments and threads."""
        ...
