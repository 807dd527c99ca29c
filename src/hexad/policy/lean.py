"""The lean backend: Qwen3-shaped models over key-value slots with a longest-prefix cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hexad.policy.attend import Prefill, rounded, staircase
from hexad.policy.backend import Admission, Ask, Index
from hexad.policy.decode import Rows, compiled, decode
from hexad.policy.kv import KeyValues
from hexad.policy.qwen import Qwen
from hexad.policy.slots import Place, Slots

_CHUNK = 256
"""Most new tokens of one context in one pass."""
_BATCH_TOKENS = 512
"""Most padded tokens in one pass: more leave the processor's cache (measured)."""


class Lean:
    """A :class:`hexad.policy.backend.Backend` for models of ``qwen.lean_shaped``.

    Equal to the Hugging Face forward within rounding. A context gets the same bits however it is
    batched and whatever part of it was cached (measured for float32 on one CPU thread).
    """

    name = "lean"

    def __init__(self, model: Any, slots: int) -> None:
        self._net = Qwen(model)
        self._kv = KeyValues(self._net.shape, self._net.dtype, self._net.device)
        self._decode = compiled() if self._net.device.type == "cpu" else decode
        self._limit = max(slots, self._net.rows)
        self._slots = Slots(self._limit)
        self._slot_of: Index = np.zeros(0, np.int64)

    def retire(self) -> None:
        """See :class:`hexad.policy.backend.Backend`."""
        self._slots.retire()
        self._net.refresh()

    def close(self) -> None:
        """See :class:`hexad.policy.backend.Backend`."""
        self._slots.retire()
        self._kv.clear()

    def admit(self, asks: list[Ask]) -> Admission:
        """See :class:`hexad.policy.backend.Backend`."""
        places = self._slots.plan(asks)
        taken = asks[: len(places)]
        columns = max(len(ask.ids) + ask.room for ask in taken)
        self._reserve(max(place.slot for place in places) + 1, columns)
        top = max(ask.lane for ask in taken) + 1
        if top > len(self._slot_of):
            self._slot_of = np.pad(self._slot_of, (0, top - len(self._slot_of)))
        for ask, place in zip(taken, places, strict=True):
            self._slot_of[ask.lane] = place.slot
        logits: torch.Tensor | None = None
        for wave in range(max(place.wave for place in places) + 1):
            members = [i for i, place in enumerate(places) if place.wave == wave]
            self._share([places[i] for i in members])
            for part in _passes(members, taken, places):
                out = self._prefill([taken[i] for i in part], [places[i] for i in part])
                if logits is None:
                    logits = out.new_empty(len(taken), out.shape[1])
                logits[part] = out
        assert logits is not None
        return Admission(len(taken), logits, sum(place.start for place in places))

    def step(self, lanes: Index, tokens: Index, positions: Index) -> torch.Tensor:
        """See :class:`hexad.policy.backend.Backend`."""
        first, count = self._window(lanes)
        slots = self._slot_of[lanes]
        self._slots.append(slots, tokens, positions)
        own, kv = slots - first, self._kv
        packed = np.zeros((3, count), np.int64)
        packed[2] = kv.columns
        packed[:, own] = tokens, positions, positions
        length = rounded(int(positions.max()) + 1, kv.columns)
        rows = Rows(
            torch.from_numpy(packed).to(kv.device),
            kv.items[first : first + count],
            staircase(length, kv.dtype, kv.device),
        )
        logits = self._decode(self._net.net, kv.window(first, count, length), rows)
        if len(own) == count and bool((own == np.arange(count)).all()):
            return logits
        return logits[torch.from_numpy(own).to(logits.device)]

    def release(self, lane: int, *, keep: bool) -> None:
        """See :class:`hexad.policy.backend.Backend`."""
        slot = int(self._slot_of[lane])
        self._slots.release(slot, keep=keep)
        if not keep:
            self._kv.erase(slot)

    def _reserve(self, slots: int, columns: int) -> None:
        self._kv.reserve(max(slots, self._net.rows), columns, self._limit)
        self._net.reach(self._kv.columns)

    def _share(self, places: list[Place]) -> None:
        """Copy the prefixes that these places take from a donor."""
        copies = [place for place in places if place.donor >= 0]
        if copies:
            source = torch.tensor([place.donor for place in copies], device=self._kv.device)
            target = torch.tensor([place.slot for place in copies], device=self._kv.device)
            self._kv.copy(source, target, max(place.start for place in copies))

    def _window(self, lanes: Index) -> tuple[int, int]:
        """First slot and number of rows of a batch that holds all open contexts.

        Contexts that lie too far apart are moved together first.
        """
        slots = self._slot_of[lanes]
        low, small = int(slots.min()), self._bucket(len(lanes))
        rows = self._bucket(int(slots.max()) + 1 - low)
        first = min(low, self._kv.slots - rows)
        if small >= rows:
            return first, rows
        outside = np.flatnonzero(slots >= first + small)
        free = np.setdiff1d(np.arange(first, first + small), slots)[: len(outside)]
        far = slots[outside]
        columns = int(max(self._slots.length[far].max(), self._slots.length[free].max()))
        both = torch.from_numpy(np.concatenate((far, free))).to(self._kv.device)
        other = torch.from_numpy(np.concatenate((free, far))).to(self._kv.device)
        self._kv.copy(both, other, columns)
        self._slots.swap(far, free)
        self._slot_of[lanes[outside]] = free
        return first, small

    def _bucket(self, rows: int) -> int:
        """The fixed batch size for ``rows``: multiples of 4 to 16, of 8 to 32, of 16 to 64, ...

        Never fewer than the model needs to round alike, nor more than there are slots.
        """
        step = max(self._net.rows, 1 << max(0, (rows - 1).bit_length() - 2))
        return min(-(-rows // step) * step, self._kv.slots)

    def _prefill(self, asks: list[Ask], places: list[Place]) -> torch.Tensor:
        """Run the uncached tokens of each prompt; return logits after its last one."""
        device, rows = self._kv.device, self._net.rows
        lengths = [len(ask.ids) - place.start for ask, place in zip(asks, places, strict=True)]
        batch, width = len(asks), max(max(lengths), -(-rows // len(asks)), 2)
        if width > _CHUNK:
            width = -(-width // rows) * rows
        ids = np.zeros((batch, width), np.int64)
        positions = np.zeros((batch, width), np.int64)
        real = np.zeros((batch, width), np.bool_)
        for row, (ask, place, length) in enumerate(zip(asks, places, lengths, strict=True)):
            ids[row, :length] = ask.ids[place.start :]
            positions[row, :length] = np.arange(place.start, len(ask.ids))
            real[row, :length] = True
        slots = torch.tensor([place.slot for place in places], device=device)
        owner = torch.arange(max(batch, rows), device=device) % batch
        last = torch.tensor(lengths, device=device)[owner] - 1
        final: torch.Tensor | None = None
        for first in range(0, width, _CHUNK):
            part = slice(first, first + _CHUNK)
            at = torch.from_numpy(positions[:, part]).to(device)
            here = last.clamp(first, first + at.shape[1] - 1)
            chosen = torch.stack((owner, here - first), 1)
            view = Prefill(self._kv, slots, at, torch.from_numpy(real[:, part]).to(device), chosen)
            tokens = torch.from_numpy(ids[:, part]).to(device)
            ended = self._net.run(tokens.reshape(-1), at.reshape(-1), view)
            final = ended if final is None else torch.where((here == last)[:, None], ended, final)
        assert final is not None
        return self._net.logits(final)[:batch]


def _passes(members: list[int], asks: list[Ask], places: list[Place]) -> list[list[int]]:
    """Split ``members`` into passes of alike lengths and bounded size."""
    length = {i: len(asks[i].ids) - places[i].start for i in members}
    parts: list[list[int]] = []
    for i in sorted(members, key=lambda i: (length[i], i)):
        wide = min(length[i], _CHUNK)
        if parts and (len(parts[-1]) + 1) * wide <= _BATCH_TOKENS:
            parts[-1].append(i)
        else:
            parts.append([i])
    return parts
