"""State as JSON text and safetensors: exact values and types, and nothing that can execute.

Plain JSON values stand for themselves. Everything else is an object with one ``$`` key:

    {"$tensor": NAME}   {"$array": NAME, "dtype": "<f8", "shape": [2, 3]}   {"$scalar": ...same...}
    {"$float": "7ff8000000000000"} (IEEE 754 bits of NaN and infinities)
    {"$tuple": [...]}   {"$bytes": "00ff"}   {"$dict": [[key, value], ...]}
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch


def encode(value: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return a JSON value and the tensors it names.

    Supported: ``None``, bool, int of any size, float, str, bytes, list, tuple, dict (any supported
    key), numpy arrays and scalars without objects, dense torch tensors. Raises ``TypeError`` with
    the path of anything else. Tensors come back on the CPU, without gradient.
    """
    encoder = _Encoder()
    return encoder.encode(value, "state"), encoder.tensors


def decode(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Inverse of :func:`encode`. Raises ``ValueError`` for an object it does not know."""
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    mark = next((key for key in value if key.startswith("$")), None)
    if mark is None:
        return {key: decode(item, tensors) for key, item in value.items()}
    if mark not in _DECODERS:
        raise ValueError(f"unknown mark {mark} in a stored state")
    return _DECODERS[mark](value, tensors)


class _Encoder:
    """Collects tensors on the way; their names are their paths."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}

    def encode(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, bool | int | str):
            return _plain(value)
        if isinstance(value, torch.Tensor):
            return {"$tensor": self._keep(value, path)}
        if isinstance(value, np.ndarray):
            return self._array("$array", value, path)
        if isinstance(value, np.generic):
            return self._array("$scalar", np.asarray(value), path)
        if isinstance(value, float):
            bits = struct.pack(">d", value).hex()
            return float(value) if math.isfinite(value) else {"$float": bits}
        if isinstance(value, bytes):
            return {"$bytes": value.hex()}
        return self._container(value, path)

    def _container(self, value: Any, path: str) -> Any:
        if type(value) is list or type(value) is tuple:
            items = [self.encode(item, f"{path}.{i}") for i, item in enumerate(value)]
            return items if type(value) is list else {"$tuple": items}
        if isinstance(value, Mapping):
            if all(isinstance(key, str) and not key.startswith("$") for key in value):
                return {str(k): self.encode(item, f"{path}.{k}") for k, item in value.items()}
            pairs = [
                [self.encode(key, f"{path}.keys"), self.encode(item, f"{path}.{key}")]
                for key, item in value.items()
            ]
            return {"$dict": pairs}
        raise TypeError(f"{path}: a {type(value).__name__} cannot be kept in a checkpoint")

    def _array(self, mark: str, array: np.ndarray[Any, Any], path: str) -> dict[str, Any]:
        if array.dtype.hasobject or array.dtype.names:
            raise TypeError(f"{path}: an array of {array.dtype} cannot be kept in a checkpoint")
        raw = torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy())
        facts = {"dtype": array.dtype.str, "shape": list(array.shape)}
        return {mark: self._keep(raw, path), **facts}

    def _keep(self, tensor: torch.Tensor, path: str) -> str:
        name = path
        while name in self.tensors:
            name += "'"
        # A copy of its own: safetensors refuses tensors that share memory.
        self.tensors[name] = tensor.detach().cpu().contiguous().clone()
        return name


def _plain(value: Any) -> Any:
    """``value`` without its subclass (an enum of str or int is stored as its value)."""
    if value is None or isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else str.__str__(value)


def _array(value: dict[str, Any], mark: str, tensors: Mapping[str, torch.Tensor]) -> Any:
    raw = tensors[value[mark]].numpy().tobytes()
    array = np.frombuffer(raw, np.dtype(value["dtype"])).reshape(value["shape"]).copy()
    return array if mark == "$array" else array[()]


_DECODERS: dict[str, Callable[[dict[str, Any], Mapping[str, torch.Tensor]], Any]] = {
    "$tensor": lambda v, t: t[v["$tensor"]],
    "$array": lambda v, t: _array(v, "$array", t),
    "$scalar": lambda v, t: _array(v, "$scalar", t),
    "$float": lambda v, t: struct.unpack(">d", bytes.fromhex(v["$float"]))[0],
    "$tuple": lambda v, t: tuple(decode(item, t) for item in v["$tuple"]),
    "$bytes": lambda v, t: bytes.fromhex(v["$bytes"]),
    "$dict": lambda v, t: {decode(k, t): decode(item, t) for k, item in v["$dict"]},
}
