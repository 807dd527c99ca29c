"""Switch triggers while a run goes on, and afterwards: which signs it has shown, and when.

They are those of the advice (``hexad.advice.triggers``), as far as what a run writes can show them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hexad.advice.triggers import TRIGGERS, Trigger
from hexad.contract.events import Evaluated, Event, Sink, TriggerFired
from hexad.evidence import journal
from hexad.evidence.diagnosis.curves import Curves, verifier_hole
from hexad.recipe.axes import Recipe

Row = Mapping[str, Any]
LONGEST = max(sign.batches for trigger in TRIGGERS.values() for sign in trigger.signs)
"""Batches that the longest window holds."""
_LENGTH = "length/action_tokens/mean"


def concerning(recipe: Recipe) -> tuple[Trigger, ...]:
    """The triggers that say something of ``recipe`` and that what its run writes can show."""
    regime, source = recipe.data.regime, recipe.feedback.source
    compares = recipe.critic is None and recipe.data.group_size > 1
    about = {
        "closed-loop-errors": source == "demonstrations",
        "outside-the-data": source == "preferences",
        "no-contrast": regime == "online" and compares,
        "critic-off": recipe.critic is not None,
        "stale-dropped": recipe.timing.mode == "asynchronous",
        "process-hacked": regime != "fixed",
        "verifier-hole": regime != "fixed",
    }
    return tuple(TRIGGERS[key] for key, concerned in about.items() if concerned)


class Watch:
    """Looks at every row of the run in ``folder`` and emits ``TriggerFired`` when a sign appears.

    A sign that goes on is told once; one that went away and came back is told again. It keeps no
    state of its own: a resumed run reads the rows that it kept.
    """

    def __init__(self, recipe: Recipe, folder: Path, sink: Sink) -> None:
        self.recipe, self.triggers = recipe, concerning(recipe)
        self.folder, self.sink = folder, sink
        self._told: dict[str, list[Row]] = {}

    def __call__(self, row: Row) -> None:
        """``row`` was just written to ``metrics.jsonl``."""
        for trigger in self.triggers:
            if not trigger.signs or not trigger.told(row):
                continue
            before = self._before(trigger)
            self._told[trigger.key] = now = [*before[-LONGEST:], row]
            if trigger.fires(now) and not trigger.fires(before):
                self._tell(trigger, int(row["step"]))

    def heard(self, event: Event) -> None:
        """An evaluation on selection was just written to ``evaluation.jsonl``."""
        if not isinstance(event, Evaluated) or event.split != "selection":
            return
        ruled = [trigger for trigger in self.triggers if trigger.key in RULES]
        if not ruled:
            return
        rows = journal.rows(self.folder / journal.METRICS)
        seen = _successes(journal.rows(self.folder / journal.EVALUATIONS))
        for trigger in ruled:
            now, before = (_since(trigger, self.recipe, rows, s) for s in (seen, seen[:-1]))
            if now is not None and before is None:
                self._tell(trigger, event.version)

    def _before(self, trigger: Trigger) -> list[Row]:
        """The rows that told of ``trigger`` before the newest one of the file."""
        if trigger.key not in self._told:
            earlier = journal.rows(self.folder / journal.METRICS)[:-1]
            self._told[trigger.key] = [row for row in earlier if trigger.told(row)]
        return self._told[trigger.key]

    def _tell(self, trigger: Trigger, step: int) -> None:
        self.sink(TriggerFired(step, trigger.key, trigger.what, trigger.text, trigger.then))


def fired(
    recipe: Recipe, rows: Sequence[Row], selection: Sequence[Row] = ()
) -> list[dict[str, Any]]:
    """Every sign that ``rows`` show, in order: since which step, and whether it still holds.

    Of one that ``selection``, the evaluations, show beside them, only the present state is told.
    """
    found: list[dict[str, Any]] = []
    for trigger in concerning(recipe):
        for step, holds in _spans(trigger, recipe, rows, selection):
            found.append(
                {
                    "key": trigger.key,
                    "step": step,
                    "what": trigger.what,
                    "fires_when": trigger.text,
                    "then": trigger.then,
                    "holds": holds,
                }
            )
    return sorted(found, key=lambda each: int(each["step"]))


def _spans(
    trigger: Trigger, recipe: Recipe, rows: Sequence[Row], selection: Sequence[Row]
) -> Iterator[tuple[int, bool]]:
    """Step at which each unbroken stretch began, and whether it goes on."""
    if trigger.key in RULES:
        since = _since(trigger, recipe, rows, _successes(selection))
        if since is not None:
            yield since, True
        return
    told = [row for row in rows if trigger.told(row)]
    began: int | None = None
    for index, row in enumerate(told):
        if trigger.fires(told[max(0, index + 1 - LONGEST) : index + 1]):
            began = int(row["step"]) if began is None else began
        elif began is not None:
            yield began, False
            began = None
    if began is not None:
        yield began, True


def _successes(evaluations: Sequence[Row]) -> list[Row]:
    """The evaluations on selection that scored episodes; how pairs are ranked is no success."""
    return [
        row
        for row in evaluations
        if row["split"] == "selection" and "success" in row and "measure" not in row
    ]


def _since(
    trigger: Trigger, recipe: Recipe, rows: Sequence[Row], selection: Sequence[Row]
) -> int | None:
    curves = Curves(recipe, [dict(row) for row in rows], [dict(row) for row in selection])
    return RULES[trigger.key](curves)


def _hole(curves: Curves) -> int | None:
    """Since when the verifier is paid for what independent success does not show."""
    found = verifier_hole(curves)
    if found is None:
        return None
    return curves.evaluated.steps[-1] if found.since is None else found.since


def _errors_add_up(curves: Curves) -> int | None:
    """Since when the closed loop is worse than its tokens: two evaluations in a row.

    With a token loss of ``l`` and ``n`` action tokens an episode, ``exp(-l n)`` of the episodes
    would be the expert's own, token by token, if one error did not bring about the next. Success
    whose whole 95 % interval is below that is lost to states that no demonstration shows. A choice
    of ours; where many answers are right success lies above it, and the sign stays silent.
    """
    length = curves.series(_LENGTH)
    last = curves.selection[-2:]
    losses = [row.get("imitation", {}).get("token_loss") for row in last]
    if len(last) < 2 or not len(length) or None in losses:
        return None
    bounds = [math.exp(-loss["mean"] * length.recent) for loss in losses]
    below = all(row["high"] < bound for row, bound in zip(last, bounds, strict=True))
    return int(last[0]["step"]) if below else None


RULES: Mapping[str, Callable[[Curves], int | None]] = {
    "verifier-hole": _hole,
    "closed-loop-errors": _errors_add_up,
}
"""By trigger: since which step evaluations show it, beside the rows; ``None`` where they do not."""
