"""From a YAML file and overrides to a resolved, validated recipe."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hexad.contract.faults import UserError
from hexad.recipe.axes import Recipe
from hexad.recipe.methods import method
from hexad.recipe.presets import fill
from hexad.recipe.read import Document, apply, merge, read
from hexad.recipe.staged import PREVIOUS, Gate, Stage, Staged
from hexad.recipe.validate import Problem, problems, refusal

Model = TypeVar("Model", bound=BaseModel)
_STAGE_KEYS = ("name", "recipe", "gate", "overrides")
_WORDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "model_type": "a section of keys",
    "model_attributes_type": "a section of keys",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "none_required": "null",
}
"""What is expected, by pydantic's type of error."""
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def load(path: str | Path, overrides: list[str] | None = None) -> Recipe | Staged:
    """The resolved recipe, or staged path, in the file ``path``.

    ``overrides`` are ``dotted.key=value`` with YAML values. In a staged file they reach every
    stage, or one alone as ``stages.NAME.dotted.key=value``. Raises ``UserError`` naming the file
    and line, or the override, and what to write instead.
    """
    return build(read(Path(path)), overrides)


def build(document: Document, overrides: list[str] | None = None) -> Recipe | Staged:
    """The recipe, or staged path, that a parsed ``document`` writes down; see :func:`load`."""
    if "stages" in document.tree:
        return _staged(document, overrides or [])
    apply(document, overrides or [])
    recipe = resolve(document)
    if recipe.policy.model == PREVIOUS:
        where = document.where("policy.model")
        fix = "name a model, a folder or a run, or put this recipe in a 'stages' list"
        raise UserError("there is no stage before this recipe", where=where, fix=fix)
    return recipe


def read_as(kind: type[Model], path: str | Path) -> Model:
    """The file ``path`` as ``kind``, as strictly as a recipe. Raises ``UserError``."""
    document = read(Path(path))
    return typed(kind, document.tree, document)


def resolve(document: Document) -> Recipe:
    """Presets merged, then types, then rules across axes."""
    name = document.tree.get("method", Recipe.model_fields["method"].default)
    if not isinstance(name, str):
        fix = "for example method: grpo"
        raise UserError("method: expected text", where=document.where("method"), fix=fix)
    try:
        record = method(name)
    except UserError as error:
        raise UserError(error.what, where=document.where("method"), fix=error.fix) from None
    tree = fill(record, document.tree)
    recipe = typed(Recipe, tree, document)
    if found := problems(recipe):
        raise refusal(found, document.where)
    return recipe


def typed(kind: type[Model], tree: Mapping[str, Any], document: Document) -> Model:
    """``tree`` as ``kind``: nothing is coerced. Raises ``UserError`` with every mistake."""
    try:
        # JSON mode: lists may become tuples, but no text becomes a number.
        return kind.model_validate_json(json.dumps(tree), strict=True)
    except ValidationError as error:
        found = [_problem(kind, detail) for detail in error.errors()]
        raise refusal(found, document.where) from None


def _problem(kind: type[BaseModel], detail: ErrorDetails) -> Problem:
    path = [str(part) for part in detail["loc"]]
    key = ".".join(path)
    if detail["type"] == "extra_forbidden":
        return Problem(key, "unknown key", _nearest(kind, path))
    message = _WORDS.get(detail["type"], detail["msg"].removeprefix("Input should be "))
    if detail["type"] == "missing":
        return Problem(key, "is missing", "write it out")
    shown = json.dumps(detail["input"])
    return Problem(key, f"{shown} is not {message}", f"write {message}")


def _nearest(kind: type[BaseModel], path: list[str]) -> str:
    """Advice for an unknown key: the nearest name in its section, then anywhere."""
    *sections, leaf = path
    names = _section(kind, sections)
    prefix = "".join(f"{section}." for section in sections)
    if near := difflib.get_close_matches(leaf, names, n=1):
        return f"did you mean {prefix}{near[0]}?"
    everywhere = _leaves(kind, "")
    by_leaf = {key.rsplit(".", 1)[-1]: key for key in reversed(everywhere)}
    if near := difflib.get_close_matches(leaf, by_leaf, n=1, cutoff=0.8):
        return f"did you mean {by_leaf[near[0]]}?"
    return f"the keys here are {', '.join(names)}"


def _section(kind: type[BaseModel], sections: list[str]) -> list[str]:
    for name in sections:
        below = _model(kind.model_fields[name].annotation) if name in kind.model_fields else None
        if below is None:
            return []
        kind = below
    return list(kind.model_fields)


