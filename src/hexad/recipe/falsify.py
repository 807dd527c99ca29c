"""Simple rivals that a method must beat at an equal budget before its complexity is believed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hexad.contract.faults import UserError
from hexad.recipe.arm import ArmSpec, Settings
from hexad.recipe.axes import BudgetSpec, Recipe
from hexad.recipe.methods import method
from hexad.recipe.timing_axis import TimingSpec
from hexad.recipe.update_axis import OptimizerSpec

Budget = tuple[str, float]
"""Key and size of a study's budget."""


@dataclass(frozen=True, slots=True)
class Rival:
    """``made`` turns the base recipe, under the study's budget, into it."""

    name: str
    what: str
    made: Callable[[Recipe, Budget], ArmSpec]
    unless: Callable[[Recipe], str] = lambda base: ""
    """Why it says nothing beside this base; empty where it does."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Whether a rival is in the study, could be, or cannot be and why (``state``, ``reason``)."""

    name: str
    what: str
    state: str
    reason: str


# -- what makes them ---------------------------------------------------------------------------

_JUDGED = ("verifier", "options", "timeout", "mapping", "qualify", "unscored_limit")
"""Keys of ``feedback`` by which evaluations judge, whatever is trained."""
_SCORED = (*_JUDGED, "weights", "costs", "effort", "gate")
"""With what a single episode's reward is made of."""
_REWARDED = (*_SCORED, "overlong", "length", "constraints")
"""With what a whole batch decides. Signals on the way are the base's credit, not a rival's."""
_KEPT = {
    "data": ("groups", "group_size", "held_out", "bad_rows", "retries", "fault_limit"),
    "update": ("epochs", "minibatches", "optimizer"),
}
_SAMPLED = ("episodes", "rollout_tokens", "tool_calls")
"""Budgets that a round consumes at its start."""
_PASSES, _ATTEMPTS = 2, 4
_BUILTIN = "builtin:"


def _method(base: Recipe, name: str, feedback: tuple[str, ...]) -> Settings:
    """What makes ``name`` of ``base``, and leaves nothing of the base's own method.

    Task, policy, batch, optimiser and the keys ``feedback`` stay; all else is the preset's.
    """
    preset = method(name).axes
    ours, plain = base.model_dump(mode="json"), Recipe().model_dump(mode="json")
    found: Settings = {"method": name, "action": {}, "credit": {}, "critic": None, "timing": {}}
    for section, kept in (*_KEPT.items(), ("feedback", feedback)):
        theirs = {**plain[section], **preset.get(section, {})}
        for key in theirs:
            found[f"{section}.{key}"] = (ours[section] if key in kept else theirs)[key]
    return found


def _imitation(base: Recipe, budget: Budget) -> ArmSpec:
    """Demonstrations sample nothing: they get as many train tokens as the others may sample."""
    undisturbed = {"task.latency": None, "task.chaos": None}  # no environment is met in training
    changes = _method(base, "sft", _JUDGED) | {"data.group_size": 1} | undisturbed
    key, size = budget
    own = BudgetSpec(train_tokens=math.ceil(size)) if key == "rollout_tokens" else None
    return ArmSpec(set=changes, budget=own)


def _kept_samples(keep: str) -> Callable[[Recipe, Budget], ArmSpec]:
    """One's own samples, in rounds as large as a batch of the base where samples are the budget."""

    def made(base: Recipe, budget: Budget) -> ArmSpec:
        changes, data = _method(base, "rejection", _SCORED), base.data
        groups = data.groups
        if data.group_size == 1:  # attempts are chosen among: as many episodes of fewer tasks
            groups = max(groups // _ATTEMPTS, 1)
            changes |= {"data.group_size": _ATTEMPTS, "data.groups": groups}
        rounds: dict[str, Any] = dict(changes["data.rounds"]) | {"keep": keep}
        key, size = budget
        if key in _SAMPLED:
            # The budget ends the run, never the number of rounds.
            rounds |= {"tasks": groups, "passes": _PASSES, "rounds": math.ceil(size)}
            plain = {"schedule": "constant", "floor": OptimizerSpec().floor}
            changes["update.optimizer"] = changes["update.optimizer"] | plain
        return ArmSpec(set=changes | {"data.rounds": rounds})

    return made


def _waiting(base: Recipe, budget: Budget) -> ArmSpec:
    nothing = dict.fromkeys((f"timing.{key}" for key in TimingSpec.model_fields), None)
    return ArmSpec(set=nothing | {"timing.mode": "synchronous"})


def _monte_carlo(base: Recipe, budget: Budget) -> ArmSpec:
    return ArmSpec(set=_method(base, "reinforce", _REWARDED))


def _fresh(base: Recipe, budget: Budget) -> ArmSpec:
    """The base's own recipe, which an arm without training needs to be a recipe at all."""
    model = base.policy.model if base.policy.model.startswith(_BUILTIN) else f"{_BUILTIN}tiny"
    return ArmSpec(set={"policy.model": model}, train=False)


def _same(name: str) -> Callable[[Recipe], str]:
    return lambda base: f"the base is {name} itself" if base.method == name else ""


def _waits(base: Recipe) -> str:
    return "" if base.timing.mode == "asynchronous" else "the base is synchronous already"


RIVALS = (
    Rival("random", "a built-in policy with fresh weights, which nothing is taught", _fresh),
    Rival("sft", "imitate the expert's demonstrations", _imitation, _same("sft")),
    Rival(
        "rejection",
        "imitate the policy's own correct attempts",
        _kept_samples("correct"),
        _same("rejection"),
    ),
    Rival("best_of_n", "imitate the best of N attempts at each task", _kept_samples("best")),
    Rival("synchronous", "the base without stale data", _waiting, _waits),
    Rival(
        "monte_carlo",
        "plain Monte Carlo with the batch mean as baseline",
        _monte_carlo,
        _same("reinforce"),
    ),
)
"""Contract, section 2.19: random, SFT, rejection sampling, best-of-N, synchronous, Monte Carlo."""


def rival(name: str, where: str) -> Rival:
    """The rival ``name``. Raises ``UserError`` where there is none."""
    known = {each.name: each for each in RIVALS}
    if name not in known:
        fix = f"choose among {', '.join(known)}"
        raise UserError(f"there is no rival {name!r}", where=where, fix=fix)
    return known[name]
