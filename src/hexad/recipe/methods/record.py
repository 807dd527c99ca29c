"""What a method is: data that validator, advisor and documentation read alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What must hold for the method's equation to mean what its paper says."""

    critic: bool = False
    """Needs a learned value function."""
    min_group_size: int = 1
    """Fewest attempts at one task for the estimator to be defined."""
    behaviour_logprobs: bool = True
    """Needs the recorded log-probs of the sampled tokens."""
    reference: bool = False
    """Needs a frozen reference policy."""
    tolerates_lag: bool = False
    """Corrects for data sampled by an older version."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method. ``axes`` are the recipe values it fills; what the user writes out wins.

    ``equation`` is plain text, to be maximised unless it is called a loss. ``atom`` is the unit
    that micro-batches never split: row, response, pair, episode, group or batch. ``needs`` says
    the fields of ``contract.needs.Needs`` that it sets: facts that every trained episode must have.
    ``functions`` names code as ``module:attribute``, so that this record imports without torch.
    ``notes`` records what was decided where sources disagree. ``missing`` names what Hexad lacks to
    run the method as published: until then it is described and validated, and refused at the start.
    """

    name: str
    title: str
    equation: str
    source: str
    atom: str
    axes: Mapping[str, Any]
    functions: Mapping[str, str]
    assumptions: Assumptions = Assumptions()
    needs: Mapping[str, bool] = field(default_factory=dict)
    notes: str = ""
    missing: str = ""

    def values(self) -> dict[str, Any]:
        """The axis values by dotted key, for example ``{"data.group_size": 8}``."""
        return dict(flatten(self.axes))


def flatten(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Leaves of nested mappings as ``(dotted key, value)`` pairs, in order."""
    leaves: list[tuple[str, Any]] = []
    for key, value in tree.items():
        dotted = f"{prefix}.{key}" if prefix else str(key)
        leaves += flatten(value, dotted) if isinstance(value, Mapping) else [(dotted, value)]
    return leaves
