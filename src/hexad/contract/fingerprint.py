"""Digest of an Arrow table by value: what Parquet's own page checksums leave unwatched.

They guard data pages, not page headers or the footer, where one flipped bit can shorten a column.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from hashlib import _Hash


def fingerprint(table: pa.Table) -> str:
    """SHA-256 (hex) over names and values in order; chunking and layout in memory do not count.

    Floats count by their bits. Lists must not be null; they never are in the episode schema.
    """
    sha = hashlib.sha256()
    whole = table.combine_chunks()
    for name, column in zip(whole.column_names, whole.columns, strict=True):
        sha.update(f"{name}:{len(column)};".encode())
        for chunk in column.chunks:
            _feed(sha, chunk)
    return sha.hexdigest()


def _feed(sha: _Hash, array: pa.Array) -> None:
    sha.update(np.packbits(array.is_valid().to_numpy(zero_copy_only=False)).tobytes())
    kind = array.type
    if pa.types.is_list(kind):
        _feed(sha, pc.list_value_length(array))
        _feed(sha, array.flatten())
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            _feed(sha, child)
    elif pa.types.is_string(kind):
        filled = array.fill_null("")
        _feed(sha, pc.binary_length(filled))
        sha.update("".join(filled.to_pylist()).encode())
    else:
        zero = pa.scalar(False if pa.types.is_boolean(kind) else 0, kind)
        sha.update(array.fill_null(zero).to_numpy(zero_copy_only=False).tobytes())
