"""A reward that an untrained policy varies in, so that every row of a benchmark has a gradient."""

from __future__ import annotations

from hexad.contract.episode import Episode
from hexad.contract.reward import Reward
from hexad.contract.verdict import Verdict


class DenseMapping:
    """One component ``task``: a number in [0, 1) that depends on the sampled ids."""

    version = "dense/1"

    def rewards(self, verdict: Verdict, episode: Episode) -> tuple[Reward, ...]:
        """Nothing for an unscored episode."""
        if episode.faulted or not verdict.scored:
            return ()
        sampled = sum(int(segment.ids[segment.action].sum()) for segment in episode.segments)
        return (Reward("task", (sampled % 11) / 11),)
