"""What a study file says of one arm: what it changes, and what ends it."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from hexad.recipe.axes import BudgetSpec
from hexad.recipe.axis import Axis

Settings = dict[str, Any]
"""Dotted keys of a recipe and their values."""


class Departure(Axis):
    """How an arm departs from where it starts."""

    set: Settings = Field(default_factory=dict)
    """What it changes, by dotted key."""
    trials: tuple[Settings, ...] | None = None
    """Settings tried in tuning; ``null`` takes ``tuning.trials``. Every arm has as many."""
    budget: BudgetSpec | None = None
    """Only for an arm that consumes nothing of the study's budget, such as imitation under a budget
    of sampled tokens: what ends it instead. The comparison says that it is not matched."""


class ArmSpec(Departure):
    """One way to train that is compared with the base."""

    recipe: str | None = None
    """A recipe file beside the study; ``null`` starts from the base's."""
    train: bool = True
    """``false``: nothing is trained. What it starts with is evaluated, so it tunes nothing."""


class RivalSpec(Departure):
    """What a simple rival changes beside what makes it; ``{KEY: VALUE}`` is short for its set."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if not isinstance(value, dict) or not value:
            return value
        if not value.keys() & cls.model_fields.keys():
            return {"set": value}
        # What passes through here is Python's to pydantic, where a list is no tuple.
        return {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
