"""Answers compose: whatever is answered gives a valid recipe or a reasoned refusal.

The whole product has more than 10^9 members. Covered in full: every answer that decides which
stages there are, and every answer that decides baseline and timing; and of all answers together
every combination of three, by a random design whose coverage is counted.
"""

import itertools
import json
import random

import advice_world as world
import numpy as np
import pytest

from hexad.advice import draft
from hexad.advice.advise import advise
from hexad.advice.agreement import judge
from hexad.advice.measured import Measured, Qualified
from hexad.advice.questions import Agreement, Questionnaire
from hexad.advice.read import recipe_text, write
from hexad.recipe.load import build, load
from hexad.recipe.methods import METHODS
from hexad.recipe.read import Document
from hexad.recipe.staged import Staged

STAGES = {
    "feedback.goal": ("outcome", "subjective", "both"),
    "feedback.demonstrations": ("none", "few", "rich"),
    "feedback.protocol": ("learned", "unlearned"),
    "feedback.preferences": ("none", "stable"),
    "feedback.outcome": ("none", "judge", "exact"),
    "feedback.agreement": (None, world.PASSED, world.FEW, world.FAILED),
    "data.collection": ("fixed", "rounds", "continuous"),
    "data.irreversible": (False, True),
    "data.sandbox": (False, True),
}
SAMPLING = {
    "data.collection": ("rounds", "continuous"),
    "action.overflow": (False, True),
    "credit.reward": ("end", "steps", "transitions"),
    "credit.horizon": ("short", "long"),
    "credit.scale": ("same", "varied"),
    "critic.candidates": ("cheap", "single"),
    "critic.value": ("learnable", "unknown", "poor"),
    "measured.groups": (None, world.CONTRAST, world.SOLVED, world.FLAT),
    "measured.explained_variance": (None, -0.1, 0.5),
    "measured.profile": (None, world.GAIN, world.NO_GAIN),
}
REST = {
    "feedback.process": ("none", "learned", "checkable"),
    "feedback.process_signal": (None, "remaining_operations"),
    "feedback.verifier": (None, "numeric"),
    "feedback.demonstrations_from": ("expert", "recorded"),
    "feedback.pairs_from": (None, "recorded"),
    "data.trials": ("cheap", "costly"),
    "action.unit": ("token", "span", "turn", "tool_call", "episode"),
    "action.weight": ("published", "token", "response", "prompt", "episode"),
    "timing.durations": ("similar", "heavy_tailed"),
    "timing.learner": ("busy", "idle"),
    "measured.success": (None, 0.0, 0.5),
    "measured.faulted": (None, 0.01, 0.2),
    "measured.qualified": tuple(
        tuple(Qualified(Agreement(**counts), source) for source, counts in found.items())
        for found in (
            {},
            {"check": world.PASSED},
            {"check": world.PASSED, "check, labels x.jsonl": world.FAILED},
            {"audit.json": world.FAILED},
            {"check, labels x.jsonl": world.FEW},
        )
    ),
}
ALL = {**SAMPLING, **STAGES, **REST}
DESIGN = 4000
READY = {"feedback.outcome": "exact", "feedback.agreement": world.PASSED}


@pytest.fixture(scope="module", autouse=True)
def _validate_each_recipe_once():
    real, seen = draft._validate, set()

    def once(tree, source):
        key = json.dumps(tree, sort_keys=True)
        if key not in seen:
            real(tree, source)
            seen.add(key)

    draft._validate = once
    yield seen
    draft._validate = real


def advised(values):
    tree, measured = {}, {}
    for key, value in values.items():
        axis, name = key.split(".")
        if axis == "measured":
            measured[name] = world.number(value) if isinstance(value, float) else value
        else:
            tree.setdefault(axis, {})[name] = value
    answers = Questionnaire.model_validate(tree)
    return advise(answers, Measured(**measured), world.SOURCE)


def product(space, **fixed):
    for values in itertools.product(*space.values()):
        yield {**fixed, **dict(zip(space, values, strict=True))}


def stages(tree):
    if tree is None:
        return []
    return [stage["recipe"] for stage in tree["stages"]] if "stages" in tree else [tree]


def verified(values):
    """Whether the verifier agrees: one that was measured to fail does not, whatever was stated."""
    states = [judge(each.agreement).state for each in values.get("measured.qualified", ())]
    if "failed" in states:
        return False
    return "passed" in states or values["feedback.agreement"] == world.PASSED


