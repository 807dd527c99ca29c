"""The likelihood of tokens that nobody is trained on."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hexad.contract.episode import Episode
from hexad.learner.assemble import assemble
from hexad.learner.pack import Cut, dealt
from hexad.learner.ranks import Single
from hexad.learner.root import Root
from hexad.policy.policy import Policy

_RAW = Cut(raw=True)


@torch.no_grad()
def token_loss(policy: Policy, episodes: Sequence[Episode], limit: int) -> tuple[float, int]:
    """Mean of ``-log pi`` in nats over the action tokens with weight, and how many they are.

    The mean is by weight, over the whole vocabulary at temperature 1, as imitation trains on it.
    ``limit`` is the padded tokens of one forward pass. Raises ``ContractViolation`` where the
    episodes hold no token.
    """
    batch = assemble(episodes)
    selected = batch.action & (batch.weight > 0)
    root = Root(policy.model).eval()
    device = next(root.parameters()).device
    total = torch.zeros((), dtype=torch.float64)
    for micro in dealt(batch, selected, Single(), limit, _RAW):
        moved = micro.to(device)
        said = root(moved.ids, moved.select, moved.targets, 1.0).logprob.double().cpu()
        total -= (batch.weight[micro.tokens].double() * said).sum()
    mass = batch.weight[selected].double().sum()
    return float(total / mass), int(selected.sum())
