"""What becomes of responses that are too long: left out, or punished softly (DAPO)."""

from __future__ import annotations

import torch
from torch import Tensor


def overlong_filter(scored: Tensor, truncated: Tensor) -> Tensor:
    """bool [E]: the scored episodes that no limit cut; the rest has neither credit nor loss."""
    if scored.shape != truncated.shape or not scored.dtype == truncated.dtype == torch.bool:
        raise ValueError("scored and truncated must be bool [E]")
    return scored & ~truncated


def overlong_penalty(length: Tensor, *, limit: int, cache: int) -> Tensor:
    """float64 [E] in [-1, 0], to be added to the score: DAPO's soft punishment.

    0 up to ``limit - cache`` sampled tokens, then falling linearly to -1 at ``limit``, and -1
    beyond; ``length`` int64 [E]. Source: arXiv 2503.14476.
    """
    if length.ndim != 1 or length.dtype != torch.int64 or (length < 0).any():
        raise ValueError("length must be int64 [E], not negative")
    if not 0 < cache <= limit:
        raise ValueError(f"needs 0 < cache <= limit, got cache {cache} and limit {limit}")
    over = (length - (limit - cache)).to(torch.float64)
    return -(over / cache).clamp(0.0, 1.0)
