"""Rules of imitation beyond plain demonstrations: weighted logs, and labels of visited states."""

from __future__ import annotations

from collections.abc import Iterator

from hexad.recipe.axes import Recipe
from hexad.recipe.problem import Problem


def advantage(recipe: Recipe) -> Iterator[Problem]:
    """Weights by advantage belong to the imitation of stored episodes with a score."""
    data, key = recipe.data, "data.advantage"
    if data.advantage is None:
        return
    if recipe.update.surrogate != "nll":
        reason = f"surrogate {recipe.update.surrogate} has an advantage of its own"
        yield Problem(key, reason, "use method: awr, or remove it")
    if data.regime != "fixed" or data.origin in ("expert", "data_set"):
        reason = "it weighs stored episodes by their logged scores"
        yield Problem(key, reason, "use regime: fixed and origin: runs/NAME/episodes")
    if recipe.feedback.source != "verifier":
        reason = f"feedback.source: {recipe.feedback.source} names no score"
        yield Problem(key, reason, "use feedback.source: verifier")


def labels(recipe: Recipe) -> Iterator[Problem]:
    """The expert's labels are demonstrations, also where the policy chose the states."""
    rounds, source = recipe.data.rounds, recipe.feedback.source
    if rounds is not None and rounds.keep == "expert" and source != "demonstrations":
        reason = "the expert's turns are demonstrations"
        yield Problem("feedback.source", reason, "use source: demonstrations, or keep: correct")
