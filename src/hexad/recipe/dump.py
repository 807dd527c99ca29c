"""The resolved recipe as text: what a run folder keeps, and what loads to the same recipe."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from hexad.contract.durable import disk_errors, write_whole
from hexad.recipe.axes import Recipe
from hexad.recipe.staged import Staged


def tree(recipe: Recipe | Staged) -> dict[str, Any]:
    """The recipe as plain JSON values, every field written out."""
    if isinstance(recipe, Recipe):
        return recipe.model_dump(mode="json")
    stages = []
    for stage in recipe.stages:
        entry: dict[str, Any] = {"name": stage.name, "recipe": tree(stage.recipe)}
        if stage.gate is not None:
            entry["gate"] = stage.gate.model_dump(mode="json")
        stages.append(entry)
    return {"name": recipe.name, "stages": stages}


def dump(recipe: Recipe | Staged) -> str:
    """YAML 1.2 text; ``load`` of it gives back an equal recipe."""
    out = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.dump(tree(recipe), out)
    return out.getvalue()


def write(recipe: Recipe | Staged, path: Path) -> None:
    """Write ``dump(recipe)`` to ``path``: whole or not at all."""
    with disk_errors("write the resolved recipe", path):
        write_whole(path, dump(recipe).encode(), "recipe")
