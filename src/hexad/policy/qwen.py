"""The forward pass of Qwen3-shaped models, straight on their tensors, with few operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from hexad.policy.adapter import exact, is_adapted, whole_weight
from hexad.policy.attend import Prefill
from hexad.policy.block import Affine, Block, Floors, Turn, enter, leave, linear, rms
from hexad.policy.decode import Net
from hexad.policy.kv import Shape

_SMALL = 1 << 19
"""Most bytes of a weight that is copied; see :func:`_map`."""


def lean_shaped(model: nn.Module) -> bool:
    """Whether :class:`Qwen` computes exactly what ``model`` computes.

    An adapter of linear maps is added into the weights, in 32 bits or more: in 16 the sum would
    round away most of what training has moved.
    """
    config: Any = model.config
    if type(model).__name__ != "Qwen3ForCausalLM" or config.hidden_act != "silu":
        return False
    if any(kind != "full_attention" for kind in config.layer_types):
        return False
    if config.rope_parameters.get("rope_type", "default") != "default":
        return False
    known = (nn.Linear, nn.Embedding, nn.ModuleList, nn.SiLU)
    own = ("transformers.models.qwen3.", "transformers.activations")
    inner = {id(m) for each in model.modules() if is_adapted(each) for m in each.modules()}
    if inner and not exact(model):
        return False
    return all(
        id(m) in inner or type(m) in known or type(m).__module__.startswith(own)
        for m in model.modules()
    )


class Qwen:
    """Forward passes of one ``Qwen3ForCausalLM``; :meth:`refresh` after its weights have moved.

    ``rows`` is the fewest rows of a product: with fewer, the kernels round differently (measured).
    """

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
        self._floors = Floors(
            *(
                torch.tensor((n * config.rms_norm_eps) ** 0.5, dtype=self.exact, device=self.device)
                for n in (config.hidden_size, config.head_dim)
            )
        )
        self._reach(0)
        self.refresh()

    def refresh(self) -> None:
        """Derive the small tensors again, and find the large ones."""
        model = self._model.model
        with torch.inference_mode(False), torch.no_grad():
            self.net = Net(
                embedding=model.embed_tokens.weight.detach(),
                blocks=[self._read(layer) for layer in model.layers],
                last=self._norm(model.norm),
                head=_map(self._model.lm_head.weight.detach(), None),
                floors=self._floors,
                turn=self._turn,
            )
        blocks = self.net.blocks
        maps = [m for b in blocks for m in (b.qkv, b.out, b.gate_up, b.down)] + [self.net.head]
        self.rows = 4 if all(each.weight.is_contiguous() for each in maps) else 16

    def reach(self, positions: int) -> None:
        """Make sure that positions below ``positions`` can be asked for."""
        if positions > len(self._turn.cosine):
            self._reach(positions)
            self.net = self.net._replace(turn=self._turn)

    def run(self, ids: torch.Tensor, positions: torch.Tensor, view: Prefill) -> torch.Tensor:
        """Hidden states of the chosen ones of ``ids [tokens]``, before the last norm."""
        net = self.net
        turn = Turn(net.turn.cosine[positions], net.turn.sine[positions])
        x = F.embedding(ids, net.embedding)
        for number, block in enumerate(net.blocks):
            seen = view.attend(number, *enter(x, block, turn, net.floors))
            if number == self.shape.layers - 1:
                x = x[view.chosen]
            x = leave(x, seen, block, net.floors)
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits ``[tokens, vocabulary]`` of hidden states ``[tokens, hidden]``."""
        return linear(rms(hidden, self.net.last, self.net.floors.hidden), self.net.head)

    def _reach(self, positions: int) -> None:
        """Rotary tables; the sine carries the rotation's sign."""
        frequency = self._model.model.rotary_emb.inv_freq.float().to(self.device)
        angle = torch.arange(positions, device=self.device).float()[:, None] * frequency
        cosine, sine = angle.cos(), angle.sin()
        self._turn = Turn(
            torch.cat((cosine, cosine), -1).to(self.dtype)[:, None],
            torch.cat((-sine, sine), -1).to(self.dtype)[:, None],
        )

    def _read(self, layer: Any) -> Block:
        attention, mlp = layer.self_attn, layer.mlp
        scaled = self._norm(attention.q_norm) * self.shape.head_dim**-0.5
        plain = self._norm(attention.k_norm)
        return Block(
            before=self._norm(layer.input_layernorm),
            qkv=_together((attention.q_proj, attention.k_proj, attention.v_proj)),
            heads=torch.cat((scaled.expand(self.heads, -1), plain.expand(self.shape.kv_heads, -1))),
            out=_together((attention.o_proj,)),
            after=self._norm(layer.post_attention_layernorm),
            gate_up=_together((mlp.gate_proj, mlp.up_proj)),
            down=_together((mlp.down_proj,)),
        )

    def _norm(self, norm: Any) -> torch.Tensor:
        """Weight of a root-mean-square norm times the root of its width; see ``block.rms``."""
        weight: torch.Tensor = norm.weight.detach()
        return weight.to(self.exact) * math.sqrt(weight.numel())


def _together(maps: Sequence[nn.Linear]) -> Affine:
    """One linear map that does the work of ``maps`` side by side."""
    plain = [getattr(each, "base_layer", each) for each in maps]
    biases = [each.bias for each in plain if each.bias is not None]
    if any(is_adapted(each) for each in maps):
        weight = torch.cat([whole_weight(each) for each in maps])
    else:
        weight = _adjacent([each.weight for each in plain])
    return _map(weight, _adjacent(biases) if biases else None)


def _map(weight: torch.Tensor, bias: torch.Tensor | None) -> Affine:
    """``weight [outputs, inputs]`` and ``bias`` as a map, on the model's memory if it is large.

    A small weight is copied into transposed order: a product of few rows then takes two thirds of
    the time, and has the bits of one of many rows (measured in float32).
    """
    small = weight.device.type == "cpu" and weight.nbytes <= _SMALL
    return Affine(weight.t().contiguous() if small else weight.t(), bias)


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
