"""The one recurrence under every estimator: ``y_t = x_t + a_t * y_{t+1}``, over flat ragged data.

Rows lie one behind the other; ``a_t = 0`` on the last element of a row keeps rows apart, exactly.
Where every other ``a_t`` is one number (:class:`Steady`), a block is a product with its powers.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK = 64
"""Elements that one block walks through, last to first."""
BLOCKS = 8192
"""Blocks that walk side by side: a chunk of ``BLOCK * BLOCKS`` elements (4 MiB) stays near."""


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

    def __call__(self, x: Tensor, a: Tensor, y: Tensor) -> None:
        """Write the ``y`` of the chunk before the one that was given last; float64 [m] each."""
        pad = -len(x) % BLOCK
        if pad:  # in front: nothing reads what comes before the first element
            x, a = (torch.cat((v.new_zeros(pad), v)) for v in (x, a))
        total, decay = _walk(x.view(-1, BLOCK), a.view(-1, BLOCK))
        total.addcmul_(decay, _behind(total[0], decay[0], self._behind))
        if not torch.isfinite(total.sum()):
            raise ValueError("x or a is not finite, or the recurrence overflows")
        if pad:
            y.copy_(total.t().reshape(-1)[pad:])
        else:
            y.view(-1, BLOCK).copy_(total.t())
        self._behind = y[:1].clone()


class Steady:
    """:class:`Sweep` for ``a = factor``, but 0 at the last element of each row.

    A block without such an element is a product with the triangle of the factor's powers, which
    moves nothing; the few that have one are walked, so that rows stay apart exactly.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._behind = torch.zeros(1, dtype=torch.float64)
        self._powers = factor ** torch.arange(BLOCK + 1, dtype=torch.float64)
        away = torch.arange(BLOCK)[:, None] - torch.arange(BLOCK)
        self._triangle = self._powers[away.clamp_min(0)].tril()

    def __call__(self, x: Tensor, ends: Tensor, y: Tensor) -> None:
        """Write the ``y`` (not ``x`` itself) of the chunk before the one that was given last.

        ``x`` and ``y`` float64 [m]; ``ends`` int64 [k]: the places where a row ends, ascending.
        """
        pad = -len(x) % BLOCK
        x = torch.cat((x.new_zeros(pad), x)) if pad else x
        blocks = x.view(-1, BLOCK)
        whole = torch.empty_like(blocks) if pad else y.view(-1, BLOCK)
        torch.mm(blocks, self._triangle, out=whole)
        block, place = (ends + pad) // BLOCK, (ends + pad) % BLOCK
        at = torch.bincount(block, minlength=len(whole)).nonzero().squeeze(1)
        factors = x.new_full((len(at), BLOCK), self._factor)
        factors[torch.searchsorted(at, block), place] = 0.0
        broken, decay = _walk(blocks[at], factors)
        heads, decays = whole[:, 0].clone(), self._powers[-1:].repeat(len(whole))
        heads[at], decays[at] = broken[0], 0.0
        behind = _behind(heads, decays, self._behind)
        whole.addr_(behind, self._powers[1:].flip(0))
        whole[at] = broken.addcmul_(decay, behind[at]).t()
        if not torch.isfinite(whole.sum()):
            raise ValueError("x is not finite, or the recurrence overflows")
        if pad:
            y.copy_(whole.view(-1)[pad:])
        self._behind = y[:1].clone()


def positions(rare: Tensor) -> Tensor:
    """int64 [k]: where a mostly false bool [m] is true; eight elements are looked at as one."""
    words = torch.cat((rare, rare.new_zeros(-len(rare) % 8))).view(torch.int64)
    some = words.nonzero().squeeze(1)
    word, byte = words[some].view(torch.bool).view(-1, 8).nonzero().unbind(1)
    return some[word] * 8 + byte


def _walk(x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Every block [blocks, BLOCK] by itself, from its last element to its first.

    Gives ``y`` without what is behind the block and the factor by which that still counts, both
    [BLOCK, blocks]: row j holds the j-th element of every block, so a step advances all blocks.
    """
    total, decay = (v.t().clone(memory_format=torch.contiguous_format) for v in (x, a))
    totals, decays = total.unbind(0), decay.unbind(0)
    for j in range(BLOCK - 2, -1, -1):
        totals[j].addcmul_(decays[j], totals[j + 1])
        decays[j].mul_(decays[j + 1])
    return total, decay


def _behind(heads: Tensor, decays: Tensor, last: Tensor) -> Tensor:
    """``y`` of the element behind every block [blocks]; ``last`` [1] is that of the last one."""
    return _heads(torch.cat((heads, last)), torch.cat((decays, last.new_zeros(1))))[1:]


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
