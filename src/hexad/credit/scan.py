"""The one recurrence under every estimator: ``y_t = x_t + a_t * y_{t+1}``, over flat ragged data.

Rows lie one behind the other; ``a_t = 0`` on the last element of a row keeps rows apart, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK = 64
"""Elements that one block walks through, last to first."""
BLOCKS = 4096
"""Blocks that walk side by side: a chunk of ``BLOCK * BLOCKS`` elements stays in the cache."""


def scan(x: Tensor, a: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``y_t = x_t + a_t * y_{t+1}`` with ``y_M = 0``; ``x`` and ``a`` float64 [M] -> [M].

    Blocks of ``BLOCK`` elements are walked side by side, their heads are joined by doubling, and
    each block then adds its decayed successor: products of ``a`` only ever multiply, so nothing is
    divided and nothing overflows for ``a`` in [0, 1]. Work is linear; memory beside the result
    depends on the chunk alone. ``out`` (which may be ``x`` itself) receives the result.

    Raises ``ValueError`` on other shapes or types, or when a result is not finite: then ``x`` or
    ``a`` was not, or ``a`` above 1 has overflowed.
    """
    _check(x, a, out)
    y = torch.empty_like(x) if out is None else out
    sweep = Sweep()
    for part in chunks(len(x)):
        sweep(x[part], a[part], y[part])
    return y


def chunks(size: int) -> Iterator[slice]:
    """Slices that cover ``size`` elements, last to first; only the first elements' may be short."""
    width = BLOCK * BLOCKS
    for stop in range(size, 0, -width):
        yield slice(max(stop - width, 0), stop)


class Sweep:
    """:func:`scan` for a caller that makes its ``x`` and ``a`` chunk by chunk: see :func:`chunks`.

    What is made, scanned and forgotten inside the cache costs neither memory nor its bandwidth.
    """

    def __init__(self) -> None:
        self._behind = torch.zeros(1, dtype=torch.float64)
        self._space = torch.empty((2, 0, 0), dtype=torch.float64)

    def __call__(self, x: Tensor, a: Tensor, y: Tensor) -> None:
        """Write the ``y`` of the chunk before the one that was given last; float64 [m] each."""
        pad = -len(x) % BLOCK
        if pad:  # in front: nothing reads what comes before the first element
            x, a = (torch.cat((v.new_zeros(pad), v)) for v in (x, a))
        blocks = len(x) // BLOCK
        # Row j holds the j-th element of every block, so that one step advances all blocks.
        if self._space.shape[2] != blocks:
            self._space = torch.empty((2, BLOCK, blocks), dtype=torch.float64)
        total, decay = self._space.unbind(0)
        total.copy_(x.view(blocks, BLOCK).t())
        decay.copy_(a.view(blocks, BLOCK).t())
        totals, decays = total.unbind(0), decay.unbind(0)
        for j in range(BLOCK - 2, -1, -1):
            totals[j].addcmul_(decays[j], totals[j + 1])
            decays[j].mul_(decays[j + 1])
        behind = self._behind
        heads = _heads(torch.cat((totals[0], behind)), torch.cat((decays[0], behind.new_zeros(1))))
        total.addcmul_(decay, heads[1:])
        if not torch.isfinite(total.sum()):
            raise ValueError("x or a is not finite, or the recurrence overflows")
        if pad:
            y.copy_(total.t().reshape(-1)[pad:])
        else:
            y.view(blocks, BLOCK).copy_(total.t())
        self._behind = y[:1].clone()


def _heads(total: Tensor, decay: Tensor) -> Tensor:
    """The same recurrence over the heads of blocks, by doubling: log2(blocks) passes."""
    reach = 1
    while reach < len(total):
        joined = torch.addcmul(total[:-reach], decay[:-reach], total[reach:])
        total = torch.cat((joined, total[-reach:]))
        decay = torch.cat((decay[:-reach] * decay[reach:], decay[-reach:]))
        reach *= 2
    return total


def _check(x: Tensor, a: Tensor, out: Tensor | None) -> None:
    if x.ndim != 1 or x.shape != a.shape or (out is not None and out.shape != x.shape):
        raise ValueError(f"x {tuple(x.shape)} and a {tuple(a.shape)} must be [M], and so must out")
    if not (x.dtype == a.dtype == (x.dtype if out is None else out.dtype) == torch.float64):
        raise ValueError(f"expected float64, got {x.dtype} and {a.dtype}")
