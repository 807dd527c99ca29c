"""VAPO's imitation of the policy's own successes."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from hexad.update.reduce import Index, Reduction, coefficients


def positive(index: Index, correct: Tensor) -> Tensor:
    """float64 [T]: coefficients of ``surrogate.nll``, its token mean over correct episodes.

    ``correct`` bool [T]: the token's episode succeeded, by its verdict and not by its advantage. Of
    all tokens of one optimiser step, like every denominator. All 0 when none is correct, which the
    caller counts. Source: VAPO, arXiv 2504.05118 (its weight is 0.1); contract.md 2.12.
    """
    chosen = index.valid & correct
    if not bool((chosen & (index.weight > 0)).any()):
        return torch.zeros(len(chosen), dtype=torch.float64, device=chosen.device)
    return coefficients(replace(index, valid=chosen), Reduction("token"))
