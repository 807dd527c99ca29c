"""Finished runs as a comparison reads them, and the arms that they make."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from hexad.contract.digest import canonical_json
from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.evidence import journal
from hexad.evidence.folder import Part, Row, parts
from hexad.evidence.ledger import EVALUATION_PHASE
from hexad.learner import checkpoint
from hexad.recipe.dump import tree

SECONDS = "seconds"
OVERSHOOT = 0.05
"""Share of a budget by which a run may miss it (by its last batch) and still count as matched."""
BUDGETS = ("episodes", "rollout_tokens", "train_tokens", "tool_calls", SECONDS)


@dataclass(frozen=True)
class Ran:
    """A run (of a staged path its last stage) that ended and was evaluated on ``split`` then."""

    folder: Path
    split: str
    memory: int | None = None
    """Peak resident bytes, where somebody measured them."""

    @cached_property
    def part(self) -> Part:
        """Its recipe and logs. Raises ``UserError`` for a folder without a run."""
        return parts(self.folder)[-1]

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.part.recipe.run.seed

    @cached_property
    def row(self) -> Row:
        """Its last evaluation on the split. Raises ``UserError`` where the end has none."""
        last = last_step(self.part)
        rows = [row for row in self.part.on(self.split) if row["step"] == last]
        if not rows:
            raise UserError(
                f"the end of this run (step {last}) was not evaluated on {self.split}",
                where=str(self.folder),
                fix=f"finish it with hexad train --resume, or: hexad evaluate {self.folder} "
                f"--split {self.split}",
            )
        return rows[-1]

    @property
    def outcomes(self) -> dict[str, tuple[int, int]]:
        """``(correct, scored)`` by task; empty in runs from before they were kept."""
        return {task: (c, n) for task, (c, n) in self.row.get("outcomes", {}).items()}

    @cached_property
    def books(self) -> Row:
        """The run's last books. Raises ``UserError`` where there are none."""
        if self.part.ledger is None:
            what, fix = "this run has no books", "train it"
            raise UserError(what, where=str(self.part.folder), fix=fix)
        return self.part.ledger

    @property
    def spent(self) -> dict[str, float]:
        """What was consumed of every budget, the critic's tokens beside them."""
        used = {**self.books["consumed"], SECONDS: self.books["time"]["train"]}
        return {key: float(used[key]) for key in (*BUDGETS, "critic_tokens") if key in used}

    @property
    def rates(self) -> dict[str, float]:
        """Shares that never reached the loss: dropped tokens, groups without signal, faults.

        Imitation and preferences compare no scores inside a group: there is no signal to lack.
        """
        books = self.books
        groups, ended = books["groups"], books["funnel"]["ended"]
        dull, live = (groups.get(k, {}).get("groups", 0) for k in ("no_signal", "signal"))
        online = self.part.recipe.data.regime == "online"
        parts_ = {
            "dropped_tokens": (sum(books["books"]["dropped"].values()), self._sampled),
            "groups_without_signal": (dull, dull + live if online else 0),
            "faulted_episodes": (ended.get("failed", 0), ended["count"]),
        }
        return {key: count / whole for key, (count, whole) in parts_.items() if whole}

    @property
    def _sampled(self) -> float:
        return float(self.books["consumed"]["rollout_tokens"])

    def at(self, key: str, amount: float, *, end: bool = False) -> tuple[float, float] | None:
        """First success on selection once ``amount`` of budget ``key`` was spent, and the spent.

        ``end``: it is the whole budget. A run that misses it by no more than what counts as
        matched has its last evaluation there.
        """
        rows = [
            (row, self._spent_before(int(row["step"]), key)) for row in self.part.on("selection")
        ]
        reached = [(row, done) for row, done in rows if done >= amount][:1]
        if not reached and end:
            reached = [(row, done) for row, done in rows if done >= (1.0 - OVERSHOOT) * amount][-1:]
        return next(((float(row["success"]), done) for row, done in reached), None)

    def _spent_before(self, step: int, key: str) -> float:
        rows = [row for row in self.part.metrics if row["step"] < step]
        if key != SECONDS:
            return float(rows[-1][f"budget/{key}"]) if rows else 0.0
        phases = self.books["time"].keys() - {"train", EVALUATION_PHASE}
        return float(sum(row.get(f"time/{phase}", 0.0) for row in rows for phase in phases))

    @cached_property
    def provenance(self) -> dict[str, str]:
        """Digests of what made its first stored episode; empty where none was stored."""
        store = Store(self.part.folder / "episodes")
        pieces = store.parts()
        if not pieces:
            return {}
        episodes = store.read([pieces[0].first])
        return episodes[0].provenance.parts() if episodes else {}

    @cached_property
    def start(self) -> str | None:
        """Digest of the weights that it started from, where a checkpoint still says so."""
        found = checkpoint.newest(self.part.folder)
        path = found.path / "state" / "lineage.json" if found is not None else None
        if path is None or not path.exists():
            return None
        digests: dict[str, str] = json.loads(path.read_bytes())
        return digests.get("0")


@dataclass(frozen=True)
class Side:
    """One arm: its runs in order of their seeds, and what the study did around them."""

    name: str
    runs: tuple[Ran, ...]
    matched: bool = True
    """Whether it was given the study's budget."""
    trials: int | None = None
    """Tuning trials; ``None`` where nobody knows."""
    chosen: dict[str, Any] = field(default_factory=dict)
    """What tuning chose."""
    failed: int | None = None
    """Runs that failed; ``None`` where nobody knows."""
    machine: str | None = None

    def by_seed(self) -> dict[int, Ran]:
        """Its runs by seed."""
        return {run.seed: run for run in self.runs}


def last_step(part: Part) -> int:
    """The version that training reached: 0 before the first batch."""
    return int(part.metrics[-1]["step"]) + 1 if part.metrics else 0


def side(name: str, runs: Iterable[Ran], **known: Any) -> Side:
    """An arm of ``runs``, in order of their seeds. Raises ``UserError`` for a seed given twice."""
    ordered = sorted(runs, key=lambda run: run.seed)
    for before, after in pairwise(ordered):
        if before.seed == after.seed:
            what = f"two runs of arm {name} have seed {after.seed}"
            fix = "give one of them: a repeated seed is no second sample"
            raise UserError(what, where=f"{before.folder}, {after.folder}", fix=fix)
    return Side(name, tuple(ordered), **known)


def grouped(folders: Sequence[Path], split: str) -> list[Side]:
    """Arms of finished runs: those whose recipes differ in name, seed, ``run`` and ``system`` only.

    In order of first appearance, so that the first run given belongs to the base. An arm is named
    by its method, or where that names several by recipe, or by its first run's folder.
    """
    arms: dict[str, list[Ran]] = {}
    for folder in folders:
        run = Ran(folder, split)
        decisions = tree(run.part.recipe)
        kept = {k: v for k, v in decisions.items() if k not in ("name", "run", "system")}
        arms.setdefault(canonical_json(kept), []).append(run)
    groups = list(arms.values())
    names = (
        [runs[0].part.recipe.method for runs in groups],
        [runs[0].part.recipe.name for runs in groups],
        [runs[0].folder.name for runs in groups],
        [str(runs[0].folder) for runs in groups],
    )
    chosen = next(each for each in names if len(set(each)) == len(each))
    return [side(name, runs) for name, runs in zip(chosen, groups, strict=True)]


def hidden_uses(sides: Sequence[Side]) -> int:
    """How often hidden tasks were run in all folders of ``sides``."""
    return sum(journal.hidden_uses(run.part.folder) for each in sides for run in each.runs)
