"""Preference losses: one number a pair, or one an episode for KTO. All minimised.

A side of a pair is an episode. Its score is the log-ratio ``log pi - log pi_ref`` of its action
tokens (SimPO: their log-prob), as a ``sum`` or as a ``mean``: two different losses, so the recipe
names which. Observations are no action, so they are in neither. Log-probs are raw and of the whole
vocabulary. Every function computes in float64. Sources: algorithms.md 7, contract.md 2.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Reduce = Literal["sum", "mean"]


def scores(log: Tensor, side: Tensor, share: Tensor, count: int, reduce: Reduce) -> Tensor:
    """float64 [count]: ``sum share * log`` of each side's tokens, or over ``sum share``.

    ``log`` [N] of action tokens, ``side`` int64 [N] below ``count``, ``share`` [N] >= 0. A side
    without share has score 0 as a sum and NaN as a mean.
    """
    share = share.to(log.device, torch.float64)
    zero = torch.zeros(count, dtype=torch.float64, device=log.device)
    total = zero.index_add(0, side, share * log.double())
    return total if reduce == "sum" else total / zero.index_add(0, side, share)


def dpo(margin: Tensor, *, beta: float, smoothing: float = 0.0) -> Tensor:
    """``-(1 - e) log sigmoid(beta d) - e log sigmoid(-beta d)``, with ``d`` the ``margin`` [P].

    ``margin`` is the score of the chosen side less that of the rejected. ln 2 where both are the
    reference. With means it is length-normalised DPO (TRL ``sigmoid_norm``), with ``smoothing`` e
    cDPO. Rafailov et al. 2023, arXiv 2305.18290.
    """
    x = beta * margin
    return -(1.0 - smoothing) * logsigmoid(x) - smoothing * logsigmoid(-x)


def ipo(margin: Tensor, *, beta: float) -> Tensor:
    """``(d - 1 / (2 beta))^2``; ``1 / (4 beta^2)`` where both sides are the reference.

    ``margin`` d [P] is of means: the authors confirmed averaging (TRL). Azar et al. 2023,
    arXiv 2310.12036.
    """
    return (margin - 1.0 / (2.0 * beta)).square()


def simpo(margin: Tensor, *, beta: float, gamma: float) -> Tensor:
    """``-log sigmoid(beta d - gamma)``; ``margin`` d [P] is of mean log-probs, not of ratios.

    Meng et al. 2024, arXiv 2405.14734.
    """
    return -logsigmoid(beta * margin - gamma)


def kto(
    score: Tensor,
    desirable: Tensor,
    baseline: Tensor,
    *,
    beta: float,
    weight_desirable: float = 1.0,
    weight_undesirable: float = 1.0,
) -> Tensor:
    """``w (1 - sigmoid(beta (l - z)))`` of a desirable episode, of the other ``beta (z - l)``.

    ``score`` l [E] is the summed log-ratio, ``desirable`` bool [E], ``baseline`` z a scalar
    (:func:`mismatch`) without a gradient. w / 2 at the reference. Ethayarajh et al. 2024,
    arXiv 2402.01306.
    """
    x = beta * (score - baseline.detach())
    good = weight_desirable * torch.sigmoid(-x)
    return torch.where(desirable, good, weight_undesirable * torch.sigmoid(x))


def bradley_terry(margin: Tensor) -> Tensor:
    """``-log sigmoid(r_w - r_l)``; ``margin`` [P] is of a reward model's rewards. ln 2 where equal.

    Only differences are identified. Bradley and Terry 1952; contract.md 2.3.
    """
    return -logsigmoid(margin.double())


def mismatch(score: Tensor) -> Tensor:
    """KTO's z: ``max(0, mean)`` of the scores [M] of answers under prompts of other tasks.

    0 where there are none, as in a batch of one task: nothing is estimated there.
    """
    if not len(score):
        return torch.zeros((), dtype=torch.float64)
    return score.detach().double().mean().clamp_min(0.0)


def beyond(side: Tensor, pair: Tensor, alpha: float) -> Tensor:
    """LD-DPO's share [N] of each token: ``alpha`` behind the length that both sides have.

    ``side`` and ``pair`` int64 [N], tokens of a side in order. 1 is DPO, 0 cuts the longer side.
    Liu et al. 2024, Length Desensitization in Direct Preference Optimization; as in TRL, for policy
    and reference alike.
    """
    _, owner, length = torch.unique(side, return_inverse=True, return_counts=True)
    order = torch.argsort(owner, stable=True)
    place = torch.empty_like(owner)
    starts = length.cumsum(0) - length
    place[order] = torch.arange(len(owner), device=owner.device) - starts[owner[order]]
    group = torch.unique(pair, return_inverse=True)[1]
    shared = torch.full_like(length, len(owner)).scatter_reduce(0, group, length[owner], "amin")
    share = torch.ones(len(place), dtype=torch.float64, device=place.device)
    return share.masked_fill(place >= shared[group], alpha)


def decayed(side: Tensor, turn: Tensor, gamma: float) -> Tensor:
    """DMPO's share [N] of each token: ``g^t (1 - g^(T - t)) / (1 - g^T)`` of its turn t.

    ``side`` int64 [N] and ``turn`` int64 [N], from 0; T is the number of turns of the side. With
    gamma 1 it is ``(T - t) / T``; 1 where a side has one turn. Shi et al. 2024, arXiv 2406.14868.
    """
    owner = torch.unique(side, return_inverse=True)[1]
    turns = torch.zeros(int(owner.max()) + 1, dtype=turn.dtype, device=turn.device)
    turns = (turns.scatter_reduce(0, owner, turn, "amax") + 1)[owner].double()
    t = turn.double()
    if gamma == 1.0:
        return (turns - t) / turns
    return gamma**t * -torch.expm1((turns - t) * math.log(gamma)) / (1.0 - gamma**turns)


@dataclass(frozen=True, slots=True)
class Loss:
    """A preference loss as data: ``numbers`` are its keys of ``update.preference``.

    ``reference``: its score is a ratio to the reference. ``paired``: one number a pair, else one
    an episode.
    """

    function: Callable[..., Tensor]
    numbers: tuple[str, ...]
    reference: bool = True
    paired: bool = True


LOSSES: Mapping[str, Loss] = {
    "dpo": Loss(dpo, ("beta", "smoothing")),
    "ipo": Loss(ipo, ("beta",)),
    "simpo": Loss(simpo, ("beta", "gamma"), reference=False),
    "kto": Loss(kto, ("beta", "weight_desirable", "weight_undesirable"), paired=False),
}
"""By name of ``update.surrogate``."""
