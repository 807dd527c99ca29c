"""The lean forward pass of Qwen3-shaped models: straight on their tensors, over key-value slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from hexad.policy.attend import Decode, Prefill
from hexad.policy.backend import Admission, Ask, Index
from hexad.policy.kv import KeyValues, Shape
from hexad.policy.slots import Place, Slots

_ROWS = 16
"""Fewest rows of a matrix product: with fewer, the kernels round differently."""
_CHUNK = 256
"""Most new tokens of one context in one pass."""
_BATCH_TOKENS = 512
"""Most padded tokens in one pass: more leave the processor's cache (measured)."""

_Affine: TypeAlias = tuple[torch.Tensor, torch.Tensor | None]
"""Weight and bias of a linear map."""


def lean_shaped(model: nn.Module) -> bool:
    """Whether :class:`Lean` computes exactly what ``model`` computes."""
    config: Any = model.config
    if type(model).__name__ != "Qwen3ForCausalLM" or config.hidden_act != "silu":
        return False
    if any(kind != "full_attention" for kind in config.layer_types):
        return False
    if config.rope_parameters.get("rope_type", "default") != "default":
        return False
    known = (nn.Linear, nn.Embedding, nn.ModuleList, nn.SiLU)
    own = ("transformers.models.qwen3.", "transformers.activations")
    return all(type(m) in known or type(m).__module__.startswith(own) for m in model.modules())


@dataclass(frozen=True, slots=True)
class _Layer:
    """The model's own tensors of one layer; ``heads`` is derived: ``[heads + kv_heads, dim]``."""

    before: torch.Tensor
    q: _Affine
    k: _Affine
    v: _Affine
    o: _Affine
    heads: torch.Tensor
    after: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor


class _View(Protocol):
    """Attention over what the slots hold and the new tokens."""

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor: ...


