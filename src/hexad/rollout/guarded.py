"""From a recipe's ``task.guard`` to a guard; and what may not be explored at all."""

from __future__ import annotations

from typing import Any

from hexad.contract.faults import UserError
from hexad.contract.lookup import load_object, nearest
from hexad.environments.guard import irreversible
from hexad.environments.permission import Approval, Forbidden, Guard
from hexad.environments.protocol import TaskFamily
from hexad.environments.resolve import resolver, settled
from hexad.environments.task_card import card_of
from hexad.recipe.axes import Recipe
from hexad.recipe.task_axis import ForbiddenSpec, GuardSpec


def guard_of(recipe: Recipe, family: TaskFamily) -> Guard | None:
    """The recipe's guard, which also holds what the family's card forbids; ``None`` for nothing.

    Raises ``UserError`` for a tool that ``family`` does not offer, for an argument that the tool
    does not have, and for one whose value nobody knows where a call leaves it out.
    """
    card = card_of(family)
    never = card.forbidden if card is not None else ()
    spec = recipe.task.guard
    if spec is None and not never:
        return None
    spec = spec or GuardSpec()
    asked = spec.approval
    known = [tool.name for tool in family.tools]
    for name in (*never, *(each.tool for each in spec.forbidden), *(asked.tools if asked else ())):
        if name not in known:
            where = "task.guard"
            raise UserError(f"there is no tool {name!r}", where=where, fix=nearest(name, known))
    for each in spec.forbidden:
        _require_known(each, family)
    return Guard(
        (
            *(Forbidden(name) for name in never),
            *(Forbidden(each.tool, each.arguments) for each in spec.forbidden),
        ),
        None if spec.rule is None else _called(spec.rule, "task.guard.rule"),
        None
        if asked is None
        else Approval(
            frozenset(asked.tools),
            _called(asked.approver, "task.guard.approval.approver"),
            asked.seconds,
        ),
        resolver(family),
    )


def _require_known(forbidden: ForbiddenSpec, family: TaskFamily) -> None:
    """Raise ``UserError`` where a call could be what is ``forbidden`` and not look like it."""
    (schema,) = (each.parameters for each in family.tools if each.name == forbidden.tool)
    known, where = list(schema.get("properties", {})), "task.guard.forbidden"
    for name in forbidden.arguments:
        if known and name not in known:
            what = f"{forbidden.tool} has no argument {name!r}"
            raise UserError(what, where=where, fix=nearest(name, known))
        if not settled(family, forbidden.tool, name):
            raise UserError(
                f"a call of {forbidden.tool} may leave out {name}, and nothing says its value then",
                where=where,
                fix="state its default in the tool's schema, give the family `functions` "
                "(hexad.environments.resolve.Typed), or forbid the whole tool",
            )


def acts(recipe: Recipe) -> bool:
    """Whether a training run plays episodes: to learn, for an expert, or to evaluate itself."""
    data, evaluation = recipe.data, recipe.run.evaluation
    sampled = data.regime != "fixed" or data.origin == "expert"
    measured = evaluation.every is not None or evaluation.points is not None
    return sampled or measured or evaluation.final != "none"


def require_safe(recipe: Recipe, family: TaskFamily) -> None:
    """Raise ``UserError`` if whoever plays an episode could do what cannot be undone.

    A tool that is declared irreversible takes all of: a sandbox that the family's card names, a
    guard that forbids it or has somebody approve each call, and, where the policy's episodes are
    credited or chosen from, a hard gate on violations. A family that declares nothing passes.
    """
    found = irreversible(family)
    if not found:
        return
    card, guard = card_of(family), recipe.task.guard
    held = {each.tool for each in guard.forbidden if not each.arguments} if guard else set()
    held |= set(card.forbidden) if card is not None else set()
    held |= set(guard.approval.tools) if guard and guard.approval else set()
    lacks = []
    if card is None or not card.sandbox:
        lacks.append("a sandbox, which the environment's card must name")
    if open_ := [name for name in found if name not in held]:
        listed = ", ".join(repr(name) for name in open_)
        lacks.append(f"a task.guard that forbids {listed} or has it approved")
    if recipe.feedback.gate is None and recipe.data.regime != "fixed":
        lacks.append("a hard gate (feedback.gate)")
    if lacks:
        tools = ", ".join(repr(name) for name in found)
        raise UserError(
            f"{family.name} declares {tools} irreversible, and a policy calls whatever it is "
            f"offered, in training and in an evaluation. This recipe lacks {'; '.join(lacks)}",
            where="task.environment",
            fix="replace the tool by a simulated one whose effect a reset undoes, or train without "
            "playing: a data set or stored episodes (data.regime: fixed) and "
            "run.evaluation: {every: null, final: none}",
        )


def _called(reference: str, where: str) -> Any:
    found = load_object(reference, where=where)
    if not callable(found):
        raise UserError(f"{reference} cannot be called", where=where, fix="name a function")
    return found
