"""Simple rivals that a method must beat at an equal budget before its complexity is believed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from hexad.contract.faults import UserError
from hexad.recipe.axes import Recipe


@dataclass(frozen=True, slots=True)
class Rival:
    """``settings`` over the base recipe make it; ``never`` says why there can be no such recipe."""

    name: str
    what: str
    settings: dict[str, Any]
    never: str = ""
    unless: Callable[[Recipe], str] = lambda base: ""
    """Why it says nothing beside this base; empty where it does."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Whether a rival is in the study, could be, or cannot be and why (``state``, ``reason``)."""

    name: str
    what: str
    state: str
    reason: str


def _same(method: str) -> Callable[[Recipe], str]:
    return lambda base: f"the base is {method} itself" if base.method == method else ""


def _waits(base: Recipe) -> str:
    return "" if base.timing.mode == "asynchronous" else "the base is synchronous already"


_TIMING = ("max_lag", "workers", "refresh", "stale", "partial")
RIVALS = (
    Rival(
        "random",
        "a policy that acts at random",
        {},
        "a recipe starts from policy.model; success at share 0 of the budget is what no training "
        "gives",
    ),
    Rival(
        "sft",
        "imitate the expert's demonstrations",
        {"method": "sft", "data.group_size": 1},
        unless=_same("sft"),
    ),
    Rival(
        "rejection",
        "imitate the policy's own correct attempts",
        {"method": "rejection"},
        unless=_same("rejection"),
    ),
    Rival(
        "best_of_n",
        "imitate the best of N attempts at each task",
        {"method": "rejection", "data.rounds.keep": "best"},
    ),
    Rival(
        "synchronous",
        "the base without stale data",
        {"timing.mode": "synchronous", **{f"timing.{key}": None for key in _TIMING}},
        unless=_waits,
    ),
    Rival(
        "monte_carlo",
        "plain Monte Carlo with the batch mean as baseline",
        {"method": "reinforce"},
        unless=_same("reinforce"),
    ),
)
"""Contract, section 2.19: random, SFT, rejection sampling, best-of-N, synchronous, Monte Carlo."""


def settings(name: str, where: str) -> dict[str, Any]:
    """What makes the rival ``name`` of a base. Raises ``UserError`` where nothing does."""
    known = {rival.name: rival for rival in RIVALS}
    runs = ", ".join(rival.name for rival in RIVALS if not rival.never)
    if name not in known:
        raise UserError(f"there is no rival {name!r}", where=where, fix=f"choose among {runs}")
    if known[name].never:
        raise UserError(f"{name}: {known[name].never}", where=where, fix=f"choose among {runs}")
    return dict(known[name].settings)


def offers(base: Recipe, taken: Collection[str]) -> tuple[Offer, ...]:
    """Every rival, with its state beside ``base``."""
    found = []
    for rival in RIVALS:
        reason = rival.never or rival.unless(base)
        state = "in the study" if rival.name in taken else "offered"
        if reason:
            state = "not available"
        found.append(Offer(rival.name, rival.what, state, reason))
    return tuple(found)
