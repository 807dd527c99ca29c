"""The clock of a batch: its decisions, with the rewards that they own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hexad.credit.clock import Clock, Kind, Tokens, clock
from hexad.learner.batch import Batch
from hexad.learner.rewards import rewards_of


def steps_of(
    batch: Batch,
    kind: Kind,
    used: Tensor,
    weights: Mapping[str, float],
    *,
    terminal: bool = False,
) -> Clock:
    """The clock steps of the ``used`` (bool [E]) episodes; ``weights`` of reward components.

    With ``terminal`` a cut is an end like any other: nothing follows it.
    """
    truncated = torch.zeros_like(batch.truncated) if terminal else batch.truncated
    tokens = Tokens(
        action=batch.action,
        turn=batch.turn,
        offsets=batch.offsets,
        row_episode=batch.row_episode,
        terminated=batch.terminated | (batch.truncated & ~truncated),
        truncated=truncated,
        span=batch.span if kind == "span" else None,
        final=torch.ones_like(batch.truncated),  # admission refuses what has no final state
    )
    return clock(tokens, rewards_of(batch, weights), kind=kind, used=used)
