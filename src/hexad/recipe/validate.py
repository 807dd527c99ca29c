"""Rules across axes. Each names the key, the reason, and the nearest valid choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hexad.contract.faults import UserError
from hexad.recipe.axes import Recipe
from hexad.recipe.methods import method
from hexad.recipe.presets import lookup
from hexad.recipe.problem import Problem
from hexad.recipe.rules import (
    credit,
    data,
    data_sets,
    imitation,
    preference,
    process,
    roles,
    run,
    task,
    timing,
    update,
)

__all__ = ["RULES", "Problem", "problems", "refusal", "validate"]


def problems(recipe: Recipe) -> list[Problem]:
    """Everything that is wrong with a well-typed recipe; empty when it may run."""
    method(recipe.method)
    return [problem for rule in RULES for problem in rule(recipe)]


def validate(recipe: Recipe) -> None:
    """Raise ``UserError`` for the first broken rule; the others are counted in the message."""
    if found := problems(recipe):
        raise refusal(found, lambda key: key)


def refusal(found: list[Problem], where: Callable[[str], str]) -> UserError:
    """The error for ``found``, each problem with its place."""
    first, *rest = found
    others = [f"  also:  {p.key}: {p.reason} ({where(p.key)}; {p.fix})" for p in rest]
    what = "\n".join([f"{first.key}: {first.reason}", *others])
    return UserError(what, where=where(first.key), fix=first.fix)


@dataclass(frozen=True, slots=True)
class _Inert:
    """``key`` decides nothing unless ``choice`` is one of ``alive``."""

    key: str
    choice: str
    alive: tuple[str, ...]


_INERT = (
    _Inert("action.length", "action.denominator", ("fixed",)),
    _Inert("action.inner", "action.denominator", ("prompt",)),
    _Inert("data.size", "data.regime", ("fixed",)),
    _Inert("data.dynamic", "data.regime", ("online",)),
    _Inert("feedback.weights", "feedback.source", ("verifier", "preferences")),
    _Inert("update.optimizer.floor", "update.optimizer.schedule", ("linear", "cosine")),
)
_DEFAULTS = Recipe()


def _inert(recipe: Recipe) -> Iterator[Problem]:
    for rule in _INERT:
        choice = lookup(recipe, rule.choice)
        default = lookup(_DEFAULTS, rule.key)
        if choice not in rule.alive and lookup(recipe, rule.key) != default:
            reason = f"has no effect with {rule.choice}: {choice}"
            wanted = " or ".join(rule.alive)
            yield Problem(rule.key, reason, f"remove it, or use {rule.choice}: {wanted}")


RULES: tuple[Callable[[Recipe], Iterator[Problem]], ...] = (
    data.feedback,
    data.data,
    data_sets.data_sets,
    imitation.advantage,
    imitation.labels,
    preference.loss,
    preference.rounds,
    preference.pairs,
    data.overlong,
    process.feedback,
    process.signals,
    process.gate,
    process.constraints,
    process.comparisons,
    credit.estimator,
    credit.companions,
    credit.truncation,
    credit.continuations,
    credit.critic,
    data.sampling,
    task.latency,
    task.chaos,
    task.disturbances,
    update.surrogate,
    update.corrections,
    roles.roles,
    update.kl,
    update.steps,
    update.denominator,
    update.timing,
    timing.schedule,
    run.budget,
    run.evaluation,
    _inert,
)
"""Every rule, in the order in which problems are reported."""
