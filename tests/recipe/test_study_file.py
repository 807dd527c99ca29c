"""A study file is refused before anything is run, with the reason and the way out."""

from pathlib import Path

import pytest

from hexad.contract.faults import UserError
from hexad.recipe.load import load
from hexad.recipe.study import plan

RECIPE = """
method: grpo
policy: {model: "builtin:tiny"}
data: {groups: 4, group_size: 4}
update: {optimizer: {schedule: constant}}
budget: {episodes: 64}
"""
STUDY = """
name: methods
recipe: base.yaml
arms:
  rloo: {set: {method: rloo, action.length: 64}}
budget: {train_tokens: 5000}
seeds: [1, 2, 3]
margin: 0.02
"""


@pytest.fixture
def planned(tmp_path):
    (tmp_path / "base.yaml").write_text(RECIPE)

    def make(text=STUDY):
        (tmp_path / "study.yaml").write_text(text)
        return plan(tmp_path / "study.yaml")

    return make


def test_every_arm_has_the_study_budget_and_nothing_else(planned):
    base, rloo = planned().arms
    for arm in (base, rloo):
        recipe = arm.recipe(seed=2)
        assert recipe.budget.model_dump(exclude_none=True) == {"train_tokens": 5000}
        assert recipe.run.seed == 2 and recipe.name == arm.name
        evaluation = recipe.run.evaluation
        assert (evaluation.points, evaluation.every, evaluation.final) == (4, None, "none")
    assert (base.recipe(1).method, rloo.recipe(1).method) == ("grpo", "rloo")
    assert planned().budget == ("train_tokens", 5000.0)


def test_a_grid_moves_one_key_an_arm(planned):
    found = planned(STUDY + "grid: {update.clip_high: [0.28, 0.4], update.epochs: [2]}\n")
    assert [a.name for a in found.arms[2:]] == [
        "update.clip_high=0.28",
        "update.clip_high=0.4",
        "update.epochs=2",
    ]
    base, last = found.arms[0].recipe(1).update, found.arms[-1].recipe(1).update
    assert last == base.model_copy(update={"epochs": 2})


def test_an_arm_may_be_a_recipe_of_its_own(planned, tmp_path):
    (tmp_path / "other.yaml").write_text(RECIPE.replace("grpo", "dapo"))
    text = STUDY.replace("{set: {method: rloo, action.length: 64}}", "{recipe: other.yaml}")
    found = planned(text)
    assert found.arms[1].recipe(1).method == "dapo"


def test_tuned_settings_win_over_the_arm(planned):
    _, rloo = planned().arms
    assert rloo.recipe(1, {"action.length": 32}).action.length == 32


def test_rivals_that_exist_become_arms_and_the_others_say_why_not(planned):
    more = "falsify: {sft: {}, rejection: {}, best_of_n: {}, monte_carlo: {data.groups: 8}}\n"
    found = planned(STUDY + more)
    arms = {arm.name: arm.recipe(1) for arm in found.arms}
    assert arms["sft"].method == "sft" and arms["best_of_n"].data.rounds.keep == "best"
    assert arms["monte_carlo"].method == "reinforce" and arms["monte_carlo"].data.groups == 8
    offers = {offer.name: (offer.state, offer.reason) for offer in found.offered}
    assert [offers[n][0] for n in ("sft", "rejection", "monte_carlo")] == ["in the study"] * 3
    assert offers["synchronous"] == ("not available", "the base is synchronous already")
    assert offers["random"] == ("offered", "")
    assert {o.name: o.state for o in planned().offered}["sft"] == "offered"


def test_a_synchronous_rival_of_an_asynchronous_base(planned, tmp_path):
    text = STUDY.replace("base.yaml", "sao.yaml").replace("method: rloo, action.length: 64", "")
    (tmp_path / "sao.yaml").write_text(
        "method: sao\npolicy: {model: 'builtin:tiny'}\nbudget: {episodes: 64}\n"
    )
    found = planned(text + "falsify: {synchronous: {}}\n")
    assert found.arms[0].recipe(1).timing.mode == "asynchronous"
    assert found.arms[-1].recipe(1).timing.mode == "synchronous"


