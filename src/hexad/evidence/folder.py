"""Reading a run folder: its recipe, its stages and its logs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hexad.contract.faults import UserError
from hexad.evidence import journal
from hexad.recipe.axes import Recipe
from hexad.recipe.load import load
from hexad.recipe.staged import Gate, Staged

Row = dict[str, Any]


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
