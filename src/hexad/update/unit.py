"""Ratios of a turn or an episode: what the log-ratios of its tokens combine to.

A surrogate knows no unit: it takes one log-ratio a token. Here every token gets that of its unit,
so that ``clip(combine(log, ..., "mean"), advantage, low, high)`` is GSPO and the same with
``"sum"`` a clip of the turn's probability ratio.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hexad.update.reduce import Index, pair

Combine = Literal["sum", "mean"]
Form = Literal["sequence", "token"]


def of(index: Index, unit: Literal["turn", "episode"]) -> Tensor:
    """int64 [T]: the unit that each token belongs to; tokens of one unit share a number."""
    return index.episode if unit == "episode" else pair(index.episode, index.turn)


def combine(
    log_ratio: Tensor, unit: Tensor, counted: Tensor, how: Combine, form: Form = "sequence"
) -> Tensor:
    """Log-ratio of each token's unit u, [N], from those of its ``counted`` tokens.

    - ``sum``: ``log s = sum_{t in u} log rho_t``, the ratio of the unit's probabilities. It grows
      with length: tokens of ratio 1.1 give 2.59 after 10 and 13781 after 100
    - ``mean``: ``log s = (1 / |u|) sum_{t in u} log rho_t``, the geometric mean: another estimator

    ``unit`` int64 [N] need not be sorted or dense; ``counted`` bool [N] is false on tokens that are
    no decision (observations, tokens that the grammar forced): they enter neither sum nor |u|, and
    get their unit's value. Units must be whole, in whatever micro-batch; without a counted token
    the ratio is 1.

    ``form`` says where the gradient goes. ``sequence``: every token's term moves all tokens of its
    unit, so its terms must be *averaged* over the unit (denominators ``response`` and ``episode``),
    once a unit. ``token``: same value, but a token's term moves that token alone, by ``s``
    (``log sg(s) + log pi_t - sg(log pi_t)``). With one advantage a unit, averaged over it, the
    gradients of the two are equal for ``mean``; for ``sum`` the sequence form is |u| times larger.

    Sources: GSPO and GSPO-token, arXiv 2507.18071; sums over turns: contract.md 2.14.
    """
    total, count = _totals(log_ratio, unit, counted)
    if how == "mean":
        total = torch.where(count > 0, total / torch.where(count > 0, count, 1.0), 0.0)
    value = total.to(log_ratio.dtype)
    if form == "sequence":
        return value
    return value.detach() + (log_ratio - log_ratio.detach())


def _totals(values: Tensor, unit: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """float64 [N] each: at every token, the sum over its unit's counted tokens, and how many."""
    ids, inverse = torch.unique(unit, return_inverse=True)
    empty = torch.zeros(len(ids), dtype=torch.float64, device=values.device)
    wide = torch.where(counted, values.to(torch.float64), 0.0)
    total = empty.index_add(0, inverse, wide)
    count = empty.index_add(0, inverse, counted.to(torch.float64))
    return total[inverse], count[inverse]
