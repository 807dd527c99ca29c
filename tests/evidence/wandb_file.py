"""Reads what Weights & Biases keeps of an offline run: records in blocks, as LevelDB's log has."""

import json
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

_BLOCK, _HEADER = 32768, 7
_FULL, _LAST = 1, 4


def _records(path: Path):
    data, at, parts = path.read_bytes(), _HEADER, b""
    while at + _HEADER <= len(data):
        if _BLOCK - at % _BLOCK < _HEADER:  # no header fits there: padding
            at += _BLOCK - at % _BLOCK
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + _HEADER : at + _HEADER + size]
        at += _HEADER + size
        if kind in (_FULL, _LAST):
            yield Record.FromString(parts)
            parts = b""


def sessions(folder: Path) -> list[dict]:
    """Every session of the run in ``folder``, oldest first: id, name, config, history, summary."""
    return [_session(path) for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"))]


def _session(path: Path) -> dict:
    found = {"history": {}, "summary": {}, "config": {}, "steps": []}
    for record in _records(path):
        if record.HasField("run"):
            run = record.run
            found |= {"id": run.run_id, "name": run.display_name, "group": run.run_group}
            found["config"] |= {u.key: json.loads(u.value_json) for u in run.config.update}
        if record.HasField("history"):
            row = {_key(item): json.loads(item.value_json) for item in record.history.item}
            found["steps"].append(row["_step"])
            found["history"][row["_step"]] = row
        if record.HasField("summary"):
            found["summary"] |= {_key(u): json.loads(u.value_json) for u in record.summary.update}
    return found


def _key(item) -> str:
    return item.key or ".".join(item.nested_key)
