"""Whether evidence is of the task, the policy and the verifier that the answers speak of."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from hexad.advice.draft import judged
from hexad.advice.questions import Questionnaire
from hexad.contract.faults import UserError
from hexad.evidence import profiles
from hexad.evidence.folder import leaves
from hexad.recipe.axes import Recipe
from hexad.recipe.dump import tree
from hexad.recipe.load import build
from hexad.recipe.read import Document


@dataclass(frozen=True, slots=True)
class Subject:
    """``recipe`` has the answers' task, policy and verifier. ``named``: they name the verifier.

    ``trained``: another stage trains the policy before it samples.
    """

    recipe: Recipe
    named: bool
    trained: bool = False


def subject(answers: Questionnaire, source: Document, *, trained: bool = False) -> Subject:
    """What evidence has to be of. Raises ``UserError`` where the answers make no recipe."""
    written = {
        "method": "reinforce",
        "task": answers.task.model_dump(mode="json", exclude_unset=True),
        "policy": answers.policy.model_dump(mode="json", exclude_unset=True),
        "feedback": judged(answers),
        "budget": {"episodes": answers.episodes},
    }
    recipe = build(Document(source.path, written, source.places))
    assert isinstance(recipe, Recipe)
    return Subject(recipe, answers.feedback.verifier is not None, trained)


def require_profile(document: Mapping[str, Any], of: Subject, where: str) -> None:
    """Raise ``UserError`` where a profile of ``hexad check`` is of something else."""
    if why := _misfit(document, of):
        fix = "run `hexad check` on a recipe of this task, or leave the profile out"
        raise UserError(f"this profile is no evidence here: {why}", where=where, fix=fix)


def require_task(recipe: Recipe, of: Subject, where: str) -> None:
    """Raise ``UserError`` where a run's ``recipe`` is of another task."""
    if why := _other(tree(recipe)["task"], tree(of.recipe)["task"], profiles.SAME_TASK, "task"):
        fix = "give a run of this task, or leave --run out"
        raise UserError(f"this run is of another task: {why}", where=where, fix=fix)


def same_verifier(recipe: Recipe, of: Subject) -> bool:
    """Whether ``recipe`` trains on the verifier of ``of``, by its digest if not by its name."""
    names = [(r.feedback.verifier, r.feedback.options) for r in (recipe, of.recipe)]
    return names[0] == names[1] or _verifier(recipe) == _verifier(of.recipe)


def _misfit(document: Mapping[str, Any], of: Subject) -> str:
    """What the profile ``document`` is of that ``of`` is not; empty where it fits."""
    there, here = document.get("of"), tree(of.recipe)
    if there is None:
        return "it does not say what it is of (an earlier version wrote it)"
    if why := _other(there["task"], here["task"], profiles.SAME_SECONDS, "task"):
        return f"it is of another task: {why}"
    model, lineage = of.recipe.policy.model, there["lineage"]
    if model not in (lineage if of.trained else lineage[:1]):
        return f"it is of another policy: {lineage[0]}, and this task begins with {model}"
    if why := _other(there["policy"], here["policy"], ("adapter", "sampling"), "policy"):
        return f"it is of another policy: {why}"
    judge = document["verifiers"].get("training")
    if judge is not None and judge.get("verifier") != _verifier(of.recipe):
        mine = of.recipe.feedback.verifier or profiles.OWN
        return f"it is of another verifier: {there['verifier']}, and as it is now this is {mine}"
    return ""


def _other(
    there: Mapping[str, Any], here: Mapping[str, Any], keys: tuple[str, ...], axis: str
) -> str:
    """The values that differ below ``keys``, in words."""
    theirs, ours = (leaves({name: tree[name] for name in keys}) for tree in (there, here))
    return ", ".join(
        f"{axis}.{key} is {theirs.get(key)} there and {ours.get(key)} here"
        for key in (theirs | ours)
        if theirs.get(key) != ours.get(key)
    )


def _verifier(recipe: Recipe) -> str:
    """Digest of the verifier that ``recipe`` trains on, without what is added to its word."""
    from hexad.rollout.build import judges  # torch

    with ExitStack() as held:
        return judges(recipe, held)["training"].verifier.digest
