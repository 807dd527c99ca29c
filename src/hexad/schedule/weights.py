"""Weights on their way to the workers: safetensors bytes."""

from __future__ import annotations

from safetensors import SafetensorError
from safetensors.torch import load, save

from hexad.policy.engine import Weights
from hexad.schedule.frame import FrameError


def pack(weights: Weights) -> bytes:
    """``weights`` as safetensors; copies are made, so the learner may go on at once."""
    # Tied tensors share memory, which safetensors refuses: each name gets its own.
    seen: set[int] = set()
    own = {}
    for name, tensor in weights.items():
        plain = tensor.detach().cpu().contiguous()
        shared = plain.untyped_storage().data_ptr() in seen
        own[name] = plain.clone() if shared else plain
        seen.add(plain.untyped_storage().data_ptr())
    return save(own)


def unpack(data: bytes) -> Weights:
    """Inverse of :func:`pack`. Raises ``FrameError`` for bytes that are no safetensors."""
    try:
        return load(data)
    except SafetensorError as error:
        raise FrameError(f"the published weights cannot be read: {error}") from error
