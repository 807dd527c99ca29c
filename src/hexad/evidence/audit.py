"""Quadrant audits: is a high training reward, or much progress, also an independent success?"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexad.contract.durable import disk_errors, write_whole
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.contract.lookup import nearest
from hexad.evidence.intervals import wilson

if TYPE_CHECKING:
    from hexad.evidence.archive import Archive  # which needs torch; reading an audit does not

FILE = "audit.json"
REWARD = "training reward"
CELLS = ("high-hit", "high-miss", "low-hit", "low-miss")
"""Training reward, then the independent outcome. ``high-miss`` is paid for nothing."""
Row = dict[str, Any]


def audit(archive: Archive, high: float, process: str | None = None) -> Row:
    """Judge every scored episode of the store by the evaluation's verifier and keep the cells.

    A reward (weighted as in training) of at least ``high`` is high. With ``process`` what that
    signal gained from the first state to the last takes its place; raises ``UserError`` where the
    recipe has no such signal. What either side left unscored is in no cell and counted.
    ``paid_for_nothing`` is the share of high ones that missed, with its 95 % Wilson interval.

    Raises ``UserError`` also where the evaluation's verifier is training's own: its reward beside
    itself shows no hole. A signal is held to that outcome all the same; ``independent`` tells.
    """
    weights, known = archive.recipe.feedback.weights, archive.recipe.feedback.process
    if process is not None and process not in known:
        what, fix = f"there is no process signal {process!r}", nearest(process, known)
        raise UserError(what, where="--process", fix=fix)
    if process is None and not archive.independent:
        raise UserError(
            "training and evaluation are judged by one verifier, so there is no independent "
            "outcome to hold the reward to",
            where=str(archive.part.folder),
            fix="give the environment an `evaluation_verifier` of its own, or hold the verifier "
            "to judged conversations: `hexad check RECIPE --labels FILE`",
        )
    cells: dict[str, list[str]] = {name: [] for name in CELLS}
    unscored = 0
    for episode in archive.episodes():
        score = episode.score(weights) if process is None else gained(episode, process)
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
        "of": process or REWARD,
        "high": high,
        "independent": archive.independent,
        "cells": {name: len(ids) for name, ids in cells.items()},
        "unscored": unscored,
        "paid_for_nothing": missed / paid if paid else None,
        "interval": wilson(missed, paid),
        "episodes": cells,
    }
    path = archive.part.folder / (FILE if process is None else f"audit-{process}.json")
    with disk_errors("write the audit", path):
        write_whole(path, f"{json.dumps(row)}\n".encode(), "audit")
    return row


def gained(episode: Episode, process: str) -> float:
    """The last level of a signal less its first; NaN where nothing was scored."""
    found = [levels.values for levels in episode.signals if levels.name == process]
    return found[0][-1] - found[0][0] if found and episode.scored else math.nan


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
