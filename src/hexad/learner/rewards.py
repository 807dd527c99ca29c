"""Reward assembly: raw components of episodes, weighted, each with the token that owns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from hexad.contract.reward import OwnerKind, Reward
from hexad.credit.rewards import Owner, Rewards
from hexad.learner.batch import Batch


def rewards_of(batch: Batch, weights: Mapping[str, float]) -> Rewards:
    """Every raw component of the scored episodes, times its weight (1 where none is named).

    The reward of a span or call is owned by the last action at or before its last token: a reward
    given on an observation belongs to the action that caused it. A gate's is paid at the end.
    """
    first_row: dict[int, int] = {}
    for row, episode in enumerate(batch.row_episode.tolist()):
        first_row.setdefault(episode, row)
    offsets = batch.offsets.tolist()
    value: list[float] = []
    owners: list[tuple[int, int, int]] = []
    for number, episode in enumerate(batch.episodes):
        if not episode.scored:
            continue
        for reward in episode.paid:
            value.append(weights.get(reward.component, 1.0) * reward.value)
            owners.append((number, *_owner(reward, batch, number, offsets[first_row[number] :])))
    table = torch.tensor(owners, dtype=torch.int64).reshape(-1, 3)
    return Rewards(torch.tensor(value, dtype=torch.float64), *table.unbind(1))


def _owner(reward: Reward, batch: Batch, number: int, offsets: Sequence[int]) -> tuple[int, int]:
    """Kind and index; a span or call becomes the place of its last token in the flat batch.

    ``offsets`` are those of the episode's rows and what follows them.
    """
    owner, episode = reward.owner, batch.episodes[number]
    if owner.kind is OwnerKind.END:
        return int(Owner.END), -1
    if owner.kind is OwnerKind.TURN:
        return int(Owner.TURN), owner.index
    segment, index = owner.segment, owner.index
    if owner.kind is OwnerKind.CALL:
        segment, index = episode.calls[index]
    span = episode.segments[segment].spans[index]
    return int(Owner.TOKEN), offsets[segment] + span.end - 1
