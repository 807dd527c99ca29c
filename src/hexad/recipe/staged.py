"""A staged path: recipes in order, each gated by an independent evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hexad.recipe.axes import Recipe
from hexad.recipe.axis import Axis, Fraction

PREVIOUS = "previous"
"""Value of ``policy.model`` that stands for the policy the stage before ended with."""


class Gate(Axis):
    """What an evaluation of the finished stage must reach before the next one starts."""

    split: Literal["selection", "gate"] = "selection"
    """The tasks it is measured on; ``hidden`` is for reporting only."""
    success: Fraction
    """The success rate to reach; a correct episode with a violation is no success."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One recipe of the path; ``name`` is also its folder inside the run folder."""

    name: str
    recipe: Recipe
    gate: Gate | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """A path of at least one stage. ``policy.model`` of a later stage may be ``previous``."""

    name: str
    stages: tuple[Stage, ...]
