"""Which rows make one optimiser step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hexad.contract.faults import ContractViolation
from hexad.learner.batch import Batch
from hexad.update.reduce import Index


def index_of(batch: Batch, valid: Tensor) -> Index:
    """The reducer's index of a batch's tokens; ``valid`` bool [T] counts in denominators."""
    row, episode = batch.token_row, batch.token_episode
    group = batch.episode_group[episode]
    return Index(row, batch.turn, episode, group, valid, batch.weight)


@dataclass(frozen=True, slots=True)
class Order:
    """How a batch is split: deterministic in ``seed`` (of the run), ``version`` and epoch."""

    seed: int
    version: int
    epochs: int
    minibatches: int


def minibatches(index: Index, order: Order) -> Iterator[Tensor]:
    """bool [T] of the valid tokens of each optimiser step, epoch after epoch.

    Whole groups are shuffled and dealt out as evenly as their number allows. Groups without a valid
    token are left out; with fewer groups than minibatches there are as many steps as groups.
    Raises ``ContractViolation`` if no token is valid.
    """
    groups = torch.unique(index.group[index.valid])
    if not len(groups):
        raise ContractViolation(
            "no unit is left in any denominator: no token of the batch is valid"
        )
    parts = min(order.minibatches, len(groups))
    for epoch in range(order.epochs):
        if parts == 1:
            yield index.valid
            continue
        shuffled = np.random.default_rng([order.seed, order.version, epoch]).permutation(
            groups.numpy()
        )
        for chosen in np.array_split(shuffled, parts):
            yield index.valid & torch.isin(index.group, torch.from_numpy(chosen))
