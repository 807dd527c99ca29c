"""Who looks on while a run goes on."""

from __future__ import annotations

from typing import Protocol

from hexad.contract.events import Event
from hexad.evidence.ledger import Ledger
from hexad.recipe.axes import Recipe


class Watcher(Protocol):
    """Someone who looks on: told of each recipe that begins, then of every event."""

    def stage(self, name: str, recipe: Recipe, ledger: Ledger) -> None:
        """A recipe begins or is resumed; ``ledger`` hears each event first."""
        ...

    def note(self, text: str) -> None:
        """Something that happened outside the loop."""
        ...

    def __call__(self, event: Event) -> None:
        """An event."""
        ...


class Blind:
    """A watcher that sees nothing."""

    def stage(self, name: str, recipe: Recipe, ledger: Ledger) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def __call__(self, event: Event) -> None:
        """Nothing."""


class Several:
    """Watchers that look on together, each told in turn."""

    def __init__(self, *watchers: Watcher) -> None:
        self.watchers = watchers

    def stage(self, name: str, recipe: Recipe, ledger: Ledger) -> None:
        """To all."""
        for watcher in self.watchers:
            watcher.stage(name, recipe, ledger)

    def note(self, text: str) -> None:
        """To all."""
        for watcher in self.watchers:
            watcher.note(text)

    def __call__(self, event: Event) -> None:
        """To all."""
        for watcher in self.watchers:
            watcher(event)