def _leaves(kind: type[BaseModel], prefix: str) -> list[str]:
    keys = []
    for name, field in kind.model_fields.items():
        keys.append(f"{prefix}{name}")
        if below := _model(field.annotation):
            keys += _leaves(below, f"{prefix}{name}.")
    return keys


def _model(annotation: Any) -> type[BaseModel] | None:
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _staged(document: Document, overrides: list[str]) -> Staged:
    tree, where = document.tree, str(document.path)
    if unknown := [key for key in tree if key not in ("name", "stages")]:
        fix = "move it into a stage; a staged recipe holds only name and stages"
        raise UserError(f"unknown key {unknown[0]!r}", where=document.where(unknown[0]), fix=fix)
    entries, name = tree["stages"], tree.get("name", document.path.stem)
    if not isinstance(entries, list) or not entries or not isinstance(name, str):
        fix = "stages: [{recipe: first.yaml}, {recipe: second.yaml}], and name is text"
        raise UserError("stages is a list of at least one recipe", where=where, fix=fix)
    stages: list[Stage] = []
    for index, entry in enumerate(entries):
        stages.append(_stage(document, index, entry, overrides))
    names = [stage.name for stage in stages]
    if len(set(names)) < len(names):
        raise UserError(f"two stages have one name: {', '.join(names)}", where=where)
    _addressed(names, overrides)
    return Staged(name, tuple(stages))


def _stage(document: Document, index: int, entry: Any, overrides: list[str]) -> Stage:
    key = f"stages.{index}"
    where = document.where(key)
    entry = {"recipe": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, dict) or "recipe" not in entry:
        raise UserError("a stage names its recipe", where=where, fix="write recipe: FILE.yaml")
    if unknown := [name for name in entry if name not in _STAGE_KEYS]:
        fix = f"the keys of a stage are {', '.join(_STAGE_KEYS)}"
        raise UserError(f"unknown key {key}.{unknown[0]}", where=where, fix=fix)
    inner = _inner(document, key, entry)
    name = str(entry.get("name", inner.tree.get("name", f"stage-{index + 1}")))
    if not _FOLDER.fullmatch(name):
        fix = "use letters, digits, dots and dashes: it becomes a folder"
        raise UserError(f"{name!r} cannot name a stage", where=where, fix=fix)
    apply(inner, _meant_for(name, overrides))
    recipe = resolve(inner)
    if index == 0 and recipe.policy.model == PREVIOUS:
        where = inner.where("policy.model")
        raise UserError("the first stage has no stage before it", where=where, fix="name a model")
    gate = entry.get("gate")
    if gate is None:
        return Stage(name, recipe)
    if not isinstance(gate, dict):
        raise UserError("a gate is a mapping", where=where, fix="gate: {success: 0.25}")
    return Stage(name, recipe, typed(Gate, gate, document))


def _inner(document: Document, key: str, entry: dict[str, Any]) -> Document:
    """The stage's own recipe, written inline or in a file beside the staged one."""
    source, extra = entry["recipe"], entry.get("overrides") or {}
    if not isinstance(extra, dict):
        fix = "overrides: {policy: {model: previous}}"
        raise UserError("overrides is a mapping", where=document.where(key), fix=fix)
    if isinstance(source, dict):
        inner = Document(document.path, source, _below(document.places, f"{key}.recipe."))
    elif isinstance(source, str):
        inner = read(document.path.parent / source)
    else:
        fix = "write recipe: FILE.yaml"
        raise UserError("a stage names its recipe", where=document.where(key), fix=fix)
    added = _below(document.places, f"{key}.overrides.")
    return Document(inner.path, merge(inner.tree, extra), inner.places | added)


def _below(places: Mapping[str, str], start: str) -> dict[str, str]:
    return {k.removeprefix(start): v for k, v in places.items() if k.startswith(start)}


def _meant_for(name: str, overrides: list[str]) -> list[str]:
    """The overrides of stage ``name``: the general ones first, its own last."""
    general = [text for text in overrides if not text.startswith("stages.")]
    start = f"stages.{name}."
    return general + [text.removeprefix(start) for text in overrides if text.startswith(start)]


def _addressed(names: list[str], overrides: list[str]) -> None:
    for text in overrides:
        known = any(text.startswith(f"stages.{name}.") for name in names)
        if text.startswith("stages.") and not known:
            fix = f"write stages.NAME.key=value; the stages are {', '.join(names)}"
            raise UserError(f"no stage is meant by {text!r}", where="command line", fix=fix)
