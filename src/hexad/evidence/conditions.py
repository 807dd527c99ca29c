"""Under what conditions an evaluation is made: success under unlike ones is no comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hexad.contract.digest import canonical_json
from hexad.evidence.folder import leaves
from hexad.evidence.ran import Ran, Side
from hexad.recipe.axes import Recipe
from hexad.recipe.dump import tree

_ALWAYS = (
    "task.environment",
    "task.options",
    "task.limits",
    "task.guard",
    "policy.sampling",
    "feedback.timeout",
)
"""Keys that hold for every split: what an episode may do, and what it counts as."""
_DISTURBED = ("latency", "chaos")
"""Sections of ``task`` that name the splits they hold for."""
_MEASURED: dict[str, Callable[[Ran], Any]] = {
    "temperature": lambda run: run.row.get("temperature"),
    "verifier": lambda run: run.row.get("verifier"),
    "tools": lambda run: run.provenance.get("tools"),
    "prompt": lambda run: run.provenance.get("template"),
}
"""What runs recorded; ``None`` where one did not."""


def conditions(recipe: Recipe, split: str) -> dict[str, Any]:
    """Decisions of ``recipe`` that an episode of an evaluation on ``split`` meets, by dotted key.

    Prices and rewards are no such thing: success does not hold them.
    """
    starts = [*_ALWAYS, f"task.{split}.options"]
    for name in _DISTURBED:
        spec = getattr(recipe.task, name)
        if spec is not None and split in spec.splits:
            starts.append(f"task.{name}")
    return {
        key: value
        for key, value in leaves(tree(recipe)).items()
        if any(key == start or key.startswith(f"{start}.") for start in starts)
    }


def unlike(recipe: Recipe, base: Recipe, split: str) -> list[str]:
    """Keys by which evaluations of the two on ``split`` differ."""
    ours, theirs = conditions(recipe, split), conditions(base, split)
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))


def incomparable(side: Side, base: Side) -> list[str]:
    """What keeps the evaluations of two arms from being compared; empty where nothing does.

    Decisions of the recipes by key, and what the runs recorded, where both did, by name.
    """
    ours, theirs = side.runs[0], base.runs[0]
    found = unlike(ours.part.recipe, theirs.part.recipe, ours.split)
    for name, fact in _MEASURED.items():
        values = [fact(run) for run in (*side.runs, *base.runs)]
        if len({canonical_json(value) for value in values if value is not None}) > 1:
            found.append(name)
    return found
