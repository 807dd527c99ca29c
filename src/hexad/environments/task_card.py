"""A task's card: how episodes end, what belongs to the task, and what must not be done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hexad.contract.ending import EndingKind
from hexad.contract.faults import UserError


@dataclass(frozen=True, slots=True)
class TaskCard:
    """What a family says of its tasks, in its attribute ``task_card``.

    ``endings``: how the environment itself ends an episode; the trainer's limits may always
    truncate one. ``budget``: a budget that is part of the task and told to the agent, in words;
    empty where there is none, so that running out of the trainer's is no end state. ``forbidden``:
    tools that are never executed, whatever a recipe says: the guard refuses them. ``sandbox``: what
    contains irreversible actions, in words; empty where nothing does.
    """

    endings: tuple[EndingKind, ...]
    budget: str = ""
    forbidden: tuple[str, ...] = field(default=())
    sandbox: str = ""

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "endings": [str(kind) for kind in self.endings],
            "budget": self.budget,
            "forbidden": list(self.forbidden),
            "sandbox": self.sandbox,
        }


def card_of(family: object) -> TaskCard | None:
    """The card of ``family``; ``None`` where it has none. Raises ``UserError`` for junk."""
    card = getattr(family, "task_card", None)
    if card is None or isinstance(card, TaskCard):
        return card
    raise UserError(
        f"task_card is a {type(card).__name__}",
        where="task.environment",
        fix="let it be a hexad.environments.task_card.TaskCard, or leave it out",
    )