class Lean:
    """A :class:`hexad.policy.backend.Backend` for models of :func:`lean_shaped`.

    Equal to the Hugging Face forward within rounding. A context gets the same bits however it is
    batched and whatever part of it was cached (measured for float32 on one CPU thread).
    """

    name = "lean"

    def __init__(self, model: Any, slots: int) -> None:
        config = model.config
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._model = model
        embedding = model.model.embed_tokens.weight
        shape = Shape(config.num_hidden_layers, kv_heads, heads // kv_heads, config.head_dim)
        self._kv = KeyValues(shape, embedding.dtype, embedding.device)
        self._limit = max(slots, _ROWS)
        self._slots = Slots(self._limit)
        self._slot_of: Index = np.zeros(0, np.int64)
        self._heads = heads
        self._exact = torch.promote_types(embedding.dtype, torch.float32)
        self._floors = {
            n: torch.tensor((n * config.rms_norm_eps) ** 0.5, device=embedding.device)
            for n in (config.hidden_size, config.head_dim)
        }
        self.retire()

    def retire(self) -> None:
        """See :class:`hexad.policy.backend.Backend`."""
        self._slots.retire()
        self._layers = [self._read(layer) for layer in self._model.model.layers]
        self._last = self._norm(self._model.model.norm)
        self._tables(self._kv.columns)

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
        first, rows = self._window(lanes)
        slots = self._slot_of[lanes]
        self._slots.append(slots, tokens, positions)
        own = slots - first
        packed = np.zeros((3, rows), np.int64)
        packed[2] = self._kv.columns
        packed[:, own] = tokens, positions, positions
        ids, at, columns = torch.from_numpy(packed).to(self._kv.device)
        length = min(-(-(int(positions.max()) + 1) // 32) * 32, self._kv.columns)
        logits = self._head(self._run(ids, at, Decode(self._kv, first, at, columns, length)))
        if len(own) == rows and bool((own == np.arange(rows)).all()):
            return logits
        return logits[torch.from_numpy(own).to(logits.device)]

    def release(self, lane: int, *, keep: bool) -> None:
        """See :class:`hexad.policy.backend.Backend`."""
        slot = int(self._slot_of[lane])
        self._slots.release(slot, keep=keep)
        if not keep:
            self._kv.erase(slot)

    def _read(self, layer: Any) -> _Layer:
        attention, mlp, shape = layer.self_attn, layer.mlp, self._kv.shape
        scaled = self._norm(attention.q_norm) * shape.head_dim**-0.5
        return _Layer(
            before=self._norm(layer.input_layernorm),
            q=(attention.q_proj.weight, attention.q_proj.bias),
            k=(attention.k_proj.weight, attention.k_proj.bias),
            v=(attention.v_proj.weight, attention.v_proj.bias),
            o=(attention.o_proj.weight, attention.o_proj.bias),
            heads=torch.cat(
                (
                    scaled.expand(self._heads, -1),
                    self._norm(attention.k_norm).expand(shape.kv_heads, -1),
                )
            ),
            after=self._norm(layer.post_attention_layernorm),
            gate=mlp.gate_proj.weight,
            up=mlp.up_proj.weight,
            down=mlp.down_proj.weight,
        )

    def _norm(self, norm: Any) -> torch.Tensor:
        """Weight of a root-mean-square norm times the root of its width; see :meth:`_rms`."""
        weight = norm.weight.detach()
        return weight.to(self._exact) * float(weight.numel()) ** 0.5

    def _rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """``weight / sqrt(n) * x / sqrt(mean(x^2) + eps)`` over the last axis of ``n``.

        Written as ``weight * x / hypot(|x|, sqrt(n * eps))``: half the time of ``F.rms_norm``.
        """
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=self._exact)
        floor = self._floors[x.shape[-1]]
        return x.div(torch.hypot(size, floor)).mul_(weight).to(x.dtype)

    def _tables(self, columns: int) -> None:
        """Rotary tables ``[columns, 1, head_dim]``; the sine carries the sign of the rotation."""
        frequency = self._model.model.rotary_emb.inv_freq.float().to(self._kv.device)
        angle = torch.arange(columns, device=frequency.device).float()[:, None] * frequency
        cosine, sine = angle.cos(), angle.sin()
        self._cosine = torch.cat((cosine, cosine), -1).to(self._kv.dtype)[:, None]
        self._sine = torch.cat((-sine, sine), -1).to(self._kv.dtype)[:, None]

    def _reserve(self, slots: int, columns: int) -> None:
        self._kv.reserve(max(slots, _ROWS), columns, self._limit)
        if len(self._cosine) < self._kv.columns:
            self._tables(self._kv.columns)

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
        low, small = int(slots.min()), _bucket(len(lanes), self._kv.slots)
        rows = _bucket(int(slots.max()) + 1 - low, self._kv.slots)
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

    def _prefill(self, asks: list[Ask], places: list[Place]) -> torch.Tensor:
        """Run the uncached tokens of each prompt; return logits after its last one."""
        device = self._kv.device
        lengths = [len(ask.ids) - place.start for ask, place in zip(asks, places, strict=True)]
        batch, width = len(asks), max(max(lengths), -(-_ROWS // len(asks)))
        if width > _CHUNK:
            width = -(-width // _ROWS) * _ROWS
        ids = np.zeros((batch, width), np.int64)
        positions = np.zeros((batch, width), np.int64)
        real = np.zeros((batch, width), np.bool_)
        for row, (ask, place, length) in enumerate(zip(asks, places, lengths, strict=True)):
            ids[row, :length] = ask.ids[place.start :]
            positions[row, :length] = np.arange(place.start, len(ask.ids))
            real[row, :length] = True
        slots = torch.tensor([place.slot for place in places], device=device)
        last = torch.tensor(lengths, device=device) - 1
        final: torch.Tensor | None = None
        for first in range(0, width, _CHUNK):
            part = slice(first, first + _CHUNK)
            at = torch.from_numpy(positions[:, part]).to(device)
            view = Prefill(self._kv, slots, at, torch.from_numpy(real[:, part]).to(device))
            tokens = torch.from_numpy(ids[:, part]).to(device)
            hidden = self._run(tokens.reshape(-1), at.reshape(-1), view).view(
                batch, -1, self._width
            )
            here = last.clamp(first, first + hidden.shape[1] - 1)
            ended = hidden[torch.arange(batch, device=device), here - first]
            final = ended if final is None else torch.where((here == last)[:, None], ended, final)
        assert final is not None
        if batch < _ROWS:
            final = F.pad(final, (0, 0, 0, _ROWS - batch))
        return self._head(final)[:batch]

    @property
    def _width(self) -> int:
        return int(self._model.config.hidden_size)

    def _run(self, ids: torch.Tensor, positions: torch.Tensor, view: _View) -> torch.Tensor:
        """Hidden states ``[tokens, hidden]`` of ``ids [tokens]``, before the last norm."""
        shape = self._kv.shape
        cosine, sine = self._cosine[positions], self._sine[positions]
        half, dim, heads = shape.head_dim // 2, shape.head_dim, self._heads
        x = F.embedding(ids, self._model.model.embed_tokens.weight)
        for number, layer in enumerate(self._layers):
            h = self._rms(x, layer.before)
            qk = torch.cat((F.linear(h, *layer.q), F.linear(h, *layer.k)), -1).view(
                len(ids), -1, dim
            )
            qk = self._rms(qk, layer.heads)
            qk = torch.addcmul(qk * cosine, qk.roll(half, -1), sine)
            v = F.linear(h, *layer.v).view(len(ids), -1, dim)
            x = _added(x, view.attend(number, qk[:, :heads], qk[:, heads:], v), *layer.o)
            h = self._rms(x, layer.after)
            h = F.silu(F.linear(h, layer.gate)).mul_(F.linear(h, layer.up))
            x = _added(x, h, layer.down, None)
        return x

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(self._rms(hidden, self._last), self._model.lm_head.weight)


def _added(
    x: torch.Tensor, h: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """``x`` plus a linear map of ``h``."""
    total = torch.addmm(x, h, weight.t())
    return total if bias is None else total.add_(bias)


def _bucket(rows: int, limit: int) -> int:
    """The fixed batch size for ``rows``: 16, 32, 48, 64, 96, 128, 192, ..., within ``limit``."""
    size = _ROWS
    while size < rows:
        power = 1 << (size.bit_length() - 1)
        size += power // 2 if size >= 2 * _ROWS else power
    return min(size, limit)


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
