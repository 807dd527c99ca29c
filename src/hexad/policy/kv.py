"""Key-value memory of the lean decoder: one slot a context, grown as needed, written in place."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hexad.policy.decode import Window

_STEP = 64
"""Slots grow in multiples of this many columns."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the model's attention: ``group`` query heads share one key-value head."""

    layers: int
    kv_heads: int
    group: int
    head_dim: int


class KeyValues:
    """``keys[layer]`` is ``[slots, kv_heads, head_dim, columns + 1]``, ``values[layer]`` is
    ``[slots, kv_heads, columns + 1, head_dim]``.

    Keys lie transposed because the product of few queries with them is faster that way. The last
    column is scratch: rows and positions that only pad a batch write there, and nobody reads it.
    ``items [slots, kv_heads]`` numbers all pairs of slot and head.
    """

    def __init__(self, shape: Shape, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        self.slots = 0
        self.columns = 0
        self.items = torch.zeros(0)
        self._windows: tuple[tuple[int, int, int], list[Window]] = ((0, 0, 0), [])
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.clear()

    def clear(self) -> None:
        """Release all memory."""
        self.slots = self.columns = 0
        self._windows = ((0, 0, 0), [])
        self.keys = [self._zeros(0, 0)[0] for _ in range(self.shape.layers)]
        self.values = [self._zeros(0, 0)[1] for _ in range(self.shape.layers)]

    def reserve(self, slots: int, columns: int, limit: int) -> None:
        """Make room for ``slots`` contexts of ``columns`` tokens (never more than ``limit`` slots).

        Grows by at least half so that the copies of a growing cache stay few.
        """
        if slots > self.slots:
            slots = min(max(slots, self.slots + self.slots // 2), limit)
        if columns > self.columns:
            columns = max(columns, self.columns + self.columns // 2)
            columns = -(-columns // _STEP) * _STEP
        slots, columns = max(slots, self.slots), max(columns, self.columns)
        if (slots, columns) == (self.slots, self.columns):
            return
        have, width = self.slots, self.columns
        for layer in range(self.shape.layers):
            keys, values = self._zeros(slots, columns)
            keys[:have, :, :, :width] = self.keys[layer][:, :, :, :width]
            values[:have, :, :width] = self.values[layer][:, :, :width]
            self.keys[layer], self.values[layer] = keys, values
        self.slots, self.columns = slots, columns
        items = torch.arange(slots * self.shape.kv_heads, device=self.device)
        self.items = items.view(slots, -1)
        self._windows = ((0, 0, 0), [])

    def window(self, first: int, rows: int, length: int) -> list[Window]:
        """Views, layer by layer, of slots ``first`` to ``first + rows - 1`` and ``length`` columns.

        The last answer is kept: one decode step after another asks for the same.
        """
        if self._windows[0] != (first, rows, length):
            items = slice(first * self.shape.kv_heads, (first + rows) * self.shape.kv_heads)
            windows = [
                Window(
                    keys[first : first + rows],
                    values.view(-1, self.shape.head_dim),
                    keys.flatten(0, 1)[items, :, :length],
                    values.flatten(0, 1)[items, :length],
                )
                for keys, values in zip(self.keys, self.values, strict=True)
            ]
            self._windows = ((first, rows, length), windows)
        return self._windows[1]

    def copy(self, source: torch.Tensor, target: torch.Tensor, columns: int) -> None:
        """Copy the first ``columns`` of slots ``source`` to slots ``target``, pair by pair.

        All sources are read before a target is written, so the two may overlap.
        """
        for keys, values in zip(self.keys, self.values, strict=True):
            keys[target, :, :, :columns] = keys[source, :, :, :columns]
            values[target, :, :columns] = values[source, :, :columns]

    def erase(self, slot: int) -> None:
        """Overwrite one slot with zeros: NaN would survive a zero attention weight."""
        for keys, values in zip(self.keys, self.values, strict=True):
            keys[slot].zero_()
            values[slot].zero_()

    def _zeros(self, slots: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        heads, dim = self.shape.kv_heads, self.shape.head_dim
        keys = torch.zeros(slots, heads, dim, columns + 1, dtype=self.dtype, device=self.device)
        values = torch.zeros(slots, heads, columns + 1, dim, dtype=self.dtype, device=self.device)
        return keys, values
