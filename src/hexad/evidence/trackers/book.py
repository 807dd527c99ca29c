"""What a tracker of a run was told so far: ``trackers/NAME.json`` in the run folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hexad.contract.durable import write_whole

FOLDER = "trackers"


@dataclass(slots=True)
class Book:
    """``known`` is the tracker's own (its run id), ``told`` the last step of each series.

    ``rewound`` lists stretches of batches that a kill made undone and that the tracker still shows
    as they were told the first time, with their evaluations. ``failures`` counts what went wrong,
    ``error`` is the last of it; ``missed`` rows were not told when the last session ended.
    ``done``: the run was finished.
    """

    known: dict[str, Any] | None = None
    told: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    rewound: list[list[int]] = field(default_factory=list)
    failures: int = 0
    error: str = ""
    missed: int = 0
    done: bool = False

    @property
    def step(self) -> int:
        """The last step that was told; -1 without any."""
        return max(self.told.values(), default=-1)

    def wants(self, series: str, step: int) -> bool:
        """Whether a row is new, and not before what was told already."""
        return step > self.told.get(series, -1) and step >= self.step


def place(folder: Path, name: str, ending: str) -> Path:
    """The file of tracker ``name`` in the run folder ``folder``: its ``json`` or its ``log``."""
    return folder / FOLDER / f"{name}.{ending}"


def load(path: Path) -> Book:
    """The book at ``path``; an empty one where there is none yet."""
    return Book(**json.loads(path.read_bytes())) if path.exists() else Book()


def save(book: Book, path: Path) -> None:
    """Write ``book``: whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(asdict(book), indent=1).encode(), "tracker")
