"""Read-only numpy arrays: the storage of every fact in the contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


def frozen(values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return ``values`` as a one-dimensional, contiguous, read-only array of ``dtype``.

    The caller's array is never aliased unless it already is read-only, so later writes cannot
    change a recorded fact. Raises ``ValueError`` if the values are not one-dimensional or if the
    conversion would change an integer or boolean value.
    """
    source = np.asarray(values)
    if source.ndim == 1 and source.size == 0:
        source = source.astype(dtype)
    if source.ndim != 1:
        raise ValueError(f"expected a one-dimensional array, got shape {source.shape}")
    target = np.dtype(dtype)
    if target.kind in "ib" and source.dtype != target:
        converted = source.astype(target)
        if not np.array_equal(converted, source):
            raise ValueError(f"values of type {source.dtype} do not fit {target} exactly")
    else:
        converted = source.astype(target, copy=source.flags.writeable)
    converted = np.ascontiguousarray(converted)
    converted.flags.writeable = False
    return converted


def same_bits(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    """Whether two arrays have equal type, shape and bytes (so NaN equals the same NaN)."""
    same = left.dtype == right.dtype and left.shape == right.shape
    return same and left.tobytes() == right.tobytes()
