"""Reading a run folder: its recipe, its stages and its logs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hexad.contract.durable import disk_errors
from hexad.contract.faults import UserError
from hexad.evidence import journal
from hexad.recipe.axes import Recipe
from hexad.recipe.dump import tree, write
from hexad.recipe.load import load
from hexad.recipe.staged import Gate, Staged

Row = dict[str, Any]
_EMPTY = frozenset({"recipe.yaml", "crash.txt", "check.json", "verifiers.json"})
"""Files that a run which never began may have left, and the profile that was made before it."""


@dataclass(frozen=True)
class Part:
    """One recipe's share of a run: the whole of it, or one stage in its own folder."""

    name: str
    folder: Path
    recipe: Recipe
    gate: Gate | None = None

    @cached_property
    def metrics(self) -> list[Row]:
        """Rows of ``metrics.jsonl``."""
        return journal.rows(self.folder / journal.METRICS)

    @cached_property
    def ledger(self) -> Row | None:
        """The last row of ``ledger.jsonl``."""
        rows = journal.rows(self.folder / journal.LEDGER)
        return rows[-1] if rows else None

    @cached_property
    def evaluations(self) -> list[Row]:
        """Rows of ``evaluation.jsonl``."""
        return journal.rows(self.folder / journal.EVALUATIONS)

    @property
    def hidden_uses(self) -> int:
        """Evaluations on hidden tasks."""
        return journal.hidden_uses(self.folder)

    def on(self, split: str) -> list[Row]:
        """Evaluations on ``split`` that scored anything, oldest first."""
        return [r for r in self.evaluations if r["split"] == split and "success" in r]

    def episodes_at(self, version: int) -> int:
        """Training episodes consumed when the learner reached ``version``."""
        done = [row["budget/episodes"] for row in self.metrics if row["step"] < version]
        return int(done[-1]) if done else 0


def parts(run_dir: Path) -> list[Part]:
    """The stages of the run in ``run_dir`` that have begun, or the run itself.

    Raises ``UserError`` when the folder is not a run.
    """
    path = run_dir / "recipe.yaml"
    if not path.exists():
        fix = "give the folder of a run, for example runs/calculator"
        raise UserError("this folder holds no run", where=str(run_dir), fix=fix)
    recipe = load(path)
    if isinstance(recipe, Staged):
        found = [Part(s.name, run_dir / s.name, s.recipe, s.gate) for s in recipe.stages]
        return [part for part in found if part.folder.exists()]
    return [Part(recipe.name, run_dir, recipe)]


def claim(run_dir: Path, recipe: Recipe | Staged, *, resume: bool) -> None:
    """Make ``run_dir`` this recipe's folder, or check that it is the one to resume.

    A folder in which nothing was written but the recipe counts as new. A resumed run keeps its
    recipe; only ``system`` may change. Raises ``UserError`` naming the ways out.
    """
    path = run_dir / "recipe.yaml"
    begun = run_dir.exists() and (
        not run_dir.is_dir()
        or any(p.is_file() and p.name not in _EMPTY for p in run_dir.rglob("*"))
    )
    if resume and not path.exists():
        fix = "start it without --resume"
        raise UserError("there is no run to resume here", where=str(run_dir), fix=fix)
    if begun and not resume:
        fix = "continue it with --resume, or choose another folder with --run"
        raise UserError("the run folder exists already", where=str(run_dir), fix=fix)
    if resume and (found := changed(load(path), recipe)):
        shown = ", ".join(found[:5])
        fix = "resume with the recipe it began with, or start another run with --run"
        raise UserError(f"the recipe differs from the run's: {shown}", where=str(path), fix=fix)
    with disk_errors("make the run folder", run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
    write(recipe, path)


def changed(before: Recipe | Staged, now: Recipe | Staged) -> list[str]:
    """Dotted keys whose values differ, ``system`` apart."""
    old, new = leaves(tree(before)), leaves(tree(now))
    keys = [key for key in (old | new) if old.get(key) != new.get(key)]
    return [key for key in keys if "system" not in key.split(".")]


def leaves(value: Any, key: str = "") -> dict[str, Any]:
    """Values of a tree by dotted key; an empty section or list is a value."""
    inner = dict(enumerate(value)) if isinstance(value, list) else value
    if not isinstance(inner, dict) or not inner:
        return {key: value}
    found: dict[str, Any] = {}
    for name, below in inner.items():
        found |= leaves(below, f"{key}.{name}" if key else str(name))
    return found
