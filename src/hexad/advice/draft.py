"""A path as recipes: the few keys that differ from the presets, checked by the validator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from hexad.advice.facts import Facts
from hexad.advice.path import Path, Step
from hexad.advice.questions import Questionnaire
from hexad.recipe.load import build
from hexad.recipe.methods import METHODS
from hexad.recipe.read import Document, merge

Tree = dict[str, Any]
GATE = 0.05
"""Success on selection that a stage must reach before reinforcement follows.

With it 1 - .95^8 - .05^8 = 34 % of groups of 8 have a contrast, well above the 20 % of the metrics
table.
"""
SINGLES, GROUPS, GROUP_SIZE = 256, 32, 8
"""Tasks in a batch of single attempts; tasks and attempts in a batch of groups."""
GAP = 0.5
"""Least difference of scores of a pair, as in the preset: between right and wrong."""
PRETRAIN = 4
"""Batches on which only the critic learns, as in the recipes of the calculator."""
CLOCKS = {"token": "token", "span": "span", "turn": "turn", "tool_call": "turn", "episode": "token"}
"""The time step of an estimator with a critic, by what one decision is."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The recipe as a ``tree`` to be written out; ``missing`` steps are not in it, and why."""

    tree: Tree | None
    missing: Mapping[str, str]


def running() -> tuple[str, ...]:
    """Method records that run in this version."""
    return tuple(name for name, record in METHODS.items() if not record.missing)


def draft(answers: Questionnaire, path: Path, facts: Facts, source: Document) -> Draft:
    """The recipe of the steps to take now.

    A step whose method is not in this version ends the recipe before it. Raises ``UserError``,
    at the place in ``source``, where ``task`` or ``policy`` of the task file make no recipe.
    """
    stages: list[Tree] = []
    missing: dict[str, str] = {}
    for step in path.steps:
        if why := _lacks(step, answers):
            missing[step.method] = why
            break
        stages.append(_stage(answers, step, facts, first=not stages))
    if not stages:
        return Draft(None, missing)
    tree = {**stages[0], "name": answers.name} if len(stages) == 1 else _staged(answers, stages)
    _validate(tree, source)
    return Draft(tree, missing)


def _lacks(step: Step, answers: Questionnaire) -> str:
    """Why ``step`` cannot be written down yet; empty where it can."""
    if step.method not in running():
        return f"the method {step.method} does not run in this version yet"
    if step.kind == "dpo" and answers.feedback.pairs_from is None:
        return "the pairs are nowhere to be found: name their folder in feedback.pairs_from"
    return ""


def _validate(tree: Tree, source: Document) -> None:
    """``tree`` passes the validator, or its problem is one of the user's own keys."""
    staged = {f"stages.{i}.recipe.{k}": v for i in range(3) for k, v in source.places.items()}
    build(Document(File(source.path), tree, {**source.places, **staged}))


def _staged(answers: Questionnaire, stages: list[Tree]) -> Tree:
    gate = {"split": "selection", "success": GATE}
    entries: list[Tree] = [{"name": stage["method"], "recipe": stage} for stage in stages]
    for entry in entries[:-1]:
        entry["gate"] = dict(gate)
    return {"name": answers.name, "stages": entries}


def _stage(answers: Questionnaire, step: Step, facts: Facts, *, first: bool) -> Tree:
    """One recipe: its preset, and what the answers change."""
    task = answers.task.model_dump(mode="json", exclude_unset=True)
    policy = answers.policy.model_dump(mode="json", exclude_unset=True)
    if step.kind != "rl":
        task = {key: value for key, value in task.items() if key not in ("latency", "chaos")}
    if not first:
        policy["model"] = "previous"
    tree: Tree = {"name": f"{answers.name}-{step.method}", "method": step.method}
    tree |= {"task": task} if task else {}
    tree |= {"policy": policy} if policy else {}
    kinds = {"sft": _imitation, "dpo": _preference, "rl": _reinforcement}
    tree = merge(tree, kinds[step.kind](answers, step.method, facts))
    tree["budget"] = {"episodes": answers.episodes}
    if evaluation := _evaluation(answers, facts):
        tree["run"] = {"evaluation": evaluation}
    return tree


def _evaluation(answers: Questionnaire, facts: Facts) -> Tree:
    """Evaluations play episodes: none where nothing can be undone, and no more tasks than exist."""
    if not facts.playable:
        return {"every": None, "final": "none"}
    count = answers.task.selection.count
    return {"tasks": count} if count is not None and count < 200 else {}


def _imitation(answers: Questionnaire, method: str, facts: Facts) -> Tree:
    return {"data": {"origin": answers.feedback.demonstrations_from, "groups": GROUPS}}


def _preference(answers: Questionnaire, method: str, facts: Facts) -> Tree:
    """Pairs that are there already: the preset would sample its own, which was not asked for."""
    origin = answers.feedback.pairs_from
    pairs = {"rule": "reward_gap", "gap": GAP}
    return {"data": {"regime": "fixed", "origin": origin, "rounds": None, "pairs": pairs}}


def _reinforcement(answers: Questionnaire, method: str, facts: Facts) -> Tree:
    record = METHODS[method]
    grouped = record.assumptions.min_group_size > 1
    tree: Tree = {"data": _batch(grouped or (method == "areal" and _several(facts)))}
    if record.assumptions.critic:
        clock = CLOCKS[facts["action.unit"]]
        tree["critic"] = {"pretrain": PRETRAIN}
        tree |= {"credit": {"clock": clock}} if clock != "token" else {}
    if (weight := facts["action.weight"]) != "published":
        inner = {"inner": "episode"} if weight == "prompt" else {}
        tree["action"] = {"denominator": weight, **inner}
    profile = facts.measured.profile
    if record.values().get("timing.mode") == "asynchronous" and profile and profile.best:
        tree["timing"] = {"max_lag": profile.best.max_lag}
    return tree


def _several(facts: Facts) -> bool:
    return bool(facts["critic.candidates"] == "cheap" and not facts.flat)


def _batch(grouped: bool) -> Tree:
    if grouped:
        return {"groups": GROUPS, "group_size": GROUP_SIZE}
    return {"groups": SINGLES, "group_size": 1}
