"""Rules of the task: what disturbs it can happen, and is told apart from what it is."""

from __future__ import annotations

from collections.abc import Iterator

from hexad.recipe.axes import Recipe
from hexad.recipe.problem import Problem

_SHAPES = {"constant": None, "lognormal": "sigma", "pareto": "alpha"}
"""The field that each kind of latency needs besides its mean; no other kind reads it."""
_EXAMPLES = {"sigma": 1.0, "alpha": 1.5}


def latency(recipe: Recipe) -> Iterator[Problem]:
    """A distribution that is described in full, and that does not end every step."""
    spec, limits = recipe.task.latency, recipe.task.limits
    if spec is None:
        return
    wanted = _SHAPES[spec.kind]
    for name, example in _EXAMPLES.items():
        given = getattr(spec, name) is not None
        if name == wanted and not given:
            reason = f"kind {spec.kind} needs it"
            yield Problem(f"task.latency.{name}", reason, f"for example {name}: {example}")
        if name != wanted and given:
            reason = f"kind {spec.kind} does not read it"
            yield Problem(f"task.latency.{name}", reason, "remove it")
    calls = ("step", "reset") if spec.at == "both" else (spec.at,)
    for call in calls:
        patience = getattr(limits, f"{call}_seconds")
        if spec.mean >= patience:
            reason = f"a {call} that takes {patience:g} s counts as hanging"
            fix = f"use a smaller mean, or raise task.limits.{call}_seconds"
            yield Problem("task.latency.mean", reason, fix)


def chaos(recipe: Recipe) -> Iterator[Problem]:
    """Failures that exclude each other."""
    spec = recipe.task.chaos
    if spec is not None and spec.crash + spec.hang + spec.junk > 1:
        reason = "a call fails in one way, so crash, hang and junk add up to at most 1"
        yield Problem("task.chaos", reason, "lower one of them")


def disturbances(recipe: Recipe) -> Iterator[Problem]:
    """Only rollouts are disturbed."""
    for key in ("latency", "chaos"):
        if getattr(recipe.task, key) is not None and recipe.data.regime == "fixed":
            reason = "fixed data meets no environment while training"
            fix = "remove it; in a staged recipe write it into the stage that samples"
            yield Problem(f"task.{key}", reason, fix)
