"""Fixed data from a data set of rows: demonstrations, pairs or labelled answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hexad.contract.digest import canonical_json
from hexad.contract.durable import disk_errors, write_whole
from hexad.contract.episode import Actor, Episode
from hexad.contract.events import RowsRead, Sink, ignore
from hexad.contract.faults import UserError
from hexad.data_sets.forms import demonstration, labelled, pair
from hexad.data_sets.gather import Gathered, gather
from hexad.data_sets.table import Table, open_table
from hexad.feedback.pair_audit import audit
from hexad.feedback.pairs import CHOSEN, REJECTED, Pair, Refused
from hexad.policy.engine import Weights
from hexad.recipe.axes import Recipe
from hexad.recipe.data_set_axis import DataSetSpec
from hexad.rollout.dialogues import Chats, Scribe
from hexad.rollout.world import World
from hexad.schedule.made import Made
from hexad.schedule.pairs import PairSource
from hexad.schedule.source import Harvest, Source
from hexad.schedule.stored import ListShelf, StoredSource

BAD_ROWS = "bad_rows.jsonl"
"""One line for every row that was dropped; written again whenever the data set is read."""
_STATELESS = "; rows name no states, so what the policy visits outside them is not measured"


class RowSource:
    """``inner`` on the data that ``told`` describes, which is said first.

    Raises ``UserError`` in ``restore`` when the data set is not the one that the run began with.
    """

    def __init__(self, inner: Source, told: RowsRead, sink: Sink = ignore) -> None:
        self._inner, self._told, self._sink = inner, told, sink
        self._began = False

    def next(self, version: int) -> Harvest:
        """The next batch of ``inner``."""
        if not self._began:
            self._sink(self._told)
            self._began = True
        return self._inner.next(version)

    def publish(self, weights: Weights | None, version: int, lineage: str) -> None:
        """Let ``inner`` load the weights."""
        self._inner.publish(weights, version, lineage)

    def finish(self) -> None:
        """Let ``inner`` finish."""
        self._inner.finish()

    def state(self) -> dict[str, Any]:
        """The state of ``inner``, and which data it is a place in."""
        return {"inner": self._inner.state(), "data": self._told.digest, "began": self._began}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the next row."""
        if state["data"] != self._told.digest:
            raise UserError(
                "the data set has changed since the run began, so its place in it means nothing",
                where=self._told.name,
                fix="put the data back, or start a new run",
            )
        self._inner.restore(state["inner"])
        self._began = bool(state["began"])

    def close(self) -> None:
        """Close ``inner``."""
        self._inner.close()


@dataclass(frozen=True, slots=True)
class Rows:
    """The data set ``spec``, which the recipe names in ``where``, open and with its writer."""

    spec: DataSetSpec
    where: str
    table: Table
    scribe: Scribe

    @classmethod
    def open(cls, spec: DataSetSpec, where: str, world: World, chats: Chats) -> Rows:
        """Raises ``UserError`` for a data set that cannot be opened."""
        table = open_table(spec, where)
        return cls(spec, where, table, Scribe(world, chats, table.digest, spec.tools == "row"))

    def demonstrations(self, recipe: Recipe) -> Gathered[Episode]:
        """One episode a row."""

        def make(number: int, row: Mapping[str, Any]) -> Episode:
            return self.scribe.episode(demonstration(row), f"row-{number}")

        return gather(self.table.rows(), make, recipe.data.bad_rows, f"{self.where}.path")

    def pairs(self, recipe: Recipe) -> Gathered[Pair]:
        """One pair a row."""
        source = f"data set {Path(self.spec.path).name}"

        def make(number: int, row: Mapping[str, Any]) -> Pair:
            chosen, rejected = pair(row)
            return Pair(
                self.scribe.episode(chosen, f"row-{number}-chosen", Actor.OTHER),
                self.scribe.episode(rejected, f"row-{number}-rejected", Actor.OTHER),
                source,
            )

        return gather(self.table.rows(), make, recipe.data.bad_rows, f"{self.where}.path")

    def labels(self, recipe: Recipe) -> Gathered[Episode]:
        """One episode a row; its member says whether it is desirable."""

        def make(number: int, row: Mapping[str, Any]) -> Episode:
            dialogue, good = labelled(row)
            episode = self.scribe.episode(dialogue, f"row-{number}", Actor.OTHER)
            return replace(episode, member=CHOSEN if good else REJECTED)

        return gather(self.table.rows(), make, recipe.data.bad_rows, f"{self.where}.path")


