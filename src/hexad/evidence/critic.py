"""Whether the critic deserves belief: its values against the returns that were realised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hexad.contract.events import CriticJudged, CriticSlice
from hexad.contract.tally import Tally
from hexad.evidence.tallies import tally_json, tally_of

FAMILIES = ("horizon", "ending", "version", "value")
"""Families of slices, by the first word of their names."""


def explained_variance(part: CriticSlice) -> float | None:
    """``1 - Var(return - value) / Var(return)``; ``None`` (undefined) where Var(return) is 0.

    1 is perfect, 0 is no better than the mean return, below 0 is worse. A constant error does not
    show here: it is the bias.
    """
    spread, miss = part.realised.std, part.error.std
    if not spread or miss is None:
        return None
    return 1.0 - (miss / spread) ** 2


def row(part: CriticSlice) -> dict[str, float | int | None]:
    """The numbers of one slice; ``None`` is undefined."""
    return {
        "n": part.realised.count,
        "explained_variance": explained_variance(part),
        "return_mean": part.realised.mean,
        "return_std": part.realised.std,
        "value_mean": part.value.mean,
        "bias": part.error.mean,
    }


class CriticBooks:
    """Adds up what batches said of the critic."""

    def __init__(self) -> None:
        self.slices: dict[str, CriticSlice] = {}
        self.bootstrapped = self.missing = 0
        self.cut = Tally()
        self.last: dict[str, int] = {}

    def add(self, event: CriticJudged) -> None:
        """Book a batch."""
        for name, part in event.slices.items():
            self.slices[name] = self.slices.get(name, CriticSlice()) + part
        self.bootstrapped += event.bootstrapped
        self.missing += event.missing
        self.cut = self.cut + event.cut
        self.last = {"batches": event.batches, "steps": event.steps, "behind": event.behind}

    def metrics(self) -> dict[str, float | int]:
        """Columns of ``metrics.jsonl``; what is undefined is absent."""
        if not self.last:
            return {}
        found: dict[str, Any] = {f"critic/{key}": value for key, value in self.last.items()}
        found |= {"critic/bootstrapped": self.bootstrapped, "critic/missing": self.missing}
        found["critic/value_at_cut"] = self.cut.mean
        whole, first = (row(self.slices.get(k, CriticSlice())) for k in ("all", "first"))
        found |= {f"critic/{key}": value for key, value in whole.items()}
        found["critic/early_bias"] = first["bias"]
        return {key: value for key, value in found.items() if value is not None}

    def row(self) -> dict[str, Any]:
        """Every slice, for ``ledger.jsonl``; undefined stays ``null``."""
        if not self.last:
            return {}
        slices = {name: row(self.slices[name]) for name in sorted(self.slices, key=order)}
        counts = {"bootstrapped": self.bootstrapped, "missing": self.missing}
        cut = self.cut.summary() if self.cut.count else None
        return {"slices": slices, **counts, "value_at_cut": cut, **self.last}

    def state(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        slices = {
            name: {key: tally_json(getattr(part, key)) for key in ("value", "realised", "error")}
            for name, part in self.slices.items()
        }
        counts = {"bootstrapped": self.bootstrapped, "missing": self.missing}
        return {"slices": slices, **counts, "cut": tally_json(self.cut), "last": dict(self.last)}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> CriticBooks:
        """The books that ``state`` was taken of."""
        books = cls()
        for name, part in state["slices"].items():
            books.slices[name] = CriticSlice(**{k: tally_of(v) for k, v in part.items()})
        books.bootstrapped, books.missing = state["bootstrapped"], state["missing"]
        books.cut, books.last = tally_of(state["cut"]), dict(state["last"])
        return books


def order(name: str) -> tuple[int, str, float]:
    """Sort key of slices: the whole first, then family by family, by the number each starts at."""
    family, _, rest = name.partition(" ")
    start = rest.split("-")[0] if not rest.startswith("-") else rest
    try:
        number = float(start)
    except ValueError:
        number = 0.0
    return (FAMILIES.index(family) if family in FAMILIES else -1, family, number)
