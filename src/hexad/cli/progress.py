"""What a person sees while a run goes on: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from hexad.contract.events import (
    CheckpointWritten,
    Evaluated,
    Event,
    ItemsMade,
    Published,
    RowsRead,
    Stalled,
    TriggerFired,
    WorkerReplaced,
)
from hexad.evidence import metrics
from hexad.evidence.ledger import Ledger
from hexad.recipe.axes import Recipe
from hexad.recipe.presets import headline


class Watcher:
    """A sink that shows a run. ``stage`` is called before the first event of each recipe.

    It reads the ledger that keeps the books, so it never counts anything twice.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Progress | None = None
        self._task = TaskID(0)
        self._recipe: Recipe | None = None
        self._ledger: Ledger | None = None
        self._name, self._began, self._share = "", 0.0, 0.0

    def stage(self, name: str, recipe: Recipe, ledger: Ledger) -> None:
        """A recipe begins, or is resumed; ``ledger`` is the one that its events reach first."""
        self.close()
        self._name, self._recipe, self._ledger = name, recipe, ledger
        self._began, self._share = time.monotonic(), ledger.progress(recipe.budget)
        self.console.print(f"[bold]{name}[/]: {headline(recipe)}", highlight=False)
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(18),
                TextColumn("{task.fields[eta]}"),
            )
            self._live = Progress(*columns, console=self.console, transient=True)
            self._task = self._live.add_task("waiting for the first batch", total=1.0, eta="")
            self._live.start()

    def note(self, text: str) -> None:
        """Show ``text``."""
        self.console.print(f"  {text}", highlight=False, markup=False, soft_wrap=True)

    def __call__(self, event: Event) -> None:
        """Show ``event``; most are silent."""
        if isinstance(event, Published):
            self._batch(event.version)
        elif isinstance(event, ItemsMade | RowsRead):
            self.note(event.text)
        elif isinstance(event, Evaluated):
            self.console.print(_evaluated(event), highlight=False)
        elif isinstance(event, Stalled | WorkerReplaced):
            self.note(event.text)
        elif isinstance(event, TriggerFired):
            self.note(f"sign to change direction: {event.what} ({event.shown}): {event.then}")
        elif isinstance(event, CheckpointWritten) and not self.console.is_terminal:
            self.console.print(f"  checkpoint {event.path}", highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Stop drawing. Safe to call twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _batch(self, version: int) -> None:
        if self._recipe is None or self._ledger is None:
            return
        share = used_share(self._recipe, self._ledger)
        text = f"{self._name} batch {version}  {describe(self._ledger.window.row())}"
        eta = f"{share:.0%} of the budget{self._eta(share)}"
        if self._live is None:
            self.console.print(f"{text}  {eta}", highlight=False, soft_wrap=True)
        else:
            self._live.update(self._task, description=text, completed=share, eta=eta)

    def _eta(self, share: float) -> str:
        if share <= self._share:
            return ""
        left = (time.monotonic() - self._began) * (1.0 - share) / (share - self._share)
        return f", {left // 60:.0f}:{left % 60:02.0f} left"


def used_share(recipe: Recipe, ledger: Ledger) -> float:
    """Share of the budget that is nearest to its end, the clock included."""
    share = ledger.progress(recipe.budget)
    if recipe.budget.seconds is not None:
        share = max(share, ledger.train_seconds / recipe.budget.seconds)
    return min(share, 1.0)


def describe(row: dict[str, Any]) -> str:
    """One batch in a few words; what has no value is left out."""
    shown = (
        (metrics.SUCCESS, "success {:.0%}"),
        (metrics.SCORE, "reward {:.2f}"),
        (metrics.MIXED, "mixed {:.0%}"),
        ("policy/loss", "loss {:.4f}"),
        (metrics.TURNS, "turns {:.1f}"),
        (f"{metrics.LAG}/mean", "lag {:.1f}"),
        ("tokens/action", "{:,.0f} tokens"),
    )
    return "  ".join(text.format(row[key]) for key, text in shown if key in row)


def _evaluated(event: Evaluated) -> str:
    if event.success is None or event.low is None or event.high is None:
        return f"  {event.split} after batch {event.version}: none of {event.episodes} was scored"
    interval = f"[{event.low:.1%}, {event.high:.1%}]"
    unscored = event.episodes - event.scored
    what, note = "success", f", {unscored} not scored" if unscored else ""
    if event.measure == "pairs":
        what, note = "ranked right", " pairs"
    # The brackets of an interval are not markup.
    return (
        f"  {event.split} after batch {event.version}: {what} {event.success:.1%} "
        f"\\{interval} of {event.scored}{note}"
    )
