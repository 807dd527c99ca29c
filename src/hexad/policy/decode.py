"""One decode step of the lean path: one new token for each of some neighbouring slots."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from hexad.policy.block import Affine, Block, Floors, Turn, enter, leave, linear, look, rms


class Net(NamedTuple):
    """The tensors of a Qwen3-shaped model. ``turn`` covers every position that may be asked for."""

    embedding: Tensor
    blocks: list[Block]
    last: Tensor
    head: Affine
    floors: Floors
    turn: Turn


class Window(NamedTuple):
    """Views of one layer's memory for neighbouring slots; an item is a pair of slot and head.

    ``write_keys [slots, kv_heads, head_dim, columns + 1]``; ``write_values`` is all values as
    ``[items * (columns + 1), head_dim]``; ``keys [items, head_dim, length]`` and
    ``values [items, length, head_dim]`` are what attention reads.
    """

    write_keys: Tensor
    write_values: Tensor
    keys: Tensor
    values: Tensor


class Rows(NamedTuple):
    """What the rows of one step are: ``tokens`` int64 ``[3, rows]`` holds ids, positions, columns.

    A column is where key and value go (the scratch column for rows that only pad). ``items`` int64
    ``[rows, kv_heads]`` numbers the items; ``stairs`` is :func:`hexad.policy.attend.staircase` of
    the window's length.
    """

    tokens: Tensor
    items: Tensor
    stairs: Tensor


def decode(net: Net, windows: list[Window], rows: Rows) -> Tensor:
    """Store keys and values of the new tokens; logits ``[rows, vocabulary]`` after them."""
    ids, positions, columns = rows.tokens.unbind(0)
    count, heads = rows.items.shape
    dim, wide = windows[0].write_keys.shape[2:]
    length = rows.stairs.shape[0]
    mask = rows.stairs.index_select(0, length - 1 - positions)
    mask = mask[:, None].expand(count, heads, length).reshape(count * heads, 1, length)
    flat = torch.add(columns[:, None], rows.items, alpha=wide).view(-1)
    at = columns.view(count, 1, 1, 1).expand(count, heads, dim, 1)
    turn = Turn(
        net.turn.cosine.index_select(0, positions), net.turn.sine.index_select(0, positions)
    )
    x = F.embedding(ids, net.embedding)
    for block, window in zip(net.blocks, windows):  # noqa: B905 - TorchScript knows no strict
        q, k, v = enter(x, block, turn, net.floors)
        window.write_keys.scatter_(3, at, k.unsqueeze(-1))
        window.write_values.index_copy_(0, flat, v.reshape(-1, dim))
        seen = look(mask, q.reshape(count * heads, -1, dim), window.keys, window.values)
        x = leave(x, seen.view(count, -1), block, net.floors)
    return linear(rms(x, net.last, net.floors.hidden), net.head)


Step: TypeAlias = Callable[[Net, list[Window], Rows], Tensor]


@cache
def compiled() -> Step:
    """:func:`decode` without the interpreter between its operations.

    The same operations in the same order: the bits are equal. With small models the interpreter
    costs a quarter of a step (measured). TorchScript is deprecated but is the one compiler of
    PyTorch that needs no C++ compiler on the machine; for processors it fuses nothing here.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)
        step: Step = torch.jit.script(decode)
    return step
