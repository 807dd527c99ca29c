"""What a tracker is, and what it may be told: numbers by name, and the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

Numbers = dict[str, float]
PROJECT = "hexad"
"""Where runs go, unless the tracker's own environment variable names another project."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is tracked: a run, or one stage of ``group``, in its ``folder``."""

    folder: Path
    name: str
    group: str
    recipe: Mapping[str, Any]


class Tracker(Protocol):
    """One session of one library: made anew on every resume, and after every failure.

    The constructor opens the session. ``known`` is what an earlier session wanted kept (its run
    id), ``None`` for a new run. ``first`` is the first step that will be told. Whatever the library
    raises is for the caller to count.
    """

    rewinds: ClassVar[bool]
    """Whether steps from ``first`` on are taken back where an earlier session has told them."""

    def __init__(self, subject: Subject, known: Mapping[str, Any] | None, first: int) -> None: ...

    @staticmethod
    def problem() -> str | None:
        """Why the library cannot be used here, and in a second line the way out; else ``None``."""
        ...

    @property
    def known(self) -> dict[str, Any]:
        """What the next session needs, as JSON values."""
        ...

    def tell(self, numbers: Numbers, step: int) -> None:
        """A row. Steps never fall within a session."""
        ...

    def flush(self) -> None:
        """What was told survives the end of this process."""
        ...

    def end(self, summary: Numbers, step: int, *, done: bool) -> None:
        """The session is over; ``summary`` is empty where the run was not finished."""
        ...


TRACKERS = {
    "wandb": "on_wandb:Wandb",
    "trackio": "on_trackio:Trackio",
    "tensorboard": "on_tensorboard:TensorBoard",
}
"""Names, which are those of the packages and of the extras too, and who speaks to each."""


def tracker(name: str) -> type[Tracker]:
    """The class behind ``name``. Imports its library, which must be there."""
    module, _, attribute = TRACKERS[name].partition(":")
    found = getattr(import_module(f"hexad.evidence.trackers.{module}"), attribute)
    return cast(type[Tracker], found)


def numbers(tree: Mapping[str, Any], prefix: str = "") -> Numbers:
    """The numbers of a tree by their path: ``a/b/c``. Texts, lists and flags are left out.

    >>> numbers({"a": {"b": 1}, "c": "text", "d": True, "e": None}, "x/")
    {'x/a/b': 1}
    """
    found: Numbers = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found |= numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{prefix}{key}"] = value
    return found
