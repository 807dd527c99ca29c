"""How long the viewer takes at 100 000 stored episodes: its index, a page, a filter, an episode.

    python benchmarks/viewer.py [EPISODES]

The store repeats 1 000 made-up rows under new names, in parts such as a long run leaves.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from builders import episode, segment
from hexad.contract.arrow import SCHEMA, to_table
from hexad.contract.part import Part
from hexad.view.index import Index, Query

ROWS, PART = 1000, 10_000
TURNS = (("system", 48), ("user", 6), *(("tool_call", 12), ("observation", 8)) * 4, ("text", 6))


def rows() -> pa.Table:
    """1 000 episodes of about 140 tokens, with random log-probs and rewards."""
    draw = np.random.default_rng(0)
    made = []
    for number in range(ROWS):
        one = segment(TURNS)
        noise = -draw.exponential(0.1, len(one)).astype(np.float32)
        one = replace(one, logprob=np.where(one.action, noise, np.float32(np.nan)))
        made.append(episode(number, segments=(one,)))
    return to_table(made, 0)


def store(folder: Path, count: int) -> None:
    """``count`` episodes in parts of ``PART``."""
    base = rows()
    for first in range(0, count, PART):
        tables = []
        for start in range(first, min(first + PART, count), ROWS):
            names = pa.array([f"v{start // ROWS}-{start + i}" for i in range(ROWS)])
            steps = pa.array([start // ROWS] * ROWS, pa.int64())
            table = base.set_column(0, SCHEMA.field("step"), steps)
            tables.append(table.set_column(1, SCHEMA.field("episode_id"), names))
        last = (min(first + PART, count) - 1) // ROWS
        Part.named(folder, first // ROWS, last).write(pa.concat_tables(tables))


def main() -> None:
    """Print one line a measurement."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "episodes").mkdir()
        store(folder / "episodes", count)
        index = Index(folder, {})
        row = {}

        def one() -> None:
            row.update(index.find(Query(page=700)).rows[0])

        steps = {
            "index of all parts, once": index.refresh,
            "index again, nothing new": index.refresh,
            "a page in the middle": one,
            "search by id, lowest reward first": lambda: index.find(
                Query(text="-77", order="lowest reward")
            ),
            "filter by length and lag": lambda: index.find(Query(least_length=3, least_lag=0)),
            "one episode, tokens and all": lambda: index.episode(row),
        }
        for what, step in steps.items():
            start = time.perf_counter()
            step()
            print(f"{what}: {1000 * (time.perf_counter() - start):,.0f} ms")


if __name__ == "__main__":
    main()
