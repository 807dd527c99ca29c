"""Where the results of ``hexad check`` lie, and which recipes they hold for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hexad.contract.digest import digest
from hexad.contract.durable import disk_errors, write_whole
from hexad.contract.faults import UserError
from hexad.recipe.axes import Recipe
from hexad.recipe.dump import tree
from hexad.recipe.load import load

FOLDER = Path("runs") / "checks"
"""Of profiles that were not given a folder of their own."""
FILE = "check.json"
"""Name of a profile in a folder of its own."""


OWN = "the environment's own"
"""A verifier that the recipe does not name."""
SAME_TASK = ("environment", "options")
"""Keys of ``task`` in which evidence of one task agrees."""
SAME_SECONDS = (*SAME_TASK, "limits", "latency")
"""The same of evidence about what episodes take."""


def key(recipe: Recipe) -> str:
    """What a profile depends on: task, policy, data and a named verifier.

    Timing and update may change.
    """
    axes = tree(recipe)
    # A recipe that names no verifier keeps the key that it had before verifiers counted.
    named = {name: axes["feedback"][name] for name in ("verifier", "options")}
    judged = [named] if any(named.values()) else []
    return digest([axes["task"], axes["policy"], axes["data"], *judged])[:16]


def subject(recipe: Recipe) -> dict[str, Any]:
    """What a profile is of, written into it for whoever would take it for evidence."""
    axes = tree(recipe)
    return {
        "task": axes["task"],
        "policy": axes["policy"],
        "lineage": lineage(recipe.policy.model),
        "verifier": recipe.feedback.verifier or OWN,
    }


def lineage(model: str) -> list[str]:
    """``model``, and where it is a run or a stage of one, what that began with, and so on."""
    found = [model]
    while (before := _began_with(Path(found[-1]))) is not None and before not in found:
        found.append(before)
    return found


def _began_with(folder: Path) -> str | None:
    path = next((p for f in (folder, folder.parent) if (p := f / "recipe.yaml").is_file()), None)
    if path is None:
        return None
    recipe = load(path)
    first = recipe if isinstance(recipe, Recipe) else recipe.stages[0].recipe
    return first.policy.model


def place(recipe: Recipe, folder: Path | None) -> Path:
    """The file of ``recipe``'s profile, in ``folder`` or where ``train`` looks by default."""
    return FOLDER / f"{key(recipe)}.json" if folder is None else folder / FILE


def write(document: Mapping[str, Any], path: Path) -> None:
    """Write a profile. Raises ``UserError`` where the disk refuses."""
    folder = path.parent
    if folder.exists() and not folder.is_dir():
        raise UserError("this is a file", where=str(folder), fix="name a folder for the profile")
    with disk_errors("write the profile", path):
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(document, indent=1, sort_keys=True)
        write_whole(path, f"{text}\n".encode(), "profile")


def known(recipe: Recipe, run_dir: Path) -> bool:
    """Whether there is a profile for ``recipe``, in the run's folder or in the default place."""
    return any(_holds(path, recipe) for path in (run_dir / FILE, place(recipe, None)))


def _holds(path: Path, recipe: Recipe) -> bool:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("key") == key(recipe)
