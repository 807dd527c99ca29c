"""One block of a Qwen3-shaped decoder: pure functions on its tensors, in few operations.

They are written in the part of Python that TorchScript compiles; see ``decode.py``. It cannot read
postponed annotations.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Affine(NamedTuple):
    """A linear map ``x @ weight + bias``: ``weight [inputs, outputs]``, ``bias [outputs]``."""

    weight: Tensor
    bias: Tensor | None


class Block(NamedTuple):
    """The tensors of one block; ``before``, ``heads`` and ``after`` weigh norms, see :func:`rms`.

    ``heads [heads + kv_heads, head_dim]`` carries the attention's scale in the query rows.
    """

    before: Tensor
    qkv: Affine
    heads: Tensor
    out: Affine
    after: Tensor
    gate_up: Affine
    down: Affine


class Floors(NamedTuple):
    """``sqrt(n * eps)`` of the norms over the hidden width and over one head."""

    hidden: Tensor
    head: Tensor


class Turn(NamedTuple):
    """Rotary tables: cosine and signed sine, ``[positions, 1, head_dim]``."""

    cosine: Tensor
    sine: Tensor


def rms(x: Tensor, weight: Tensor, floor: Tensor) -> Tensor:
    """``w * x / sqrt(mean(x^2) + eps)`` over the last axis of ``n``; ``weight`` is w sqrt(n).

    Written as ``weight * x / hypot(|x|, sqrt(n * eps))``: half the time of ``F.rms_norm``.
    """
    size = torch.linalg.vector_norm(x, 2.0, [-1], True, dtype=floor.dtype)
    return x.div(torch.hypot(size, floor)).mul_(weight).to(x.dtype)


def linear(x: Tensor, affine: Affine) -> Tensor:
    """``x [tokens, inputs]`` to ``[tokens, outputs]``."""
    bias = affine.bias
    if bias is None:
        return torch.mm(x, affine.weight)
    return torch.addmm(bias, x, affine.weight)


def added(x: Tensor, h: Tensor, affine: Affine) -> Tensor:
    """``x`` plus the map of ``h``."""
    total = torch.addmm(x, h, affine.weight)
    bias = affine.bias
    return total if bias is None else total.add_(bias)


def enter(x: Tensor, block: Block, turn: Turn, floors: Floors) -> tuple[Tensor, Tensor, Tensor]:
    """Queries ``[tokens, heads, dim]``, keys and values ``[tokens, kv_heads, dim]`` of ``x``.

    ``turn`` holds one row a token. The number of values equals that of keys, so the heads of
    ``qkv`` beyond those that ``block.heads`` norms are the values.
    """
    both, dim = block.heads.shape
    qkv = linear(rms(x, block.before, floors.hidden), block.qkv).view(x.shape[0], -1, dim)
    heads = 2 * both - qkv.shape[1]
    qk = rms(qkv[:, :both], block.heads, floors.head)
    turned = qk.roll([dim // 2], [-1])
    qk = qk.mul_(turn.cosine).addcmul_(turned, turn.sine)
    return qk[:, :heads], qk[:, heads:], qkv[:, both:]


def leave(x: Tensor, seen: Tensor, block: Block, floors: Floors) -> Tensor:
    """What the block hands on, from its input ``x`` and what attention has seen, both 2-d."""
    x = added(x, seen, block.out)
    gate, up = linear(rms(x, block.after, floors.hidden), block.gate_up).chunk(2, -1)
    return added(x, F.silu(gate, inplace=True).mul_(up), block.down)


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis, computed in float32 or better, in the type of ``scores``."""
    if scores.dtype == torch.float32 or scores.dtype == torch.float64:
        return scores.softmax(-1)
    return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)


def look(mask: Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of one token an item: ``queries [items, group, dim]`` to the same shape.

    ``keys [items, dim, length]``, ``values [items, length, dim]``, ``mask [items, 1, length]``.
    Each product runs with two query rows at least: one alone would round differently.
    """
    group = queries.shape[1]
    if group == 1:
        queries = queries.expand(-1, 2, -1)
    out = torch.bmm(softmax(torch.baddbmm(mask, queries, keys)), values)
    return out if group > 1 else out[:, :1].contiguous()
