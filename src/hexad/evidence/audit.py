"""The quadrant audit: is a high training reward also a success by the independent verifier?"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexad.contract.durable import disk_errors, write_whole
from hexad.evidence.intervals import wilson

if TYPE_CHECKING:
    from hexad.evidence.archive import Archive  # which needs torch; reading an audit does not

FILE = "audit.json"
CELLS = ("high-hit", "high-miss", "low-hit", "low-miss")
"""Training reward, then the independent outcome. ``high-miss`` is paid for nothing."""
Row = dict[str, Any]


def audit(archive: Archive, high: float) -> Row:
    """Judge every scored episode of the store by the evaluation's verifier and keep the cells.

    A reward (weighted as in training) of at least ``high`` is high. What either side left unscored
    is in no cell and counted. ``paid_for_nothing`` is the share of high rewards that missed, with
    its 95 % Wilson interval.
    """
    weights = archive.recipe.feedback.weights
    cells: dict[str, list[str]] = {name: [] for name in CELLS}
    unscored = 0
    for episode in archive.episodes():
        score = episode.score(weights)
        verdict = None
        if not math.isnan(score):
            task, transcript = archive.task(episode), archive.transcript(episode)
            verdict = archive.examiner.judge(task, episode, transcript)
        if verdict is None or not verdict.scored:
            unscored += 1
            continue
        reward, outcome = "high" if score >= high else "low", "hit" if verdict.success else "miss"
        cells[f"{reward}-{outcome}"].append(episode.episode_id)
    missed, paid = len(cells["high-miss"]), len(cells["high-miss"]) + len(cells["high-hit"])
    row: Row = {
        "stage": archive.part.name,
        "high": high,
        "cells": {name: len(ids) for name, ids in cells.items()},
        "unscored": unscored,
        "paid_for_nothing": missed / paid if paid else None,
        "interval": wilson(missed, paid),
        "episodes": cells,
    }
    path = archive.part.folder / FILE
    with disk_errors("write the audit", path):
        write_whole(path, f"{json.dumps(row)}\n".encode(), "audit")
    return row


def read(folder: Path) -> Row | None:
    """The last audit of ``folder``, without the episodes' names; ``None`` where there is none."""
    path = folder / FILE
    if not path.exists():
        return None
    row: Row = json.loads(path.read_bytes())
    return {key: value for key, value in row.items() if key != "episodes"}


def line(row: Row) -> str:
    """The cells in one line."""
    cells = ", ".join(f"{name} {count:,}" for name, count in row["cells"].items())
    return f"audit of {row['stage']}, training reward - independent outcome: {cells}"