def carried(values, step, advice):
    """Every answer on feedback is in the recipe of an online stage, or the output says why not."""
    tree = next(t for t in stages(advice.draft.tree) if t["method"] == step.method)
    feedback, said = tree.get("feedback", {}), " ".join(advice.draft.remarks)
    judged = values["feedback.outcome"] == "judge"
    named = values.get("feedback.verifier")
    assert feedback.get("verifier") == (named or ("llm_judge" if judged else None))
    assert ("placeholders" in said) == (judged and named is None)
    process = values.get("feedback.process") == "checkable"
    assert ("process" in feedback) + ("checkable is not in the recipe" in said) == process


def check(values, advice):
    """What must hold for every task."""
    online = [s for s in advice.path.steps if s.kind == "rl"]
    planned = online + [s for s in advice.path.later if s.kind == "rl"]
    assert (advice.draft.tree is None) == bool(advice.refusals)
    assert all(step.reasons for step in advice.path.steps)
    assert bool(advice.path.later) <= bool(advice.path.first)
    assert len(advice.steps) == 8
    if values.get("data.irreversible"):
        assert not planned
    if values.get("data.irreversible") and not values.get("data.sandbox") and advice.draft.tree:
        assert advice.draft.tree["run"]["evaluation"]["every"] is None
    for tree in stages(advice.draft.tree):
        assert tree["method"] != "dpo" or tree["data"]["regime"] == "fixed"
    if "stages" in (advice.draft.tree or {}):
        assert values["feedback.outcome"] != "none" and values["data.collection"] != "fixed"
    if (values.get("measured.faulted") or 0.0) > 0.05:
        assert any("20.0% of the episodes fault" in text for text in advice.companions)
    for step in online:
        assert verified(values) and values["feedback.outcome"] != "none"
        if step.method not in advice.draft.missing and "dpo" not in advice.draft.missing:
            carried(values, step, advice)
    for step in planned:
        record = METHODS[step.method]
        assert record.assumptions.min_group_size < 2 or values["critic.candidates"] == "cheap"
        if record.assumptions.tolerates_lag:
            assert values["measured.profile"] is world.GAIN
    starts = {"sft", "dpo", "ppo", "rloo", "grpo", "critic-async"}
    others = [each.key for each in advice.alternatives]
    assert len(set(others)) == len(others) and set(others) <= starts
    assert all(each.because for each in advice.alternatives)
    assert all(bool(each.broken) == (each.verdict == "rejected") for each in advice.alternatives)


def test_every_answer_that_decides_the_stages():
    seen = set()
    for values in product(STAGES):
        values = {"critic.candidates": "cheap", "measured.profile": None, **values}
        advice = advised(values)
        check(values, advice)
        seen.add(tuple(step.method for step in advice.path.steps))
    expected = {(), ("sft",), ("dpo",), ("rloo",), ("sft", "dpo"), ("sft", "rloo")}
    assert seen == expected | {("dpo", "rloo"), ("sft", "dpo", "rloo")}


def test_every_answer_that_decides_baseline_and_timing():
    seen = set()
    for values in product(SAMPLING, **READY):
        advice = advised(values)
        check(values, advice)
        seen |= {step.method for step in advice.path.steps}
    assert seen >= {"rloo", "grpo", "ppo", "reinforce", "sao", "areal"}


def test_every_three_answers_together(_validate_each_recipe_once, tmp_path):
    """The recipe of every tenth of them is written out and loaded, as a dry run loads it."""
    rng = random.Random(20)
    rows = [{key: rng.choice(values) for key, values in ALL.items()} for _ in range(DESIGN)]
    loaded = 0
    for number, values in enumerate(rows):
        advice = advised(values)
        check(values, advice)
        if number % 10 == 0 and advice.draft.tree is not None:
            write(advice, tmp_path / f"{number}.yaml")
            assert load(tmp_path / f"{number}.yaml") == build(
                Document(tmp_path, advice.draft.tree, {})
            )
            loaded += 1
    assert covered(rows) and loaded > 50
    assert len(_validate_each_recipe_once) > 50  # recipes that differ


def covered(rows):
    """Whether every combination of values of every three answers is in ``rows``."""
    sizes = [len(values) for values in ALL.values()]
    codes = np.array([[list(v).index(row[k]) for k, v in ALL.items()] for row in rows])
    for a, b, c in itertools.combinations(range(len(sizes)), 3):
        mixed = (codes[:, a] * sizes[b] + codes[:, b]) * sizes[c] + codes[:, c]
        if len(np.unique(mixed)) < sizes[a] * sizes[b] * sizes[c]:
            return False
    return True


def test_the_recipe_is_what_the_text_loads_to(tmp_path):
    advice = world.ask({"feedback": {"demonstrations": "rich", "protocol": "unlearned"}})
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_text(advice), encoding="utf-8")
    loaded = load(path)
    assert isinstance(loaded, Staged)
    assert loaded == build(Document(path, advice.draft.tree, {}))
