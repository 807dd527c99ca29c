"""The clock of a batch: its decisions, with the rewards that they own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hexad.credit.clock import Clock, Kind, Tokens, clock
from hexad.learner.batch import Batch
from hexad.learner.rewards import rewards_of


def steps_of(batch: Batch, kind: Kind, used: Tensor, weights: Mapping[str, float]) -> Clock:
    """The clock steps of the ``used`` (bool [E]) episodes; ``weights`` of reward components."""
    tokens = Tokens(
        action=batch.action,
        turn=batch.turn,
        offsets=batch.offsets,
        row_episode=batch.row_episode,
        terminated=batch.terminated,
        truncated=batch.truncated,
        span=batch.span if kind == "span" else None,
        final=torch.ones_like(batch.truncated),  # admission refuses what has no final state
    )
    return clock(tokens, rewards_of(batch, weights), kind=kind, used=used)