def test_an_arm_that_imitates_under_a_budget_of_samples_needs_its_own(planned):
    text = STUDY.replace("train_tokens", "rollout_tokens")
    own = "{set: {method: sft, data.group_size: 1}, budget: {train_tokens: 5000}}"
    arm = planned(text.replace("{set: {method: rloo, action.length: 64}}", own)).arms[1]
    assert not arm.matched and arm.recipe(1).budget.rollout_tokens is None
    with pytest.raises(UserError, match="fixed data samples no tokens"):
        planned(text.replace("method: rloo, action.length: 64", "method: sft, data.group_size: 1"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("train_tokens: 5000", "optimizer_steps: 5", "optimiser steps are no budget"),
        ("train_tokens: 5000", "updates: 5", "optimiser steps are no budget"),
        ("train_tokens: 5000", "train_tokens: 5, episodes: 5", "exactly one budget, not 2"),
        ("{train_tokens: 5000}", "{}", "exactly one budget, not 0"),
        ("[1, 2, 3]", "[1, 1]", "named twice"),
        ("[1, 2, 3]", "[]", "seeds"),
        ("margin: 0.02", "margin: 0", "margin"),
        ("margin: 0.02", "margin: 0.02\nmetric: reward", "no metric 'reward'"),
        ("margin: 0.02", "margin: 0.02\nmetric: pass@4\nattempts: 2", "needs 4 attempts"),
        ("margin: 0.02", "margin: 0.02\nseed: 1", "did you mean seeds?"),
        ("margin: 0.02", "margin: 0.02\ntuning: {seed: 2}", "chooses? on a seed"),
        ("margin: 0.02", "margin: 0.02\nfalsify: {luck: {}}", "no rival 'luck'"),
        ("margin: 0.02", "margin: 0.02\nfalsify: {sft: {trials: [{}]}}", "trials without a seed"),
        ("rloo:", "base:", "two arms are named 'base'"),
        ("rloo:", "'r/loo':", "cannot name a folder"),
        ("action.length: 64", "run.seed: 4", "the study's to decide"),
        ("action.length: 64", "budget.episodes: 4", "the study's to decide"),
        ("action.length: 64", "action.lenght: 64", "did you mean action.length"),
        ("action.length: 64}", "action.length: 64}, trials: [{}]", "trials without a seed"),
    ],
)
def test_mistakes_are_told(planned, old, new, said):
    assert old in STUDY
    with pytest.raises(UserError, match=said):
        planned(STUDY.replace(old, new))


def test_every_arm_has_as_many_trials(planned):
    text = STUDY.replace("action.length: 64}", "action.length: 64}, trials: [{}]")
    with pytest.raises(UserError, match="1 tuning trials, the base 2"):
        planned(text + "tuning: {seed: 9, trials: [{}, {update.epochs: 2}]}\n")
    fine = planned(text + "tuning: {seed: 9, trials: [{update.epochs: 2}]}\n")
    assert [len(arm.trials) for arm in fine.arms] == [1, 1]


def test_a_staged_path_is_no_arm(planned, tmp_path):
    (tmp_path / "base.yaml").write_text(f"stages: [{{recipe: {{{', '.join(_inline())}}}}}]\n")
    with pytest.raises(UserError, match="not a staged path"):
        planned(STUDY.replace("{set: {method: rloo, action.length: 64}}", "{}"))


def _inline():
    return ["method: grpo", "policy: {model: 'builtin:tiny'}", "budget: {episodes: 64}"]


def test_points_and_every_are_not_both(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE + "run: {evaluation: {points: 4}}\n")
    with pytest.raises(UserError, match="not both"):
        load(path)
    assert load(path, ["run.evaluation.every=null"]).run.evaluation.points == 4


@pytest.mark.parametrize(
    "name",
    ["recipes/feedback-study.yaml", "recipes/online-study.yaml", "examples/first-study.yaml"],
)
def test_the_studies_of_this_repository_can_be_run(name):
    """Every arm is a valid recipe at the study's budget, with every setting that is tried."""
    found = plan(Path(__file__).parents[2] / name)
    assert len(found.arms) >= 2 and all(arm.recipe(1).run.seed == 1 for arm in found.arms)
