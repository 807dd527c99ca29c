"""Switch triggers while a run goes on, and afterwards: which signs its rows have shown, and when.

They are those of the advice (``hexad.advice.triggers``), as far as columns of ``metrics.jsonl`` can
show them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hexad.advice.triggers import TRIGGERS, Trigger
from hexad.contract.events import Sink, TriggerFired
from hexad.evidence import journal
from hexad.recipe.axes import Recipe

Row = Mapping[str, Any]
LONGEST = max(sign.batches for trigger in TRIGGERS.values() for sign in trigger.signs)
"""Batches that the longest window holds."""


def concerning(recipe: Recipe) -> tuple[Trigger, ...]:
    """The triggers that say something of ``recipe`` and can be read from its rows."""
    if recipe.data.regime != "online":
        return ()
    compares = recipe.critic is None and recipe.data.group_size > 1
    about = {
        "no-contrast": compares,
        "critic-off": recipe.critic is not None,
        "stale-dropped": recipe.timing.mode == "asynchronous",
        "process-hacked": True,
    }
    return tuple(TRIGGERS[key] for key, concerned in about.items() if concerned)


class Watch:
    """Looks at every row of the run in ``folder`` and emits ``TriggerFired`` when a sign appears.

    A sign that goes on is told once; one that went away and came back is told again. It keeps no
    state of its own: a resumed run reads the rows that it kept.
    """

    def __init__(self, recipe: Recipe, folder: Path, sink: Sink) -> None:
        self.triggers = concerning(recipe)
        self.path, self.sink = folder / journal.METRICS, sink
        self._rows: list[Row] = []

    def __call__(self, row: Row) -> None:
        """``row`` was just written to ``metrics.jsonl``."""
        if not self.triggers:
            return
        # The first look finds in the file what a resumed run had written before, and this row.
        earlier: list[Row] = self._rows or [*journal.rows(self.path)[:-1]]
        self._rows = [*earlier[-LONGEST:], row]
        for trigger in self.triggers:
            if trigger.fires(self._rows) and not trigger.fires(self._rows[:-1]):
                step = int(row["step"])
                self.sink(TriggerFired(step, trigger.key, trigger.what, trigger.text, trigger.then))


def fired(recipe: Recipe, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every sign that ``rows`` show, in order: since which step, and whether it still holds."""
    found: list[dict[str, Any]] = []
    for trigger in concerning(recipe):
        for step, last in _spans(trigger, rows):
            found.append(
                {
                    "key": trigger.key,
                    "step": step,
                    "what": trigger.what,
                    "fires_when": trigger.text,
                    "then": trigger.then,
                    "holds": last == len(rows) - 1,
                }
            )
    return sorted(found, key=lambda each: int(each["step"]))


def _spans(trigger: Trigger, rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """Step at which each unbroken stretch began, and the index of its last row."""
    began: int | None = None
    for index in range(len(rows)):
        window = rows[max(0, index + 1 - LONGEST) : index + 1]
        if trigger.fires(window):
            began = int(rows[index]["step"]) if began is None else began
        elif began is not None:
            yield began, index - 1
            began = None
    if began is not None:
        yield began, len(rows) - 1
