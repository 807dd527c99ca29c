"""A preset fills the axes; what is written out wins, and the difference is said aloud."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hexad.recipe.axes import Recipe
from hexad.recipe.axis import Axis
from hexad.recipe.legal import ESTIMATOR_KEYS, ESTIMATORS, SURROGATE_KEYS
from hexad.recipe.methods import Method, flatten, method
from hexad.recipe.read import merge

COMPANIONS = {
    "action.ratio": ("action.combine",),
    "action.denominator": ("action.length", "action.inner"),
    "credit.estimator": tuple(f"credit.{key}" for key in ("clock", *ESTIMATOR_KEYS)),
    "update.surrogate": tuple(f"update.{key}" for key in SURROGATE_KEYS),
}
"""Keys that only mean something beside the choice they belong to: another choice drops them."""


def fill(record: Method, written: Mapping[str, Any]) -> dict[str, Any]:
    """``written`` over the axis values of ``record``. No key of ``written`` is changed."""
    values, own = record.values(), dict(flatten(written))
    for choice, companions in COMPANIONS.items():
        if choice in own and own[choice] != values.get(choice):
            kept = _shared(own) if choice == "credit.estimator" else ()
            dropped = [key for key in companions if key not in kept]
            values = {key: value for key, value in values.items() if key not in dropped}
    return merge(_nest(values), written)


def _shared(own: Mapping[str, Any]) -> tuple[str, ...]:
    """What a preset says of truncated episodes holds for every estimator that must be told."""
    rule = ESTIMATORS.get(own["credit.estimator"])
    return ("credit.truncation",) if rule is not None and "truncation" in rule.required else ()


def lookup(recipe: Recipe, key: str) -> Any:
    """The value at a dotted ``key``; ``None`` inside a section that is not there."""
    value: Any = recipe
    for name in key.split("."):
        if value is None:
            return None
        value = getattr(value, name) if isinstance(value, Axis) else value[name]
    return value


def modified(recipe: Recipe) -> dict[str, tuple[Any, Any]]:
    """Keys that differ from the preset of ``recipe.method``, as ``(value, preset's value)``."""
    pairs = {
        key: (lookup(recipe, key), value) for key, value in method(recipe.method).values().items()
    }
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def headline(recipe: Recipe) -> str:
    """The method, and how far the recipe departs from it: ``grpo, modified: ...``."""
    changes = [f"{key} = {now} (preset {was})" for key, (now, was) in modified(recipe).items()]
    return f"{recipe.method}, modified: {'; '.join(changes)}" if changes else recipe.method


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *sections, leaf = key.split(".")
        target = tree
        for name in sections:
            target = target.setdefault(name, {})
        target[leaf] = value
    return tree
