"""The forward pass of Qwen3-shaped models, straight on their tensors, with few operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn

from hexad.policy.kv import Shape

Affine: TypeAlias = tuple[torch.Tensor, torch.Tensor | None]
"""Weight and bias of a linear map."""


def lean_shaped(model: nn.Module) -> bool:
    """Whether :class:`Qwen` computes exactly what ``model`` computes."""
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


class View(Protocol):
    """Attention over what the slots hold and the new tokens.

    ``chosen`` lists the tokens that leave the last layer, ``None`` for all.
    """

    chosen: torch.Tensor | None

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """``q [tokens, heads, dim]``, ``k`` and ``v [tokens, kv_heads, dim]`` to 2-d."""
        ...


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's tensors. Maps are the model's own memory; norms come from :meth:`Qwen._norm`."""

    before: torch.Tensor
    qkv: Affine
    heads: torch.Tensor
    out: Affine
    after: torch.Tensor
    gate_up: Affine
    down: Affine


class Qwen:
    """Forward passes of one ``Qwen3ForCausalLM``; :meth:`refresh` after its weights have moved."""

    def __init__(self, model: Any) -> None:
        config = model.config
        self._model = model
        embedding = model.model.embed_tokens.weight
        self.heads = config.num_attention_heads
        kv_heads = config.num_key_value_heads
        self.shape = Shape(
            config.num_hidden_layers, kv_heads, self.heads // kv_heads, config.head_dim
        )
        self.dtype, self.device = embedding.dtype, embedding.device
        self.exact = torch.promote_types(self.dtype, torch.float32)
        self._floors = {
            n: torch.tensor((n * config.rms_norm_eps) ** 0.5, device=self.device)
            for n in (config.hidden_size, config.head_dim)
        }
        self._positions = 0
        self.refresh()

    def refresh(self) -> None:
        """Derive the small tensors again, and find the large ones."""
        with torch.inference_mode(False), torch.no_grad():
            self._layers = [self._read(layer) for layer in self._model.model.layers]
            self._last = self._norm(self._model.model.norm)

    def reach(self, positions: int) -> None:
        """Make rotary tables ``[positions, 1, head_dim]``; the sine carries the rotation's sign."""
        if positions <= self._positions:
            return
        self._positions = positions
        frequency = self._model.model.rotary_emb.inv_freq.float().to(self.device)
        angle = torch.arange(positions, device=self.device).float()[:, None] * frequency
        cosine, sine = angle.cos(), angle.sin()
        self._cosine = torch.cat((cosine, cosine), -1).to(self.dtype)[:, None]
        self._sine = torch.cat((-sine, sine), -1).to(self.dtype)[:, None]

    def run(self, ids: torch.Tensor, positions: torch.Tensor, view: View) -> torch.Tensor:
        """Hidden states of ``ids [tokens]``, or of the chosen ones, before the last norm."""
        cosine, sine = self._cosine[positions], self._sine[positions]
        dim, heads = self.shape.head_dim, self.heads
        tokens, both = ids.shape[0], heads + self.shape.kv_heads
        x = F.embedding(ids, self._model.model.embed_tokens.weight)
        for number, layer in enumerate(self._layers):
            qkv = F.linear(self._rms(x, layer.before), *layer.qkv).view(tokens, -1, dim)
            qk = self._rms(qkv[:, :both], layer.heads)
            qk = torch.addcmul(qk * cosine, qk.roll(dim // 2, -1), sine)
            seen = view.attend(number, qk[:, :heads], qk[:, heads:], qkv[:, both:])
            if view.chosen is not None and number == self.shape.layers - 1:
                x = x[view.chosen]
            x = _added(x, seen, *layer.out)
            gate, up = F.linear(self._rms(x, layer.after), *layer.gate_up).chunk(2, -1)
            x = _added(x, F.silu(gate).mul_(up), *layer.down)
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits ``[tokens, vocabulary]`` of hidden states ``[tokens, hidden]``."""
        return F.linear(self._rms(hidden, self._last), self._model.lm_head.weight)

    def _read(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        scaled = self._norm(attention.q_norm) * self.shape.head_dim**-0.5
        plain = self._norm(attention.k_norm)
        return _Layer(
            before=self._norm(layer.input_layernorm),
            qkv=_together((attention.q_proj, attention.k_proj, attention.v_proj)),
            heads=torch.cat((scaled.expand(self.heads, -1), plain.expand(self.shape.kv_heads, -1))),
            out=_transposed(attention.o_proj),
            after=self._norm(layer.post_attention_layernorm),
            gate_up=_together((mlp.gate_proj, mlp.up_proj)),
            down=_transposed(mlp.down_proj),
        )

    def _norm(self, norm: Any) -> torch.Tensor:
        """Weight of a root-mean-square norm times the root of its width; see :meth:`_rms`."""
        weight: torch.Tensor = norm.weight.detach()
        return weight.to(self.exact) * math.sqrt(weight.numel())

    def _rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """``w * x / sqrt(mean(x^2) + eps)`` over the last axis of ``n``; ``weight`` is w sqrt(n).

        Written as ``weight * x / hypot(|x|, sqrt(n * eps))``: half the time of ``F.rms_norm``.
        """
        size = torch.linalg.vector_norm(x, 2, -1, True, dtype=self.exact)
        normed: torch.Tensor = x.div(torch.hypot(size, self._floors[x.shape[-1]])).mul_(weight)
        return normed if normed.dtype == x.dtype else normed.to(x.dtype)


def _added(
    x: torch.Tensor, h: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """``x`` plus a linear map of ``h``; ``weight`` is transposed."""
    total = torch.addmm(x, h, weight)
    return total if bias is None else total.add_(bias)


def _transposed(linear: nn.Linear) -> Affine:
    """The map's own weight, transposed, and its bias."""
    return linear.weight.detach().t(), None if linear.bias is None else linear.bias.detach()


def _together(maps: Sequence[nn.Linear]) -> Affine:
    """One linear map that does the work of ``maps`` side by side, on their own memory."""
    biases = [each.bias for each in maps if each.bias is not None]
    return _adjacent([each.weight for each in maps]), _adjacent(biases) if biases else None


def _adjacent(parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """One tensor over all ``parameters``, joined along their first axis, without a second copy.

    The parameters are moved next to each other once and become views of the result: values, shapes
    and identity stay, so an optimiser goes on unaware and what it writes is read here.
    """
    joined = parameters[0].detach()
    spans = [parameter.numel() * parameter.element_size() for parameter in parameters]
    home = joined.untyped_storage().data_ptr()
    after = [parameters[0].data_ptr() + sum(spans[:i]) for i in range(len(spans))]
    if not all(
        parameter.data_ptr() == start and parameter.untyped_storage().data_ptr() == home
        for parameter, start in zip(parameters, after, strict=True)
    ):
        joined = torch.cat([parameter.detach() for parameter in parameters])
        parts = torch.split(joined, [len(parameter) for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.data = part
        return joined
    rows = sum(len(parameter) for parameter in parameters)
    return joined.as_strided((rows, *joined.shape[1:]), joined.stride())
