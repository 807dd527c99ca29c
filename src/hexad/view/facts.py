"""What a page says of one stage of a run, read from its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hexad.evidence import audit, journal
from hexad.evidence.diagnosis import curves
from hexad.evidence.diagnosis.findings import Finding
from hexad.evidence.folder import Part, Row, parts
from hexad.evidence.triggers import fired

RECENT = 10
"""Batches that a rule about the present looks at."""
_LOGS = (journal.METRICS, journal.LEDGER, journal.EVALUATIONS, journal.HIDDEN, audit.FILE)


@dataclass(frozen=True)
class Facts:
    """The rows of one stage. Everything is read once; a grown run is read as new facts."""

    part: Part

    @cached_property
    def ledger(self) -> list[Row]:
        """The cumulative books, one row a batch."""
        return journal.rows(self.part.folder / journal.LEDGER)

    @property
    def last(self) -> Row:
        """The newest books; empty before the first batch."""
        return self.ledger[-1] if self.ledger else {}

    @property
    def recent(self) -> Sequence[Row]:
        """The newest rows of ``metrics.jsonl``."""
        return self.part.metrics[-RECENT:]

    @cached_property
    def signs(self) -> list[dict[str, Any]]:
        """Signs to change direction that the rows have shown."""
        return fired(self.part.recipe, self.part.metrics, self.part.on("selection"))

    @cached_property
    def symptoms(self) -> list[Finding]:
        """What the rules of ``hexad diagnose`` read from the curves; its probes take longer."""
        part = self.part
        seen = curves.Curves(part.recipe, part.metrics, part.on("selection"), self.last)
        return [found for rule in curves.RULES if (found := rule(seen)) is not None]

    @cached_property
    def diagnosis(self) -> Row:
        """All that ``hexad diagnose`` finds. Raises ``UserError`` for unreadable episodes."""
        from hexad.evidence.diagnosis.diagnose import diagnose  # torch, which no other page needs

        return diagnose(self.part)

    @cached_property
    def audit(self) -> Row | None:
        """The last quadrant audit."""
        return audit.read(self.part.folder)

    def lately(self, *path: str) -> float:
        """How much a cumulative count of the books grew over the recent batches."""
        before = self.ledger[-1 - RECENT] if len(self.ledger) > RECENT else {}
        return _count(self.last, path) - _count(before, path)

    def pooled(self, key: str) -> float | None:
        """Mean of a tally over the recent batches, each value counted once; ``None`` without any.

        ``key`` names the tally, so that ``key/mean`` and ``key/count`` are columns.
        """
        seen = [(r[f"{key}/mean"], r[f"{key}/count"]) for r in self.recent if f"{key}/mean" in r]
        count = sum(n for _, n in seen)
        return sum(mean * n for mean, n in seen) / count if count else None


def read(run_dir: Path) -> list[Facts]:
    """The stages of the run that have begun. Raises ``UserError`` when the folder is not a run."""
    return [Facts(part) for part in parts(run_dir)]


def stamp(run_dir: Path) -> str:
    """Changes whenever a log of the run does: names, sizes and times of change."""
    found = []
    for path in sorted([run_dir, *(p for p in run_dir.glob("*") if p.is_dir())]):
        for name in _LOGS:
            try:
                known = (path / name).stat()
            except FileNotFoundError:
                continue
            found.append((path.name, name, known.st_size, known.st_mtime_ns))
    return json.dumps(found)


def _count(row: Mapping[str, Any], path: Sequence[str]) -> float:
    value: Any = row
    for key in path:
        value = value.get(key, {}) if isinstance(value, Mapping) else {}
    return float(value) if isinstance(value, int | float) else 0.0
