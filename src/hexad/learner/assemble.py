"""From admitted episodes to one flat batch, with the score of each episode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from hexad.contract.episode import Episode
from hexad.contract.faults import ContractViolation
from hexad.contract.segment import Segment
from hexad.contract.support import Support
from hexad.learner.batch import Batch


def assemble(
    episodes: Sequence[Episode],
    weights: Mapping[str, float] | None = None,
    ages: Mapping[str, float] | None = None,
) -> Batch:
    """Pack ``episodes`` flat, one row a segment, in the order given.

    ``weights`` maps a reward component to its weight in the score; a component that is not named
    weighs 1. The score is ``sum weight * value`` over the raw components, NaN where the episode is
    not scored or has no component. ``ages`` are seconds in a queue by episode id, NaN where none is
    given. Groups are numbered by first appearance of their carried id. Raises
    ``ContractViolation`` if there is no token at all.
    """
    rows = [(number, segment) for number, e in enumerate(episodes) for segment in e.segments]
    segments, ages = [segment for _, segment in rows], ages or {}
    if not any(len(segment) for segment in segments):
        raise ContractViolation(f"{len(episodes)} episodes hold no token: nothing to assemble")
    lengths = [len(segment) for segment in segments]
    groups: dict[str, int] = {}
    group = [groups.setdefault(e.group_id, len(groups)) for e in episodes]
    scored = [e.scored for e in episodes]
    support = _support(segments)
    return Batch(
        ids=_flat(segments, "ids", np.int64),
        action=_flat(segments, "action", np.bool_),
        weight=_flat(segments, "weight", np.float32),
        behaviour=_flat(segments, "logprob", np.float32),
        version=_flat(segments, "version", np.int64),
        turn=_flat(segments, "turn", np.int64),
        offsets=torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)),
        row_episode=torch.tensor([number for number, _ in rows], dtype=torch.int64),
        episode_group=torch.tensor(group, dtype=torch.int64),
        span=torch.from_numpy(np.concatenate([_spans(segment) for segment in segments])),
        terminated=torch.tensor([e.ending.terminated for e in episodes], dtype=torch.bool),
        truncated=torch.tensor([e.ending.truncated for e in episodes], dtype=torch.bool),
        faulted=torch.tensor([e.faulted for e in episodes], dtype=torch.bool),
        scored=torch.tensor(scored, dtype=torch.bool),
        score=torch.tensor([e.score(weights or {}) for e in episodes], dtype=torch.float64),
        success=torch.tensor([e.correct for e in episodes], dtype=torch.bool),
        age=torch.tensor([ages.get(e.episode_id, math.nan) for e in episodes], dtype=torch.float64),
        episodes=tuple(episodes),
        support_ids=None if support is None else torch.tensor(support.ids),
        support_edges=None if support is None else torch.tensor(support.offsets),
    )


def _flat(segments: Sequence[Segment], name: str, dtype: type[np.generic]) -> torch.Tensor:
    parts = [getattr(segment, name) for segment in segments]
    return torch.from_numpy(np.concatenate(parts).astype(dtype))


def _spans(segment: Segment) -> npt.NDArray[np.int64]:
    """The number of each token's span."""
    lengths = [span.end - span.start for span in segment.spans]
    numbers = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    return numbers if len(numbers) == len(segment) else np.zeros(len(segment), np.int64)


def _support(segments: Sequence[Segment]) -> Support | None:
    """The sets of all tokens; ``None`` if no segment has any."""
    if all(segment.support is None for segment in segments):
        return None
    return Support.joined([s.support or Support.empty(len(s)) for s in segments])
