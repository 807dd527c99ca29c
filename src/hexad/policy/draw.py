"""Random draws that any engine can repeat: counter-based uniforms and the inverse CDF."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from hexad.policy.engine import DrawKey

Uniforms = npt.NDArray[np.float64]

_WORDS = 4
"""Philox-4x64 makes four 64-bit words for each value of its counter."""


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
    float64 ``[rows]`` in [0, 1). Returns int64 ``[rows]``. Sums run in float64 over two levels
    (blocks, then ids inside the block), are scaled by their own total, and both comparisons are
    strict, so rounding can never pick an id of zero probability.
    """
    rows, vocabulary = logprobs.shape
    width = 1 << math.ceil(math.log2(vocabulary) / 2)
    p = logprobs.exp()
    if vocabulary % width:
        p = torch.nn.functional.pad(p, (0, width - vocabulary % width))
    blocks = p.view(rows, -1, width)
    block, rest = _first_above(blocks.sum(-1, dtype=torch.float64), u, scaled=True)
    chosen = blocks[torch.arange(rows, device=p.device), block].double()
    inside, _ = _first_above(chosen, rest, scaled=False)
    return block * width + inside


def _first_above(
    masses: torch.Tensor, target: torch.Tensor, *, scaled: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """First index whose cumulative mass exceeds ``target``, and what is left of it there.

    ``scaled`` multiplies the target by the row's total first. A target that rounding has put at or
    above the total is moved just below it.
    """
    cumulative = masses.cumsum(-1)
    total = cumulative[:, -1]
    goal = target * total if scaled else target
    goal = torch.minimum(goal, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, goal[:, None], right=True)
    before = torch.nn.functional.pad(cumulative, (1, 0)).gather(1, index)
    return index[:, 0], goal - before[:, 0]
