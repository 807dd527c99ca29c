"""Recorded data sets: where their rows are, and how they are read."""

from __future__ import annotations

from typing import Literal

from hexad.recipe.axis import Axis


class DataSetSpec(Axis):
    """A table of rows in the formats that docs/data-sets.md lists."""

    path: str
    """A file; format ``hf``: a folder that ``save_to_disk`` wrote, or a data set's name."""
    format: Literal["jsonl", "parquet", "hf"]
    """``jsonl``: JSON lines. ``parquet``: one Parquet file. ``hf``: Hugging Face ``datasets``."""
    split: str | None = None
    """Format ``hf``: which split of the data set; ``null`` where it has none."""
    tools: Literal["row", "environment"] = "row"
    """Which tools the model is told of: those of the row, or the environment's in every row."""
