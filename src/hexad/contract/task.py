"""A task: one initial state to be tried, with its split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Split(StrEnum):
    """The four evidence channels; their tasks are disjoint by construction."""

    TRAIN = "train"
    SELECTION = "selection"
    HIDDEN = "hidden"
    GATE = "gate"


@dataclass(frozen=True, slots=True)
class Task:
    """``task_id`` is unique in its environment; ``data`` is plain JSON the environment reads."""

    task_id: str
    split: Split
    data: Mapping[str, Any] = field(default_factory=dict)
