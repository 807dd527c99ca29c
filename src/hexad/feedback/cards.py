"""A verifier's card: what it checks, and what it does not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hexad.contract.faults import UserError


@dataclass(frozen=True, slots=True)
class Card:
    """What a verifier says of itself, in plain words.

    ``checks``: what a verdict of ``correct`` means. ``blind``: what it does not see, and so what
    training on it may ruin unnoticed. ``task``: the keys of a task's data that it reads.
    """

    name: str
    checks: str
    blind: str
    task: str = ""

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def card_of(verifier: object) -> Card | None:
    """The card that ``verifier`` carries as ``card``; ``None`` where it has none.

    Raises ``UserError`` for a card that is something else.
    """
    card = getattr(verifier, "card", None)
    if card is None or isinstance(card, Card):
        return card
    raise UserError(
        f"the card of {type(verifier).__name__} is a {type(card).__name__}",
        where="feedback.verifier",
        fix="let its attribute card be a hexad.feedback.cards.Card, or leave it out",
    )
