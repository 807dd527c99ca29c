"""Ranks: the processes that share one optimiser step. Everything is summed, nothing averaged."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Ranks(Protocol):
    """``rank`` of ``size``. Every method is collective: all ranks call it in the same order."""

    @property
    def rank(self) -> int:
        """This process, 0 to ``size - 1``."""
        ...

    @property
    def size(self) -> int:
        """How many processes there are."""
        ...

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor, in place, by its sum over ranks. All must have one dtype."""
        ...

    def gather(self, data: bytes) -> list[bytes]:
        """The ``data`` of every rank, in rank order, on every rank."""
        ...

    def broadcast_bytes(self, data: bytes | None) -> bytes:
        """The ``data`` of rank 0; other ranks pass ``None``, or anything."""
        ...

    def broadcast_float(self, value: float) -> float:
        """The ``value`` of rank 0, exactly."""
        ...

    def barrier(self) -> None:
        """Return once every rank has come here."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


class Single:
    """One process."""

    rank = 0
    size = 1

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Nothing to add."""

    def gather(self, data: bytes) -> list[bytes]:
        """Its own data."""
        return [data]

    def broadcast_bytes(self, data: bytes | None) -> bytes:
        """Its own data."""
        if data is None:
            raise ValueError("rank 0 has nothing to broadcast")
        return data

    def broadcast_float(self, value: float) -> float:
        """Its own value."""
        return value

    def barrier(self) -> None:
        """Nobody to wait for."""

    def close(self) -> None:
        """Nothing to leave."""


class Gloo:
    """A ``torch.distributed`` group over gloo, on the CPU.

    ``address`` is an ``init_method``: ``file:///path`` of a file that does not exist yet, or
    ``env://`` under torchrun. Bytes cross as tensors, never as pickles.
    """

    def __init__(self, rank: int, size: int, address: str, timeout: float = 600.0) -> None:
        self.rank, self.size = rank, size
        dist.init_process_group(
            "gloo",
            init_method=address,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout),
        )

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """One all-reduce of the concatenation."""
        flat = torch.cat([tensor.detach().reshape(-1).cpu() for tensor in tensors])
        dist.all_reduce(flat)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.detach().copy_(part.view_as(tensor))

    def gather(self, data: bytes) -> list[bytes]:
        """Lengths first, then all data padded to the longest."""
        length = torch.tensor([len(data)])
        lengths = [torch.zeros_like(length) for _ in range(self.size)]
        dist.all_gather(lengths, length)
        longest = max(max(int(n) for n in lengths), 1)
        mine = torch.zeros(longest, dtype=torch.uint8)
        mine[: len(data)] = _tensor(data)
        every = [torch.zeros_like(mine) for _ in range(self.size)]
        dist.all_gather(every, mine)
        pairs = zip(every, lengths, strict=True)
        return [part[: int(n)].numpy().tobytes() for part, n in pairs]

    def broadcast_bytes(self, data: bytes | None) -> bytes:
        """Length first, then the data."""
        if self.rank == 0 and data is None:
            raise ValueError("rank 0 has nothing to broadcast")
        content = data if self.rank == 0 and data is not None else b""
        length = torch.tensor([len(content)])
        dist.broadcast(length, src=0)
        whole = _tensor(content) if self.rank == 0 else torch.zeros(int(length), dtype=torch.uint8)
        if int(length):
            dist.broadcast(whole, src=0)
        return whole.numpy().tobytes()

    def broadcast_float(self, value: float) -> float:
        """As one float64."""
        cell = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(cell, src=0)
        return float(cell)

    def barrier(self) -> None:
        """A gloo barrier."""
        dist.barrier()

    def close(self) -> None:
        """Destroy the process group."""
        dist.destroy_process_group()


def from_environment() -> Ranks:
    """The ranks that torchrun started, by its RANK and WORLD_SIZE; one process without it."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    return Gloo(int(os.environ["RANK"]), size, "env://") if size > 1 else Single()


def _tensor(data: bytes) -> Tensor:
    """A writable uint8 tensor of ``data``."""
    return (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.zeros(0, dtype=torch.uint8)
    )
