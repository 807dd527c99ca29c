"""A study file: a base recipe, the arms that depart from it, and what they are compared by."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from hexad.contract.faults import UserError
from hexad.recipe import falsify
from hexad.recipe.arm import ArmSpec, RivalSpec, Settings
from hexad.recipe.axes import BudgetSpec, Recipe
from hexad.recipe.axis import Axis, NonNegative, Positive
from hexad.recipe.load import load, typed
from hexad.recipe.read import Document, read

METRIC = re.compile(r"success|pass[@^]([1-9][0-9]*)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]*")
_STEPS = {"steps", "optimizer_steps", "optimiser_steps", "updates", "batches", "iterations"}


class TuningSpec(Axis):
    """Settings are chosen by success on ``selection``, before ``hidden`` is used."""

    seed: NonNegative
    """Seed of the trials; none of the study's."""
    trials: tuple[Settings, ...] = ()
    """Settings that every arm tries, unless it names its own."""


class Study(Axis):
    """What is compared. All of it is written down before the first run."""

    name: str
    """Its folder is ``runs/NAME`` unless ``--out`` says otherwise."""
    recipe: str
    """The base: a recipe file, found from the study file's folder."""
    base: str = "base"
    """Name of the base among the arms."""
    set: Settings = Field(default_factory=dict)
    """What all arms change, by dotted key."""
    arms: dict[str, ArmSpec] = Field(default_factory=dict)
    """Arms by name."""
    grid: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """An ablation: each value of each key is one arm, and changes nothing else."""
    falsify: dict[str, RivalSpec] = Field(default_factory=dict)
    """Simple rivals by name (random, sft, rejection, best_of_n, synchronous, monte_carlo), each
    with what it changes beside."""
    budget: BudgetSpec
    """Exactly one budget, the same for all arms."""
    seeds: tuple[NonNegative, ...] = Field(min_length=1)
    """Seeds of all arms, named beforehand."""
    metric: str = "success"
    """The primary metric on hidden tasks: ``success``, ``pass@k`` or ``pass^k``."""
    margin: float = Field(gt=0, lt=1)
    """Smallest difference of the metric that matters."""
    attempts: Positive = 1
    """Attempts at each hidden task."""
    points: Positive = 4
    """Evaluations on ``selection`` at so many equal shares of the budget."""
    tuning: TuningSpec | None = None
    """``null``: no arm is tuned."""


@dataclass(frozen=True, slots=True)
class Arm:
    """An arm as it is run: a recipe file and overrides."""

    name: str
    file: Path
    overrides: tuple[str, ...]
    trials: tuple[Settings, ...]
    matched: bool

    def recipe(self, seed: int, settings: Mapping[str, Any] | None = None) -> Recipe:
        """Its resolved recipe with ``seed`` and tuned ``settings``. Raises ``UserError``."""
        own = [*self.overrides, *_overrides(settings or {})]
        found = load(self.file, [*own, f"run.seed={seed}", f"name={self.name}"])
        if not isinstance(found, Recipe):
            fix = "start every arm from one run: policy.model may be the folder of a finished one"
            raise UserError(
                "an arm is one recipe, not a staged path", where=str(self.file), fix=fix
            )
        return found


@dataclass(frozen=True, slots=True)
class Plan:
    """A study that may begin: every arm's recipe is valid; the base is the first arm."""

    study: Study
    file: Path
    arms: tuple[Arm, ...]
    offered: tuple[falsify.Offer, ...]

    @property
    def budget(self) -> falsify.Budget:
        """Key and size of the matched budget."""
        return _budget(self.study)


def plan(path: Path) -> Plan:
    """The study in ``path``. Raises ``UserError`` with file, line and the way out."""
    document = read(path)
    _refuse_steps(document)
    study = typed(Study, document.tree, document)
    _check(study, document)
    arms = tuple(_arms(study, document))
    for arm in arms:
        _require(arm, study)
    return Plan(study, path, arms, tuple(_offers(study, document, arms[0])))


def _require(arm: Arm, study: Study) -> None:
    """Raise ``UserError`` for an arm that is no valid recipe, tuned as it may be."""
    for settings in ({}, *arm.trials):
        arm.recipe(study.seeds[0], settings)


def _budget(study: Study) -> falsify.Budget:
    ((key, size),) = study.budget.model_dump(exclude_none=True).items()
    return key, size


def _refuse_steps(document: Document) -> None:
    """Equal numbers of optimiser steps match nothing: a step costs what its batch costs."""
    budget = document.tree.get("budget")
    for key in _STEPS.intersection(budget if isinstance(budget, dict) else ()):
        raise UserError(
            "optimiser steps are no budget: arms differ in what one step samples and trains on",
            where=document.where(f"budget.{key}"),
            fix="match episodes, rollout_tokens, train_tokens, tool_calls or seconds",
        )


