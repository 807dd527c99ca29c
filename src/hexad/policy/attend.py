"""Attention of the lean path over key-value slots when many tokens a row are new.

It and ``decode.py`` give the same bits for the same context, whatever else is in the batch: each
product runs with at least two query rows, and columns beyond a context weigh exactly zero.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from hexad.policy.block import look, softmax
from hexad.policy.kv import KeyValues


def visible(positions: torch.Tensor, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Additive mask ``[*positions.shape, length]``: 0 up to each position, -inf after it."""
    rows = staircase(length, dtype, positions.device)
    picked = rows.index_select(0, length - 1 - positions.reshape(-1))
    return picked.view(*positions.shape, length)


@lru_cache(maxsize=64)
def staircase(length: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """``[length, length]``: row ``r`` is 0 in its first ``length - r`` columns, -inf after them.

    All rows are windows on one vector of ``length`` zeros and ``length`` infinities.
    """
    line = torch.zeros(2 * length, dtype=dtype, device=device)
    line[length:] = float("-inf")
    return line.as_strided((length, length), (1, 1))


class Prefill:
    """``positions [batch, new]`` are appended to ``slots [batch]``; ``real`` marks true tokens.

    ``chosen [rows, 2]`` names the tokens, by batch row and column, that leave the last layer: what
    follows its keys and values is computed for them alone.
    """

    def __init__(
        self,
        kv: KeyValues,
        slots: torch.Tensor,
        positions: torch.Tensor,
        real: torch.Tensor,
        chosen: torch.Tensor,
    ) -> None:
        self._kv, self._slots = kv, slots
        self._length = rounded(int(positions.max()) + 1, kv.columns)
        self._columns = torch.where(real, positions, kv.columns)
        self._mask = visible(positions, self._length, kv.dtype)
        self._owner, column = chosen.unbind(1)
        self.chosen = self._owner * positions.shape[1] + column

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """``q [batch * new, heads, dim]`` and so on, to ``[batch * new, width]``.

        In the last layer to ``[len(chosen), width]``.
        """
        kv, shape = self._kv, self._kv.shape
        batch, new = self._columns.shape
        heads, dim = shape.kv_heads, shape.head_dim
        keys, values = kv.keys[layer], kv.values[layer]
        keys[self._slots[:, None], :, :, self._columns] = k.view(batch, new, heads, dim)
        values[self._slots[:, None], :, self._columns] = v.view(batch, new, heads, dim)
        last = layer == shape.layers - 1
        slots = self._slots[self._owner] if last else self._slots
        known = keys[slots, :, :, : self._length].view(len(slots) * heads, dim, -1)
        seen = values[slots, :, : self._length].view(len(slots) * heads, -1, dim)
        return self._leave(q, known, seen) if last else self._all(q, known, seen)

    def _all(self, q: torch.Tensor, known: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        batch, new = self._columns.shape
        heads, group, dim = self._kv.shape.kv_heads, self._kv.shape.group, self._kv.shape.head_dim
        queries = q.view(batch, new, heads, group, dim).permute(0, 2, 3, 1, 4)
        scores = torch.bmm(queries.reshape(batch * heads, group * new, dim), known)
        scores = scores.view(batch, heads, group, new, -1).add_(self._mask[:, None, None])
        weights = softmax(scores).view(batch * heads, group * new, -1)
        out = torch.bmm(weights, seen).view(batch, heads, group, new, dim)
        return out.permute(0, 3, 1, 2, 4).reshape(batch * new, -1)

    def _leave(self, q: torch.Tensor, known: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        shape, rows = self._kv.shape, len(self._owner)
        mask = self._mask.view(-1, self._length)[self.chosen]
        mask = mask.repeat_interleave(shape.kv_heads, 0)[:, None]
        queries = q[self.chosen].reshape(-1, shape.group, shape.head_dim)
        return look(mask, queries, known, seen).view(rows, -1)


def rounded(length: int, columns: int) -> int:
    """``length`` rounded up to whole vectors, within ``columns``."""
    return min(-(-length // 16) * 16, columns)
