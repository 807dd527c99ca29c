"""The episodes of a run on disk: one Parquet part a committed step, merged at checkpoints.

A part appears under its name only when it is whole, and its name says which steps it holds. That
makes every kill harmless: a part without its name was never committed, and a part whose steps are
all inside another part's (a merge was cut short) is ignored until it is removed. Reading repairs
nothing; :meth:`Store.truncate`, which a resume calls, tidies and says what it did.

    SELECT environment, avg(verdict.score) FROM 'episodes/part-*.parquet' GROUP BY 1
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hexad.contract.arrow import SCHEMA, from_table, to_table
from hexad.contract.durable import disk_errors, sync_folder
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.contract.part import Part

EMPTY = -1
"""``last_step`` of a store without parts; ``truncate(EMPTY)`` keeps nothing."""
TABLE = "table.parquet"
"""The episode table, as of the last :meth:`Store.compact`."""
_FLAT = [name for name in SCHEMA.names if name != "segments"]
_MERGE_BYTES = 64 << 20
"""Parts of more bytes than this are merged no further."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What a truncation took away.

    ``episodes`` and ``sampled_tokens`` (tokens of retried attempts included) are counted in the
    readable parts. ``torn`` parts could not be read, so they were renamed to ``*.torn`` instead.
    ``unfinished`` files were never committed: a kill cut their writing.
    """

    episodes: int = 0
    sampled_tokens: int = 0
    torn: tuple[Path, ...] = ()
    unfinished: tuple[str, ...] = ()


class Store:
    """Parts in ``folder``, which is made on the first append. One writer at a time."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    @property
    def last_step(self) -> int:
        """The last committed step, or ``EMPTY``."""
        parts = self.parts()
        return parts[-1].last if parts else EMPTY

    def parts(self) -> list[Part]:
        """The parts that count, by step. Raises ``UserError`` where two overlap in part."""
        return self._sorted_out()[0]

    def count(self, last_step: int | None = None) -> int:
        """Number of committed episodes, up to and including ``last_step`` where it is given.

        Raises ``UserError`` for a part that cannot be read; later parts are not opened.
        """
        if last_step is None:
            return sum(part.rows() for part in self.parts())
        total = 0
        for part in self.parts():
            if part.last <= last_step:
                total += part.rows()
            elif part.first <= last_step:
                steps = part.read(columns=["step"]).column("step")
                total += pc.sum(pc.less_equal(steps, last_step)).as_py() or 0
        return total

    def append(self, step: int, episodes: Sequence[Episode]) -> Path:
        """Commit ``step`` and return its part. Raises ``UserError`` when the disk is full.

        Steps only grow; a step at or before ``last_step`` is a ``ValueError``.
        """
        if step <= (last := self.last_step):
            raise ValueError(f"step {step} is not after the last committed step {last}")
        with disk_errors("make the episodes folder", self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        part = Part.named(self.folder, step, step)
        part.write(to_table(episodes, step))
        return part.path

    def read(self, steps: Iterable[int] | None = None) -> list[Episode]:
        """Episodes of ``steps`` (all by default), by step and then as appended.

        Raises ``UserError`` for a missing folder and for a part that is torn, corrupt or of
        another schema; ``ValueError`` for a step that no part holds.
        """
        if not self.folder.is_dir():
            raise UserError(
                "there is no folder of episodes here",
                where=str(self.folder),
                fix="name a folder that holds part-*.parquet files",
            )
        parts = self.parts()
        wanted = None if steps is None else set(steps)
        if wanted is not None:
            held = {s for s in wanted if any(part.first <= s <= part.last for part in parts)}
            if missing := sorted(wanted - held):
                raise ValueError(f"no part holds the steps {missing}")
            parts = [p for p in parts if any(p.first <= step <= p.last for step in wanted)]
        found: list[Episode] = []
        for part in parts:
            table = part.read()
            if wanted is not None and part.steps > 1:
                chosen = pc.is_in(table.column("step"), value_set=pa.array(wanted, pa.int64()))
                table = table.filter(chosen)
            found += from_table(table, str(part.path))
        return found

    def table(self) -> pa.Table:
        """One flat row an episode, without the tokens: ``ending_kind``, ``verdict_score``, ..."""
        tables = [part.read(columns=_FLAT) for part in self.parts()]
        empty = pa.schema([SCHEMA.field(name) for name in _FLAT]).empty_table()
        flat = pa.concat_tables([empty, *tables]).flatten()
        return flat.rename_columns([name.replace(".", "_") for name in flat.column_names])

    def check(self) -> list[UserError]:
        """Every part that cannot be read, as the error that reading would raise."""
        found = []
        for part in self.parts():
            try:
                from_table(part.read(), str(part.path))
            except UserError as error:
                found.append(error)
        return found

    def compact(self) -> None:
        """Merge small parts and rewrite the episode table.

        The newest parts are merged backwards for as long as the next is not longer than what was
        gathered, so that a long run keeps few files and rewrites each episode a few times only.
        """
        chosen: list[Part] = []
        for part in reversed(self.parts()):
            if part.path.stat().st_size > _MERGE_BYTES:
                break
            if chosen and part.steps > chosen[0].last - chosen[-1].first + 1:
                break
            chosen.append(part)
        if len(chosen) > 1:
            chosen.reverse()
            merged = Part.named(self.folder, chosen[0].first, chosen[-1].last)
            merged.write(pa.concat_tables([part.read() for part in chosen]))
            self._remove(part.path for part in chosen)
        if self.folder.is_dir():
            flat = Part(0, max(self.last_step, 0), self.folder / TABLE)
            flat.write(self.table())

    def truncate(self, after_step: int) -> Cut:
        """Drop every step after ``after_step`` and tidy what kills left behind.

        Newest first, so that a kill in between leaves a store that merely ends earlier. Raises
        ``UserError`` for a torn part that also holds steps to keep.
        """
        if not self.folder.is_dir():
            return Cut()
        unfinished = sorted(self.folder.glob(".*.tmp"))
        parts, covered = self._sorted_out()
        self._remove([*unfinished, *(part.path for part in covered)])
        episodes, tokens = 0, 0
        torn: list[Path] = []
        for part in reversed(parts):
            if part.last <= after_step:
                break
            self._remove([self.folder / TABLE])
            try:
                rows = part.read(columns=["step", "costs"])
            except UserError:
                if part.first <= after_step:
                    raise
                torn.append(part.path.rename(part.path.with_name(f"{part.path.name}.torn")))
                sync_folder(self.folder)
                continue
            lost = rows.filter(pc.greater(rows.column("step"), after_step))
            episodes += lost.num_rows
            tokens += _sampled_tokens(lost)
            self._cut(part, after_step)
        return Cut(episodes, tokens, tuple(torn), tuple(path.name for path in unfinished))

    def _cut(self, part: Part, after_step: int) -> None:
        if part.first <= after_step:
            table = part.read()
            kept = table.filter(pc.less_equal(table.column("step"), after_step))
            Part.named(self.folder, part.first, after_step).write(kept)
        self._remove([part.path])

    def _remove(self, paths: Iterable[Path]) -> None:
        """Remove files, and force that to disk. Raises ``UserError`` when the disk is full."""
        with disk_errors("tidy the episodes folder", self.folder):
            for path in paths:
                path.unlink(missing_ok=True)
            sync_folder(self.folder)

    def _sorted_out(self) -> tuple[list[Part], list[Part]]:
        """Parts that count, and parts that a longer one covers."""
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        every = [p for name in names if (p := Part.parse(self.folder / name))]
        live: list[Part] = []
        covered: list[Part] = []
        for part in sorted(every, key=lambda p: (p.first, -p.last)):
            if live and part.last <= live[-1].last:
                covered.append(part)
                continue
            if live and part.first <= live[-1].last:
                raise UserError(
                    f"two parts hold step {part.first}",
                    where=f"{live[-1].path} and {part.path}",
                    fix="move away the one that does not belong to this run",
                )
            live.append(part)
        return live, covered


def _sampled_tokens(rows: pa.Table) -> int:
    costs = rows.column("costs")
    names = ("sampled_tokens", "lost_tokens")
    return sum(pc.sum(pc.struct_field(costs, name)).as_py() or 0 for name in names)
