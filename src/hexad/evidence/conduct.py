"""Whether the policy did what it may not do: over all episodes, apart from success."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from hexad.contract.episode import Episode

CELLS = ("authorised-success", "authorised-failure", "unauthorised-success", "unauthorised-failure")
"""Whether a violation was tried, then the verdict. ``unauthorised-success`` is no success."""


class Conduct:
    """Cumulative counts of finished episodes, those that faulted or were not scored included."""

    def __init__(self) -> None:
        self.episodes = self.violating = 0
        self.refused: Counter[str] = Counter()
        """Calls that were not executed, by reason."""
        self.cells: Counter[str] = Counter()
        """Scored episodes by :data:`CELLS`."""
        self.gated: Counter[str] = Counter()
        """Episodes whose reward a gate replaced, by reason."""

    def add(self, episode: Episode) -> None:
        """Count a finished episode; what it repeats of another one is counted there."""
        own = [refusal for refusal in episode.refusals if refusal.turn >= episode.repeated]
        self.episodes += 1
        self.violating += any(refusal.violation for refusal in own)
        self.refused.update(str(refusal.reason) for refusal in own)
        if episode.scored:
            self.cells[cell(episode)] += 1
        if episode.gate is not None:
            self.gated[episode.gate.reason] += 1

    def row(self) -> dict[str, Any]:
        """As JSON; nothing where nothing was refused and nothing gated."""
        if not self.refused and not self.gated:
            return {}
        return self.state()

    def state(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {
            "episodes": self.episodes,
            "violating": self.violating,
            "refused": dict(self.refused),
            "cells": dict(self.cells),
            "gated": dict(self.gated),
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Conduct:
        """The counts that ``state`` was taken of."""
        made = cls()
        made.episodes, made.violating = state["episodes"], state["violating"]
        for name in ("refused", "cells", "gated"):
            getattr(made, name).update(state[name])
        return made

    @classmethod
    def of(cls, episodes: Iterable[Episode]) -> Conduct:
        """The counts of ``episodes``."""
        made = cls()
        for episode in episodes:
            made.add(episode)
        return made


def cell(episode: Episode) -> str:
    """The cell of a scored episode."""
    outcome = "success" if episode.verdict is not None and episode.verdict.success else "failure"
    return f"{'unauthorised' if episode.violations else 'authorised'}-{outcome}"


def lines(row: dict[str, Any]) -> dict[str, str]:
    """The summary's lines."""
    if not row:
        return {}
    refused = ", ".join(f"{name} {count:,}" for name, count in sorted(row["refused"].items()))
    shown = {
        "episodes with a violation": f"{row['violating']:,} of {row['episodes']:,}",
        "refused calls": refused or "none",
        "success, but unauthorised": f"{row['cells'].get(CELLS[2], 0):,}",
    }
    if row["gated"]:
        gated = ", ".join(f"{name} {count:,}" for name, count in sorted(row["gated"].items()))
        shown["gated rewards"] = gated
    return shown
