"""The learner's numbers of every token, for the batches that ``run.traces`` keeps.

``traces/step_N.parquet`` in a run folder: a row a segment, with ratio, advantage and value.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hexad.contract.durable import disk_errors, write_whole

if TYPE_CHECKING:  # reading needs no torch
    from torch import Tensor

    from hexad.learner.batch import Batch
    from hexad.learner.report import Trace

FOLDER = "traces"
NAMES = ("ratio", "advantage", "value")
"""What a trace knows of a token."""
_STEP = re.compile(r"step_([0-9]+)\.parquet")
_LIST = pa.list_(pa.float32())
_SCHEMA = pa.schema(
    [("episode_id", pa.string()), ("segment", pa.int64()), *((name, _LIST) for name in NAMES)]
)
Numbers = Mapping[str, Sequence[float]]


def write(run_dir: Path, step: int, batch: Batch, trace: Trace, value: Tensor | None) -> None:
    """Keep ``trace`` of batch ``step``. ``value`` [T]: of the prefix that ends with each token.

    The value shown at an action is that of the prefix before it. Raises ``UserError`` on a full
    disk.
    """
    before = np.full(len(batch.ids), np.nan)
    if value is not None:
        before = np.where(batch.action.numpy(), np.roll(value.double().cpu().numpy(), 1), np.nan)
    edges, owner = batch.offsets.tolist(), batch.row_episode.tolist()
    numbers: list[int] = []
    for row, episode in enumerate(owner):
        again = row > 0 and owner[row - 1] == episode
        numbers.append(numbers[-1] + 1 if again else 0)
    columns = {
        "episode_id": pa.array([batch.episodes[e].episode_id for e in owner]),
        "segment": pa.array(numbers, pa.int64()),
    }
    found = (trace.ratio.numpy(), trace.advantage.numpy(), before)
    for name, numbers_of in zip(NAMES, found, strict=True):
        plain = pa.array(numbers_of.astype(np.float32), pa.float32())
        columns[name] = pa.ListArray.from_arrays(pa.array(edges, pa.int32()), plain)
    made = io.BytesIO()
    pq.write_table(pa.table(columns, schema=_SCHEMA), made, compression="zstd")
    path = run_dir / FOLDER / f"step_{step}.parquet"
    with disk_errors(f"write the trace of batch {step}", path):
        path.parent.mkdir(exist_ok=True)
        write_whole(path, made.getvalue(), path.stem)


def read(run_dir: Path, step: int, episode_id: str) -> dict[int, Numbers]:
    """What was kept of an episode, by segment; empty where nothing was."""
    path = run_dir / FOLDER / f"step_{step}.parquet"
    if not path.is_file():
        return {}
    table = pq.read_table(path, filters=[("episode_id", "=", episode_id)], schema=_SCHEMA)
    return {row["segment"]: {name: row[name] for name in NAMES} for row in table.to_pylist()}


def batch(run_dir: Path, step: int) -> dict[str, dict[int, Numbers]]:
    """What was kept of batch ``step``, by episode and segment; empty where nothing was."""
    path = run_dir / FOLDER / f"step_{step}.parquet"
    if not path.is_file():
        return {}
    found: dict[str, dict[int, Numbers]] = {}
    for row in pq.read_table(path, schema=_SCHEMA).to_pylist():
        found.setdefault(row["episode_id"], {})[row["segment"]] = {n: row[n] for n in NAMES}
    return found


def rewind(run_dir: Path, step: int) -> None:
    """Forget batches from ``step`` on: they belong to a past that was rewound."""
    for path in (run_dir / FOLDER).glob("step_*.parquet"):
        found = _STEP.fullmatch(path.name)
        if found is not None and int(found[1]) >= step:
            path.unlink()