def row_source(
    recipe: Recipe, world: World, chats: Chats, folder: Path, sink: Sink = ignore
) -> Source:
    """The source of ``data.demonstrations`` or ``data.preferences``.

    Raises ``UserError`` for a data set that cannot be opened, holds bad rows where these stop the
    run, or holds no other. Dropped rows are written to ``bad_rows.jsonl`` in ``folder``.
    """
    data = recipe.data
    if data.demonstrations is not None:
        rows = Rows.open(data.demonstrations, "data.demonstrations", world, chats)
        kept = rows.demonstrations(recipe)
        told = _told(rows, kept, folder)
        shelf = ListShelf(kept.items[: _size(kept, recipe)])
        return RowSource(StoredSource(shelf, world, recipe, sink), told, sink)
    assert data.preferences is not None
    rows = Rows.open(data.preferences, "data.preferences", world, chats)
    if recipe.update.surrogate == "kto":
        singles = rows.labels(recipe)
        told, found = _told(rows, singles, folder), _labels(singles.items[: _size(singles, recipe)])
    else:
        pairs = rows.pairs(recipe)
        told, found = _told(rows, pairs, folder), _pairs(pairs.items[: _size(pairs, recipe)])
    return RowSource(PairSource(found, world, recipe, folder, sink), told, sink)


def _size(kept: Gathered[Any], recipe: Recipe) -> int:
    """How many rows are used: ``data.size``, or all. Raises ``UserError`` if there are fewer."""
    count = len(kept.items)
    size = recipe.data.size or count
    if size > count:
        what = f"{count} rows can be used, {size} are wanted"
        raise UserError(what, where="data.size", fix=f"lower it to at most {count}")
    return size


def write_bad(kept: Gathered[Any], path: Path) -> None:
    """One line a dropped row; no file where there is none."""
    lines = [canonical_json(each.json()) + "\n" for each in kept.dropped]
    with disk_errors(f"write {path.name}", path):
        if lines:
            write_whole(path, "".join(lines).encode(), path.name)
        else:
            path.unlink(missing_ok=True)


def _told(rows: Rows, kept: Gathered[Any], folder: Path) -> RowsRead:
    write_bad(kept, folder / BAD_ROWS)
    examples = tuple(each.text() for each in kept.dropped[:3])
    name, digest = rows.spec.path, rows.table.digest
    return RowsRead(0, name, digest, kept.rows, kept.flaws, examples)


def _pairs(pairs: Sequence[Pair]) -> Made:
    tasks = len({each.chosen.task_id for each in pairs})
    told = audit(pairs, tasks, Refused())
    items = tuple(each.sides(each.chosen.episode_id.removesuffix("-chosen")) for each in pairs)
    return Made(items, (), {**told.row(), "states": None}, told.text() + _STATELESS)


def _labels(episodes: Sequence[Episode]) -> Made:
    good = sum(each.member == CHOSEN for each in episodes)
    tasks = len({each.task_id for each in episodes})
    counts = {"desirable": good, "undesirable": len(episodes) - good, "tasks": tasks}
    text = f"{good} desirable and {len(episodes) - good} other answers to {tasks} prompts"
    items = tuple((each,) for each in episodes)
    return Made(items, (), {**counts, "states": None}, text + _STATELESS)
