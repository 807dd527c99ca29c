"""Which checkpoint of a run is the best: success on ``selection``, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexad.evidence import journal


@dataclass(frozen=True, slots=True)
class Choice:
    """Version ``step`` of a run and its success on ``selection``."""

    step: int
    success: float

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return {"step": self.step, "success": self.success}


def best(folder: Path, writing: int | None = None) -> Choice | None:
    """The best version of the run in ``folder`` that has a checkpoint; of equals the earliest.

    ``writing`` is a version whose checkpoint is being written: later ones belong to a past that was
    rewound. ``None`` where no version was both evaluated and kept.
    """
    steps = _saved(folder)
    if writing is not None:
        steps = {step for step in steps if step < writing} | {writing}
    return _first({step: rate for step, rate in _evaluated(folder).items() if step in steps})


def unsaved(folder: Path) -> Choice | None:
    """The version that did better than every one with a checkpoint, and has none itself."""
    top, kept = _first(_evaluated(folder)), best(folder)
    if top is None or (kept is not None and kept.success >= top.success):
        return None
    return top


def told(folder: Path) -> dict[str, Any] | None:
    """Both as JSON; ``None`` where nothing was evaluated on ``selection``."""
    found = {"best": best(folder), "unsaved": unsaved(folder)}
    rows = {name: choice.row() for name, choice in found.items() if choice is not None}
    return rows or None


def lines(row: dict[str, Any] | None) -> dict[str, str]:
    """The summary's line."""
    return {} if row is None else {"best on selection": line(row)}


def line(row: dict[str, Any]) -> str:
    """What :func:`told` found, for people."""
    texts = []
    if (kept := row.get("best")) is not None:
        texts.append(f"{kept['success']:.1%} at version {kept['step']}, kept")
    if (lost := row.get("unsaved")) is not None:
        texts.append(f"version {lost['step']} reached {lost['success']:.1%} and has no checkpoint")
    return "; ".join(texts)


def _evaluated(folder: Path) -> dict[int, float]:
    """Success by version: the first evaluation of each, of as many episodes as the run's first."""
    rows = [
        row
        for row in journal.rows(folder / journal.EVALUATIONS)
        if row["split"] == "selection" and "success" in row
    ]
    found: dict[int, float] = {}
    for row in rows:
        if row["episodes"] == rows[0]["episodes"]:
            found.setdefault(int(row["step"]), float(row["success"]))
    return found


def _first(found: dict[int, float]) -> Choice | None:
    if not found:
        return None
    step = max(found, key=lambda step: (found[step], -step))
    return Choice(step, found[step])


def _saved(folder: Path) -> set[int]:
    """Versions with a finished checkpoint."""
    names = (path.parent.name for path in folder.glob("checkpoints/step_*/manifest.json"))
    return {int(name.removeprefix("step_")) for name in names}
