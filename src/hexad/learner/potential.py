"""Process signals as a potential on the token axis: held inside a turn."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hexad.contract.faults import ContractViolation
from hexad.learner.batch import Batch


def completed(batch: Batch) -> Tensor:
    """int64 [T]: the assistant turns of its episode that end at or before each token."""
    owner = batch.token_episode
    acts = batch.action.nonzero().squeeze(1)
    key = torch.stack((owner[acts], batch.turn[acts]))
    ends = torch.ones_like(acts, dtype=torch.bool)
    ends[:-1] = (key[:, 1:] != key[:, :-1]).any(0)
    ended = torch.zeros_like(owner)
    ended[acts[ends]] = 1
    count = torch.cumsum(ended, 0)
    before = torch.cat((count.new_zeros(1), count))
    edges = torch.searchsorted(owner, torch.arange(len(batch.episodes)))
    return count - before[edges][owner]


def held(batch: Batch, weights: Mapping[str, float]) -> Tensor:
    """float64 [T]: the weighted sum of the signals ``weights`` names, of each prefix's state.

    A prefix that ends inside turn k has the level of the state that turn k began in; the turn's
    last token already has the next. So on a token clock every action token is paid, those inside a
    turn ``(gamma - 1) Phi``. NaN in episodes that are not scored. Raises ``ContractViolation``
    where a scored episode has no such signal, or not one level a state.
    """
    turns = completed(batch)
    potential = torch.full(turns.shape, torch.nan, dtype=torch.float64)
    owner = batch.token_episode
    for number, episode in enumerate(batch.episodes):
        if not episode.scored:
            continue
        mine = owner == number
        states = int(turns[mine].max()) + 1 if bool(mine.any()) else 0
        known = {levels.name: levels.values for levels in episode.signals}
        if any(len(known.get(name, ())) != states for name in weights):
            raise ContractViolation(
                f"episode {episode.episode_id} has {states} states, and its signals say "
                f"{ {name: len(known.get(name, ())) for name in weights} }"
            )
        total = torch.zeros(states, dtype=torch.float64)
        for name, weight in weights.items():
            total += weight * torch.tensor(known[name], dtype=torch.float64)
        potential[mine] = total[turns[mine]]
    return potential
