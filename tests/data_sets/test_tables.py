"""The same rows from JSON lines, Parquet, and `datasets` saved or named."""

import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hexad.contract.faults import UserError
from hexad.data_sets.bad import BadRow, Flaw
from hexad.data_sets.forms import demonstration
from hexad.data_sets.table import open_table
from hexad.recipe.data_set_axis import DataSetSpec

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}
OTHER = {"type": "function", "function": {"name": "neg", "arguments": {"n": 5}}}
ROWS = [
    {
        "messages": [
            {"role": "user", "content": "2+3"},
            {"role": "assistant", "content": "", "tool_calls": [call], "weight": 0.0},
            {"role": "tool", "name": call["function"]["name"], "content": "5"},
            {"role": "assistant", "content": "5"},
        ]
    }
    for call in (CALL, OTHER)
]
"""Structs of different keys: a column fills each with the other's, as null."""


def write(folder, kind):
    path = folder / "rows"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif kind == "saved":
        datasets.Dataset.from_list(ROWS).save_to_disk(path)
    elif kind == "split":
        made = datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)})
        made.save_to_disk(path)
    else:
        path.mkdir()
        (path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "saved", "split", "named"])
def test_every_format_gives_the_same_dialogues(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    split = "train" if kind in ("split", "named") else None
    form = kind if kind in ("jsonl", "parquet") else "hf"
    spec = DataSetSpec(path=str(write(tmp_path, kind)), format=form, split=split)
    table = open_table(spec, "data.demonstrations")
    rows = list(table.rows())
    assert [number for number, _ in rows] == [1, 2]
    assert [demonstration(row) for _, row in rows] == [demonstration(row) for row in ROWS]
    assert table.digest and table.digest == open_table(spec, "data.demonstrations").digest
    assert rows == list(table.rows())


def test_a_text_that_is_not_utf8_is_one_bad_row_of_a_parquet_file(tmp_path):
    raw = pa.array([b"5", b"\xff", b"6"], pa.binary())
    text = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    pq.write_table(pa.table({"prompt": ["a", "b", "c"], "completion": text}), tmp_path / "x")
    rows = dict(open_table(DataSetSpec(path=str(tmp_path / "x"), format="parquet"), "d").rows())
    assert isinstance(rows[2], BadRow) and rows[2].flaw is Flaw.NOT_UTF8
    assert rows[1]["completion"] == "5" and rows[3]["completion"] == "6"


@pytest.mark.parametrize(
    ("kind", "form", "changes", "message"),
    [
        ("none", "jsonl", {}, "there is no file"),
        ("saved", "parquet", {}, "there is no file"),
        ("jsonl", "parquet", {}, "no readable Parquet"),
        ("none", "hf", {}, "cannot be loaded"),
        ("split", "hf", {"split": "test"}, "has the splits train"),
    ],
)
def test_a_data_set_that_cannot_be_opened(tmp_path, kind, form, changes, message, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    path = tmp_path / "rows" if kind == "none" else write(tmp_path, kind)
    spec = DataSetSpec(path=str(path), format=form, **changes)
    with pytest.raises(UserError, match=message):
        list(open_table(spec, "data.demonstrations").rows())
