"""Rules of recorded data sets."""

from __future__ import annotations

from collections.abc import Iterator

from hexad.recipe.axes import Recipe
from hexad.recipe.problem import Problem

_SOURCES = {"demonstrations": "demonstrations", "preferences": "preferences"}
"""The key of ``data`` that names a data set -> the ``feedback.source`` that reads it."""


def data_sets(recipe: Recipe) -> Iterator[Problem]:
    """A data set is named where one is read, and nowhere else."""
    data, source = recipe.data, recipe.feedback.source
    named = [key for key in _SOURCES if getattr(data, key) is not None]
    if data.origin == "data_set" and not named:
        key = _SOURCES.get(source, "demonstrations")
        fix = f"use data.{key}: {{path: rows.jsonl, format: jsonl}}"
        yield Problem("data.origin", "nothing names the data set", fix)
    if data.bad_rows != "stop" and not named and data.held_out is None:
        yield Problem("data.bad_rows", "no data set is read", "remove it")
    if data.held_out is not None and recipe.update.surrogate != "nll":
        reason = f"surrogate {recipe.update.surrogate} does not imitate"
        yield Problem("data.held_out", reason, "remove it, or use method: sft")
    for key in named:
        if data.origin != "data_set":
            reason = f"has no effect with data.origin: {data.origin}"
            yield Problem(f"data.{key}", reason, "use origin: data_set, or remove it")
        if source != _SOURCES[key]:
            reason = f"feedback.source: {source} does not read it"
            yield Problem(f"data.{key}", reason, f"use data.{_SOURCES.get(source, key)}")
    for key in ("demonstrations", "preferences", "held_out"):
        spec = getattr(data, key)
        if spec is not None and spec.split is not None and spec.format != "hf":
            reason = f"a {spec.format} file has no splits"
            yield Problem(f"data.{key}.split", reason, "remove it, or use format: hf")
