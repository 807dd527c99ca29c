"""From a recipe's ``feedback`` to the terms that training adds to a verdict's reward."""

from __future__ import annotations

from hexad.environments.protocol import TaskFamily
from hexad.feedback.prices import Prices
from hexad.feedback.process import Process, signal
from hexad.feedback.terms import Effort, Terms
from hexad.recipe.axes import Recipe


def terms_of(recipe: Recipe, family: TaskFamily) -> Terms:
    """The terms that ``recipe`` declares. Raises ``UserError`` for a signal that is none."""
    spec = recipe.feedback
    processes = tuple(
        Process(
            name,
            signal(each.signal, family, each.options, f"feedback.process.{name}"),
            each.paid,
            each.owner,
        )
        for name, each in spec.process.items()
    )
    effort = spec.effort
    return Terms(
        processes,
        prices_of(recipe),
        None if effort is None else Effort(**effort.model_dump()),
        None if spec.gate is None else spec.gate.reward,
    )


def prices_of(recipe: Recipe) -> Prices | None:
    """The recipe's prices."""
    costs = recipe.feedback.costs
    return None if costs is None else Prices(**costs.model_dump())
