"""What is trained of an episode that was paused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hexad.contract.episode import Episode


def newest_only(episode: Episode) -> Episode:
    """``episode`` with the loss weight of all but the newest version's tokens set to 0.

    Kimi k1.5's variant of partial rollouts: what earlier versions sampled is context.
    """
    newest = max((int(s.version.max()) for s in episode.segments if len(s.version)), default=-1)
    segments = tuple(
        replace(segment, weight=np.where(segment.version == newest, segment.weight, 0.0))
        for segment in episode.segments
    )
    return replace(episode, segments=segments)
