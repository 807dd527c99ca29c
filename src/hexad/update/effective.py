"""How much a batch of weights still says, and a learning rate that follows it."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor


def share(log_weight: Tensor) -> float:
    """Effective sample size over B: ``(sum w)^2 / (B sum w^2)`` in [0, 1], of log-weights [B].

    One weight a unit that the caller names (an episode's is its *sum* of ``direct`` log-ratios),
    never clipped: a cap hides the collapse this measures. Computed from log-weights, so nothing
    overflows. All weights zero (-inf): 0. Raises ``ValueError`` for none, NaN or +inf. Source:
    algorithms.md 10.
    """
    log = log_weight.detach().to(torch.float64)
    if log.numel() == 0 or not bool((log < math.inf).all()):
        raise ValueError("the effective sample size needs finite weights, and at least one")
    if bool((log == -math.inf).all()):
        return 0.0
    first, second = torch.logsumexp(log, 0), torch.logsumexp(2.0 * log, 0)
    return float((2.0 * first - second).exp()) / log.numel()


def rate_scale(share: float, base: float, rule: Literal["sqrt", "linear"] = "sqrt") -> float:
    """Factor of the learning rate, ``sqrt(min(1, share / base))`` or its square.

    ``base`` is the share at which the rate is whole: 1, or 0.55 over several turns. Source: VCPO,
    arXiv 2602.17616.
    """
    if not 0.0 < base <= 1.0:
        raise ValueError(f"the base share lies in (0, 1], got {base}")
    scale = min(1.0, share / base)
    return math.sqrt(scale) if rule == "sqrt" else scale
