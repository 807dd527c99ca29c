"""What ``hexad check`` says of a recipe's verifiers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from hexad.evidence import verifiers
from hexad.recipe.axes import Recipe
from hexad.rollout.build import judges


def cards(recipe: Recipe) -> dict[str, Any]:
    """The cards of the verifiers for training and for evaluation."""
    with ExitStack() as held:
        made = judges(recipe, held)
        return {name: verifiers.row(each) for name, each in made.items()}


def table(document: dict[str, Any]) -> RenderableType:
    """The cards, one column a verifier."""
    shown = Table(title="Verifiers", title_justify="left")
    shown.add_column("")
    for purpose in document:
        shown.add_column(purpose)
    kept = [row["card"] for row in document.values()]
    for label, key in (
        ("name", "name"),
        ("checks", "checks"),
        ("does not check", "blind"),
        ("reads of the task", "task"),
    ):
        shown.add_row(label, *("no card" if card is None else card[key] for card in kept))
    shown.add_row("a time-out counts as", *(row["timeout"] for row in document.values()))
    shown.add_row("digest", *(row["digest"][:12] for row in document.values()))
    return shown
