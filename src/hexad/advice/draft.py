"""A path as recipes: the few keys that differ from the presets, checked by the validator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from hexad.advice.facts import Facts
from hexad.advice.path import Path, Step
from hexad.advice.questions import Questionnaire
from hexad.recipe.legal import ESTIMATORS
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
JUDGE = "llm_judge"
"""The verifier where a judge scores and none is named."""
PLACEHOLDERS = {"url": "http://127.0.0.1:8000/v1", "model": "judge"}
"""Its options, to be filled in."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The recipe as a ``tree`` to be written out; ``missing`` steps are not in it, and why.

    ``remarks``: answers that it does not carry, or only with a placeholder, and what to add.
    """

    tree: Tree | None
    missing: Mapping[str, str]
    remarks: tuple[str, ...] = ()


def running() -> tuple[str, ...]:
    """Method records that run in this version."""
    return tuple(name for name, record in METHODS.items() if not record.missing)


def draft(answers: Questionnaire, path: Path, facts: Facts, source: Document) -> Draft:
    """The recipe of the steps to take now.

    A step whose method is not in this version ends the recipe before it. Raises ``UserError``,
    at the place in ``source``, where ``task`` or ``policy`` of the task file make no recipe.
    """
    stages: list[Tree] = []
    remarks: list[str] = []
    missing: dict[str, str] = {}
    for step in path.steps:
        if why := _lacks(step, answers):
            missing[step.method] = why
            break
        stages.append(_stage(answers, step, facts, first=not stages))
        remarks += _left_out(answers, step, facts)
    if not stages:
        return Draft(None, missing)
    tree = {**stages[0], "name": answers.name} if len(stages) == 1 else _staged(answers, stages)
    _validate(tree, source)
    if why := facts.unevaluated:
        remarks.append(f"no evaluation is in the recipe: {why}")
    return Draft(tree, missing, tuple(remarks))


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
    """None where no episode can be played and scored, and no more tasks than exist."""
    if facts.unevaluated:
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
    if feedback := judged(answers) | _signals(answers, method):
        tree["feedback"] = feedback
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


def judged(answers: Questionnaire) -> Tree:
    """Who scores: the verifier that is named, a judge to be filled in, or the environment's own."""
    feedback = answers.feedback
    if feedback.verifier is None and feedback.outcome == "judge":
        return {"verifier": JUDGE, "options": dict(PLACEHOLDERS)}
    tree: Tree = {"verifier": feedback.verifier} if feedback.verifier is not None else {}
    return tree | ({"options": feedback.options} if feedback.options else {})


def _signals(answers: Questionnaire, method: str) -> Tree:
    """The process signal as a potential, where it is named and the estimator can be paid one."""
    feedback = answers.feedback
    named = feedback.process == "checkable" and feedback.process_signal is not None
    if not named or not _shaped(method):
        return {}
    return {"process": {"progress": {"signal": feedback.process_signal, "paid": "potential"}}}


def _shaped(method: str) -> bool:
    """Whether a potential changes what the method credits."""
    rule = ESTIMATORS[METHODS[method].values()["credit.estimator"]]
    return "shaping" in (*rule.required, *rule.optional)


def _left_out(answers: Questionnaire, step: Step, facts: Facts) -> list[str]:
    """Answers that the recipe of ``step`` does not carry, and what to add."""
    if step.kind != "rl":
        return []
    method, feedback, found = step.method, answers.feedback, []
    if judged(answers).get("verifier") == JUDGE and feedback.verifier is None:
        found.append(
            f"{method}: feedback.options.url and model are placeholders: give a server that speaks "
            "OpenAI's chat completions, and a model that is not the one that evaluates "
            "(docs/verifiers.md), or another verifier"
        )
    if feedback.process == "checkable" and not _shaped(method):
        found.append(
            f"{method}: feedback.process: checkable is not in the recipe: a potential adds the "
            f"same to all attempts at a task, and {method} compares whole episodes; a method with "
            "a critic can be paid one (method: ppo, feedback.process, docs/process-signals.md)"
        )
    elif feedback.process == "checkable" and feedback.process_signal is None:
        found.append(
            f"{method}: feedback.process: checkable is not in the recipe: no signal is named; add "
            "feedback.process: {progress: {signal: package.module:object, paid: potential}}, or "
            "answer feedback.process_signal (docs/process-signals.md)"
        )
    unit, critic = facts["action.unit"], METHODS[method].assumptions.critic
    if unit != "token" and (not critic or unit == "episode"):
        why = "one token is its step" if critic else "it has no critic to whose clock it would be"
        found.append(f"{method}: action.unit: {unit} changes nothing here: {why}")
    return found


def _several(facts: Facts) -> bool:
    return bool(facts["critic.candidates"] == "cheap" and not facts.flat)


def _batch(grouped: bool) -> Tree:
    if grouped:
        return {"groups": GROUPS, "group_size": GROUP_SIZE}
    return {"groups": SINGLES, "group_size": 1}
