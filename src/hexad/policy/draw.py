"""Random draws that any engine can repeat: counter-based uniforms and the inverse CDF."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from hexad.policy.engine import DrawKey

Uniforms = npt.NDArray[np.float64]

_WORDS = 4
"""Philox-4x64 makes four 64-bit words for each value of its counter."""
_BELOW_ONE = 1.0 - 2.0**-52
"""Largest ``u`` (1 - 2**-53) times this, times a total, stays below the total after rounding."""
_TEMPORARY = 1 << 16
"""Numbers in one temporary: larger ones are mapped and unmapped on every call (measured)."""


def uniforms(key: DrawKey, start: int, count: int) -> Uniforms:
    """Return the numbers of ``key`` at positions ``start`` to ``start + count - 1``, in [0, 1).

    Philox-4x64-10 (Salmon et al. 2011) is keyed by ``key.seed()`` and its counter is the position,
    so the number at a position does not depend on ``start`` or on what was drawn before. Each
    number is a multiple of 2**-53. Raises ``ValueError`` for a negative ``start`` or ``count``.
    """
    if start < 0 or count < 0:
        raise ValueError(f"positions must not be negative: start {start}, count {count}")
    skip = start % _WORDS
    bits = np.random.Philox(key=key.seed(), counter=start // _WORDS)
    words = bits.random_raw(skip + count)[skip:]
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def pick(logprobs: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Draw one token a row by inverse CDF: the first id whose cumulative probability exceeds ``u``.

    ``logprobs`` is ``[rows, vocabulary]``, finite or -inf, at least one finite a row; ``u`` is
    float64 ``[rows]`` in [0, 1). Returns int64 ``[rows]``. The sum runs in float64 and ``u`` is
    scaled by just less than its total, so the last id never collects what rounding left over; the
    comparison is strict, so an id of probability zero is never drawn.
    """
    rows = max(1, _TEMPORARY // logprobs.shape[1])
    if len(logprobs) <= rows:
        return _pick(logprobs, u)
    parts = zip(torch.split(logprobs, rows), torch.split(u, rows), strict=True)
    return torch.cat([_pick(part, numbers) for part, numbers in parts])


def _pick(logprobs: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    goal = u * (cumulative[:, -1] * _BELOW_ONE)
    return torch.searchsorted(cumulative, goal[:, None], right=True)[:, 0]
