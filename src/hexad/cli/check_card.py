"""What ``hexad check`` says of a recipe's task: its card, tried out by scripted policies."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from hexad.contract.task import Split
from hexad.environments.guard import irreversible
from hexad.environments.rehearsal import rehearse
from hexad.recipe.axes import Recipe
from hexad.rollout.build import family_of
from hexad.rollout.guarded import guard_of

Row = dict[str, Any]


def rehearsed(recipe: Recipe) -> Row:
    """The card of the recipe's family, and what scripted policies came to on its first task."""
    with ExitStack() as held:
        family = family_of(recipe, held)
        (task,) = family.tasks(Split.TRAIN, 1)
        found = rehearse(family, task, guard_of(recipe, family), recipe.task.limits.turns)
        return found | {"task": task.task_id, "irreversible": irreversible(family)}


def table(document: Row) -> RenderableType:
    """The card, and a row a script."""
    facts = Table.grid(padding=(0, 2))
    card = document["card"]
    if card is None:
        facts.add_row("task card", "none: how its episodes end is not declared")
    else:
        facts.add_row("the environment ends an episode by", ", ".join(card["endings"]) or "nothing")
        facts.add_row("a budget in the task", card["budget"] or "none")
        facts.add_row("forbidden by the environment", ", ".join(card["forbidden"]) or "nothing")
        facts.add_row("sandbox", card["sandbox"] or "none")
    facts.add_row("irreversible tools", ", ".join(document["irreversible"]) or "none")
    shown = Table(title=f"Task card, tried on {document['task']}", title_justify="left")
    for column in ("scripted policy", "turns", "ended by", "refused", "as the card says"):
        shown.add_column(column, justify="right" if column == "turns" else "left")
    for row in document["scripts"]:
        refused = ", ".join(row["refused"]) or "nothing"
        ending, kept = row["ending"] or "the trainer's limit", "yes" if row["kept"] else "NO"
        shown.add_row(row["script"], str(row["turns"]), ending, refused, kept)
    return Group(shown, facts)