def _check(study: Study, document: Document) -> None:
    """What types cannot say."""

    def require(holds: bool, what: str, key: str, fix: str) -> None:
        if not holds:
            raise UserError(what, where=document.where(key), fix=fix)

    limits = study.budget.model_dump(exclude_none=True)
    many = f"a study matches exactly one budget, not {len(limits)}"
    require(len(limits) == 1, many, "budget", "for example budget: {rollout_tokens: 250000}")
    seeds = study.seeds
    require(len(set(seeds)) == len(seeds), "a seed is named twice", "seeds", "name each once")
    found = METRIC.fullmatch(study.metric)
    require(
        found is not None,
        f"there is no metric {study.metric!r}",
        "metric",
        "use success, pass@k or pass^k",
    )
    needed = int(found[1] or 1) if found else 1
    few = f"{study.metric} needs {needed} attempts at each task"
    require(study.attempts >= needed, few, "metric", f"set attempts: {needed}")
    if study.tuning is not None:
        apart = study.tuning.seed not in seeds
        fix = "take a seed that the study does not use"
        require(apart, "tuning would choose on a seed it is judged by", "tuning.seed", fix)
    every = {**study.arms, **study.falsify}
    tuned = [name for name, arm in every.items() if arm.trials is not None]
    told = study.tuning is not None or not tuned
    require(told, "trials without a seed for them", "arms", "write tuning: {seed: 100}")


def _arms(study: Study, document: Document) -> Iterator[Arm]:
    """The base, then the arms as they are written, of the grid, and the simple rivals."""
    specs: dict[str, ArmSpec] = {study.base: ArmSpec()}
    grid = {
        f"{key}={value}": ArmSpec(set={key: value})
        for key, values in study.grid.items()
        for value in values
    }
    rivals: dict[str, ArmSpec] = {}
    if study.falsify:
        base = _arm(study, document, study.base, ArmSpec()).recipe(study.seeds[0])
        rivals = {name: _rival(study, document, name, base) for name in study.falsify}
    for group in (study.arms, grid, rivals):
        for name, spec in group.items():
            if name in specs:
                fix = f"name it otherwise; the base is {study.base!r} (key base)"
                raise UserError(f"two arms are named {name!r}", where=str(document.path), fix=fix)
            specs[name] = spec
    for name, spec in specs.items():
        if not _NAME.fullmatch(name):
            fix = "write it under arms, with a name of letters, digits, dots and dashes"
            raise UserError(f"{name!r} cannot name a folder", where=str(document.path), fix=fix)
        yield _arm(study, document, name, spec)


def _rival(study: Study, document: Document, name: str, base: Recipe) -> ArmSpec:
    """A simple rival of ``base``, with what the study file changes about it."""
    own = study.falsify.get(name, RivalSpec())
    made = falsify.rival(name, document.where(f"falsify.{name}")).made(base, _budget(study))
    budget = own.budget or made.budget
    return ArmSpec(set={**made.set, **own.set}, trials=own.trials, budget=budget, train=made.train)


def _offers(study: Study, document: Document, base: Arm) -> Iterator[falsify.Offer]:
    """Every rival: in the study, offered where it can be planned as it is, or why not."""
    recipe = base.recipe(study.seeds[0])
    for rival in falsify.RIVALS:
        state, reason = "in the study", ""
        if rival.name not in study.falsify:
            state, reason = "offered", rival.unless(recipe) or _refusal(study, document, rival.name)
        if reason:
            state = "not available"
        yield falsify.Offer(rival.name, rival.what, state, reason)


def _refusal(study: Study, document: Document, name: str) -> str:
    """Why the rival cannot be run as it is, and what to write; empty where it can."""
    base = _arm(study, document, study.base, ArmSpec()).recipe(study.seeds[0])
    try:
        _require(_arm(study, document, name, _rival(study, document, name, base)), study)
    except UserError as error:
        return f"{error.what}; under falsify.{name}: {error.fix}"
    return ""


def _arm(study: Study, document: Document, name: str, spec: ArmSpec) -> Arm:
    file = document.path.parent / (spec.recipe or study.recipe)
    limits = dict.fromkeys(BudgetSpec.model_fields)
    limits |= (spec.budget or study.budget).model_dump()
    # A target that every success reaches ends a run before its first batch.
    until = None if spec.train else {"success": 0.0}
    protocol = {"every": None, "points": study.points, "final": "none", "until": until}
    fixed = {
        **{f"budget.{key}": value for key, value in limits.items()},
        **{f"run.evaluation.{key}": value for key, value in protocol.items()},
    }
    settings = {**study.set, **spec.set}
    if taken := sorted(set(settings) & {*fixed, "run.seed", "name"}):
        what = f"{taken[0]} is the study's to decide, not an arm's"
        raise UserError(what, where=str(document.path), fix=f"take it out of arm {name}")
    overrides = (*_overrides(settings), *_overrides(fixed))
    trials = _trials(study, document, name, spec)
    return Arm(name, file, overrides, trials, spec.budget is None and spec.train)


def _trials(study: Study, document: Document, name: str, spec: ArmSpec) -> tuple[Settings, ...]:
    """Settings that an arm tries; none where nothing is trained."""
    if not spec.train:
        return ()
    shared = study.tuning.trials if study.tuning else ()
    trials = shared if spec.trials is None else spec.trials
    if len(trials) != len(shared):
        what = f"arm {name} has {len(trials)} tuning trials, the base {len(shared)}"
        raise UserError(what, where=document.where(f"arms.{name}"), fix="give all as many")
    return trials


def _overrides(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """As on the command line; JSON is YAML."""
    return tuple(f"{key}={json.dumps(value)}" for key, value in settings.items())
