"""Work that kills threw away, on disk before it is thrown away: no further kill can hide it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from hexad.contract import crash
from hexad.contract.faults import UserError
from hexad.contract.store import Store
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


@contextmanager
def booked(folder: Path, store: Store, after_step: int) -> Iterator[None]:
    """Book every step of ``store`` after ``after_step`` as lost, then let the block drop them.

    The loss is one row of ``lost.jsonl``, and the end of the block another. A row without an end
    was cut by a kill: its steps are booked already, and the block merely drops what is left.
    """
    path = folder / journal.LOST
    rows = journal.rows(path)
    cut = bool(rows) and "episodes" in rows[-1]
    if not cut and (loss := beyond(store, after_step)).episodes:
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


def beyond(store: Store, after_step: int) -> Loss:
    """What ``store`` holds after ``after_step``; parts that cannot be read are not counted."""
    found = Loss()
    for part in store.parts():
        if part.last <= after_step:
            continue
        try:
            rows = part.read(columns=["step", "costs"])
        except UserError:
            continue
        rows = rows.filter(pc.greater(rows.column("step"), after_step))
        costs = [cost.as_py() for cost in rows.column("costs")]
        tokens = sum(cost["sampled_tokens"] + cost["lost_tokens"] for cost in costs)
        found += Loss(rows.num_rows, tokens)
    return found
