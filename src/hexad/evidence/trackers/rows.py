"""The rows of a run as they are written: its logs are the queue, so nothing piles up in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexad.evidence.journal import EVALUATIONS, METRICS
from hexad.evidence.trackers.tracker import Numbers, numbers

BATCHES = "batches"
"""The series of ``metrics.jsonl``; each split of ``evaluation.jsonl`` is another."""
_BUDGET = "budget/"


@dataclass(frozen=True, slots=True)
class Told:
    """One row: the ``series`` that it continues, its step, and its numbers by their names."""

    series: str
    step: int
    numbers: Numbers


class Rows:
    """The rows of the run in ``folder``, in the order of their steps.

    Columns of ``metrics.jsonl`` keep their names. Those of ``evaluation.jsonl`` stand below their
    split, with the budgets consumed before: ``selection/success``, ``selection/budget/episodes``.
    """

    def __init__(self, folder: Path) -> None:
        self._batches, self._evaluations = folder / METRICS, folder / EVALUATIONS
        self._read, self._asked = 0, 0
        self._held: list[dict[str, Any]] = []
        self._budget: Numbers = {}
        self.last = -1
        """Step of the last batch that was read."""

    def fresh(self) -> Iterator[Told]:
        """Every whole row since the last call."""
        end = self._batches.stat().st_size if self._batches.exists() else 0
        # Read after that size was taken: no evaluation of an earlier step is still to come.
        self._asked = self._take(self._evaluations, self._asked, self._held)
        for row, behind in _lines(self._batches, self._read, end):
            yield from self._due(row["step"])
            found = numbers(row)
            del found["step"]
            self._budget = {k: v for k, v in found.items() if k.startswith(_BUDGET)}
            self._read, self.last = behind, row["step"]
            yield Told(BATCHES, row["step"], found)
        yield from self._due(self.last + 1)

    def _due(self, step: int) -> Iterator[Told]:
        """Evaluations up to ``step``: the batch of that number is trained after them."""
        while self._held and self._held[0]["step"] <= step:
            row = self._held.pop(0)
            split = row["split"]
            found = numbers(row) | self._budget
            del found["step"]
            yield Told(split, row["step"], {f"{split}/{key}": v for key, v in found.items()})

    @staticmethod
    def _take(path: Path, start: int, into: list[dict[str, Any]]) -> int:
        end = path.stat().st_size if path.exists() else 0
        for row, behind in _lines(path, start, end):
            into.append(row)
            start = behind
        return start


def last_step(folder: Path) -> int:
    """Step of the last batch in ``metrics.jsonl``; -1 without any."""
    path, last = folder / METRICS, b""
    if path.exists():
        with open(path, "rb") as file:
            for line in file:
                last = line if line.endswith(b"\n") else last
    return int(json.loads(last)["step"]) if last else -1


def _lines(path: Path, start: int, end: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Whole rows from byte ``start`` on that begin before ``end``, and where each ends."""
    if start >= end:
        return
    with open(path, "rb") as file:
        file.seek(start)
        while start < end and (line := file.readline()).endswith(b"\n"):
            start += len(line)
            yield json.loads(line), start
