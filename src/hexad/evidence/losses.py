"""Work that kills threw away, on disk before it is thrown away: no further kill can hide it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hexad.contract import crash
from hexad.contract.faults import UserError
from hexad.contract.store import EMPTY, Store
from hexad.evidence import journal


@dataclass(frozen=True, slots=True)
class Loss:
    """Episodes and sampled tokens, those of retried attempts included."""

    episodes: int = 0
    sampled_tokens: int = 0

    def __add__(self, other: Loss) -> Loss:
        return Loss(self.episodes + other.episodes, self.sampled_tokens + other.sampled_tokens)

    def __sub__(self, other: Loss) -> Loss:
        return Loss(self.episodes - other.episodes, self.sampled_tokens - other.sampled_tokens)


NOTHING = Loss()
_NONE: Mapping[str, int] = {}


@contextmanager
def booked(
    folder: Path,
    store: Store,
    after_step: int,
    kept: Mapping[str, int] = _NONE,
    more: Loss = NOTHING,
) -> Iterator[None]:
    """Book every step of ``store`` after ``after_step`` as lost, then let the block drop them.

    ``kept`` is as in :func:`beyond`; ``more`` is what else the block drops. The loss is one row of
    ``lost.jsonl``, and the end of the block another. A row without an end was cut by a kill: its
    steps are booked already, and the block merely drops what is left.
    """
    path = folder / journal.LOST
    rows = journal.rows(path)
    cut = bool(rows) and "episodes" in rows[-1]
    if not cut and (loss := beyond(store, after_step, kept) + more) != NOTHING:
        row = {"after": after_step, "at": time.time()}
        row |= {"episodes": loss.episodes, "sampled_tokens": loss.sampled_tokens}
        journal.append(path, row)
        cut = True
    crash.point("resume:booked")
    yield
    crash.point("resume:dropped")
    if cut:
        journal.append(path, {"dropped": True})


def total(folder: Path) -> Loss:
    """Everything that was booked as lost in ``folder``."""
    rows = [row for row in journal.rows(folder / journal.LOST) if "episodes" in row]
    return sum((Loss(row["episodes"], row["sampled_tokens"]) for row in rows), start=Loss())


def beyond(store: Store, after_step: int, kept: Mapping[str, int] = _NONE) -> Loss:
    """What ``store`` holds after ``after_step``; parts that cannot be read are not counted.

    ``kept`` has the tokens by episode that a checkpoint holds outside the store: the episode is not
    lost, and only tokens beyond these are.
    """
    found = Loss()
    for rows in _readable(store, after_step, ["step", "episode_id", "costs"]):
        rows = rows.filter(pc.greater(rows.column("step"), after_step))
        for name, cost in zip(
            *(rows.column(k).to_pylist() for k in ("episode_id", "costs")), strict=True
        ):
            tokens = cost["sampled_tokens"] + cost["lost_tokens"]
            found += Loss(name not in kept, max(0, tokens - kept.get(name, 0)))
    return found


def names(store: Store) -> set[str]:
    """Ids of all episodes in ``store``; parts that cannot be read are passed over."""
    tables = _readable(store, EMPTY, ["episode_id"])
    return {name for rows in tables for name in rows.column("episode_id").to_pylist()}


def _readable(store: Store, after_step: int, columns: list[str]) -> Iterator[pa.Table]:
    for part in store.parts():
        if part.last > after_step:
            try:
                yield part.read(columns=columns)
            except UserError:
                continue
