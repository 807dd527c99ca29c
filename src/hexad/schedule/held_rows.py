"""The rows of ``data.held_out``: nobody is trained on them, nor on their prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hexad.contract.digest import digest
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.data_sets.bad import BadRow, Flaw
from hexad.data_sets.forms import Dialogue, demonstration
from hexad.data_sets.gather import Gathered, gather
from hexad.recipe.axes import Recipe
from hexad.rollout.dialogues import Chats
from hexad.rollout.world import World
from hexad.schedule.rows import Rows, write_bad
from hexad.schedule.stored import FolderShelf

BAD_HELD_OUT = "bad_held_out.jsonl"
"""One line for every held-out row that was dropped; written again whenever they are read."""


def held_out(recipe: Recipe, world: World, chats: Chats, folder: Path) -> Gathered[Episode]:
    """The rows of ``data.held_out``, split from the training data by prompt; none without it.

    A row whose prompt is trained on is a bad row. The prompts are those of the rows of
    ``data.demonstrations``, good or not, or of the stored episodes; what an expert or the policy
    has yet to play is not compared. Dropped rows are written to ``bad_held_out.jsonl`` in
    ``folder``. Raises ``UserError`` where the training rows themselves are held out, where no row
    is left, and where a bad row stops the run.
    """
    spec = recipe.data.held_out
    if spec is None:
        return Gathered((), 0, ())
    rows = Rows.open(spec, "data.held_out", world, chats)
    seen = _seen(recipe, rows, world, chats)

    def make(number: int, row: Mapping[str, Any]) -> Episode:
        dialogue = demonstration(row)
        episode = rows.scribe.episode(dialogue, f"row-{number}")
        if (where := seen.find(dialogue, episode)) is not None:
            raise BadRow(Flaw.IN_TRAINING, f"its prompt is that of {where}")
        return episode

    found = gather(rows.table.rows(), make, recipe.data.bad_rows, "data.held_out.path")
    write_bad(found, folder / BAD_HELD_OUT)
    return found


@dataclass(slots=True)
class _Seen:
    """Where a prompt is trained on: ``said`` by its messages, ``shown`` by its tokens."""

    said: dict[str, str] = field(default_factory=dict)
    shown: dict[bytes, str] = field(default_factory=dict)

    def find(self, dialogue: Dialogue, episode: Episode) -> str | None:
        """Where the prompt of ``dialogue`` is, which ``episode`` renders."""
        return self.said.get(_said(dialogue)) or self.shown.get(_shown(episode))


def _seen(recipe: Recipe, rows: Rows, world: World, chats: Chats) -> _Seen:
    data, seen = recipe.data, _Seen()
    if data.demonstrations is not None:
        trained = Rows.open(data.demonstrations, "data.demonstrations", world, chats).table
        if trained.digest == rows.table.digest:
            raise UserError(
                "the held-out rows are the training rows, so their loss is the training loss",
                where="data.held_out.path",
                fix="split the data set by prompt into two files, or remove data.held_out",
            )
        for number, row in trained.rows():
            if not isinstance(row, BadRow):
                _note(seen, number, row)
    elif data.regime == "fixed" and data.origin != "expert":
        shelf = FolderShelf(Path(data.origin), size=data.size)
        for episode in shelf.take(range(shelf.size)):
            seen.shown[_shown(episode)] = f"the stored episode {episode.episode_id}"
    return seen


def _note(seen: _Seen, number: int, row: Mapping[str, Any]) -> None:
    try:
        seen.said.setdefault(_said(demonstration(row)), f"training row {number}")
    except BadRow:
        pass  # nobody is trained on it; whoever reads the training rows says why


def _said(dialogue: Dialogue) -> str:
    return digest([asdict(message) for message in dialogue.prompt])


def _shown(episode: Episode) -> bytes:
    """The tokens before the first action."""
    first = episode.segments[0]
    return first.ids[: int(np.argmax(first.action))].tobytes()
