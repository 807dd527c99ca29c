"""The digest of a table depends on its values alone, and on every one of them."""

import numpy as np
import pyarrow as pa
import pytest

from hexad.contract.fingerprint import fingerprint

LISTS = pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]))


def table(values, kind):
    return pa.table({"x": pa.array(values, kind)})


def test_layout_in_memory_does_not_count():
    rows = [[{"a": 1, "b": ["u", ""]}], [], [{"a": None, "b": ["w"]}, {"a": 2, "b": []}]]
    whole = table(rows, LISTS)
    chunked = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    shifted = table([[{"a": 9, "b": ["zzz"]}], *rows], LISTS).slice(1)
    assert fingerprint(whole) == fingerprint(chunked) == fingerprint(shifted)


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        ([0.0], [-0.0], pa.float64()),
        ([0], [None], pa.int64()),
        ([False], [None], pa.bool_()),
        ([""], [None], pa.string()),
        (["ab", "c"], ["a", "bc"], pa.string()),
        ([[1], [2, 3]], [[1, 2], [3]], pa.list_(pa.int32())),
        ([[1], []], [[], [1]], pa.list_(pa.int32())),
        ([{"a": None}], [None], pa.struct([("a", pa.int32())])),
        ([1, 2], [2, 1], pa.int8()),
        ([], [None], pa.int8()),
    ],
)
def test_every_difference_counts(left, right, kind):
    assert fingerprint(table(left, kind)) != fingerprint(table(right, kind))


def test_nan_bits_and_column_names_count():
    bits = [np.array([raw], np.uint32).view(np.float32) for raw in (0x7FC00000, 0x7FC00001)]
    digests = {fingerprint(table(values, pa.float32())) for values in bits}
    assert len(digests) == 2
    assert fingerprint(pa.table({"x": [1]})) != fingerprint(pa.table({"y": [1]}))
