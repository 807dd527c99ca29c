"""What is offered as a simple rival can be planned as it is, whatever the base and the budget."""

import re
import shutil
from pathlib import Path

import pytest

from hexad.contract.faults import UserError
from hexad.recipe.load import load
from hexad.recipe.staged import Staged
from hexad.recipe.study import plan

ROOT = Path(__file__).parents[2]
BUDGETS = {"episodes": 71680, "rollout_tokens": 250000, "train_tokens": 90000, "tool_calls": 9000}
RIVALS = ("random", "sft", "rejection", "best_of_n", "synchronous", "monte_carlo")


def online(path):
    recipe = load(path)
    return not isinstance(recipe, Staged) and recipe.data.regime == "online"


BASES = [path for path in sorted((ROOT / "recipes").glob("calculator*.yaml")) if online(path)]


@pytest.fixture
def study(tmp_path):
    """A plan of a study of a base, a budget and more lines."""

    def make(base, budget, more=""):
        text = f"name: x\nrecipe: {base}\nbudget: {budget}\nseeds: [1]\nmargin: 0.02\n{more}"
        (tmp_path / "study.yaml").write_text(text)
        return plan(tmp_path / "study.yaml")

    return make


def test_the_shipped_bases_are_all_there():
    assert len(BASES) >= 9


@pytest.mark.parametrize("base", BASES, ids=lambda path: path.stem)
def test_every_rival_of_a_shipped_base_is_planned_or_said_to_be_none(study, base):
    """The product of shipped online bases, rivals and budgets."""
    counted = [(f"{{{key}: {size}}}", "") for key, size in BUDGETS.items()]
    clock = ("{seconds: 60}", "set: {update.optimizer.schedule: constant}\n")
    for budget, more in (*counted, clock):
        found = {offer.name: offer for offer in study(base, budget, more).offered}
        assert tuple(found) == RIVALS
        apart = load(base).timing.mode == "asynchronous"
        assert (found["synchronous"].state == "offered") == apart
        taken = [name for name in RIVALS if name != "synchronous"]
        assert [found[name].state for name in taken] == ["offered"] * 5, (budget, found)
    chosen = study(base, "{rollout_tokens: 250000}", f"falsify: {{{': {}, '.join(taken)}: {{}}}}\n")
    assert [arm.name for arm in chosen.arms] == ["base", *taken]
    assert {offer.state for offer in chosen.offered if offer.name in taken} == {"in the study"}


def test_a_rival_keeps_task_policy_batch_and_optimiser_and_nothing_of_the_method(study):
    arms = {
        arm.name: arm.recipe(1)
        for arm in study(
            ROOT / "recipes" / "calculator-shaped.yaml",
            "{rollout_tokens: 1000}",
            "falsify: {sft: {}, best_of_n: {}, monte_carlo: {}}\n",
        ).arms
    }
    base = arms.pop("base")
    for recipe in arms.values():
        assert recipe.task == base.task and recipe.policy == base.policy
        assert recipe.critic is None and recipe.feedback.process == {}
        assert recipe.update.optimizer.lr == base.update.optimizer.lr
    assert (base.critic, base.credit.clock) != (None, "token")
    best, plain = arms["best_of_n"], arms["monte_carlo"]
    assert (plain.data.groups, plain.data.group_size) == (256, 1)
    # As many episodes a round as the base has in a batch, in groups to choose from.
    assert (best.data.groups, best.data.group_size, best.data.rounds.tasks) == (64, 4, 64)
    assert best.data.rounds.rounds == 1000 and best.update.optimizer.schedule == "constant"


def test_imitation_under_a_budget_of_samples_gets_as_many_train_tokens(study):
    base = ROOT / "recipes" / "calculator-grpo.yaml"
    budget = "{rollout_tokens: 1000}"
    arm = study(base, budget, "falsify: {sft: {}}\n").arms[-1]
    assert arm.recipe(1).budget.model_dump(exclude_none=True) == {"train_tokens": 1000}
    assert not arm.matched
    own = "falsify: {sft: {set: {data.groups: 8}, budget: {train_tokens: 500}}}\n"
    arm = study(base, budget, own).arms[-1]
    assert arm.recipe(1).budget.train_tokens == 500 and arm.recipe(1).data.groups == 8
    assert study(base, "{episodes: 1000}", "falsify: {sft: {}}\n").arms[-1].matched


def test_a_rival_takes_what_it_changes_alone_or_as_an_arm_does(study):
    base, budget = ROOT / "recipes" / "calculator-grpo.yaml", "{train_tokens: 1000}"
    short = study(base, budget, "falsify: {monte_carlo: {data.groups: 8}}\n").arms[-1]
    long = study(base, budget, "falsify: {monte_carlo: {set: {data.groups: 8}}}\n").arms[-1]
    assert short == long and short.recipe(1).data.groups == 8
    with pytest.raises(UserError, match=r"falsify\.monte_carlo\.recipe: unknown key"):
        study(base, budget, "falsify: {monte_carlo: {set: {}, recipe: x.yaml}}\n")


def test_what_cannot_be_planned_is_not_offered_and_says_what_to_write(study):
    base = ROOT / "recipes" / "calculator-grpo.yaml"
    found = {o.name: o for o in study(base, "{episodes: 256}").offered}
    assert found["rejection"].state == "not available"
    assert "the first round's samples use it up" in found["rejection"].reason
    assert "under falsify.rejection: use budget.train_tokens" in found["rejection"].reason
    written = "falsify: {rejection: {budget: {train_tokens: 9000}}}\n"
    assert not study(base, "{episodes: 256}", written).arms[-1].matched
    tuned = "tuning: {seed: 9, trials: [{update.clip_high: 0.3}]}\n"
    found = {o.name: o for o in study(base, "{episodes: 4096}", tuned).offered}
    assert "has no effect with update.surrogate: nll" in found["sft"].reason
    own = "falsify: {sft: {trials: [{update.epochs: 2}]}}\n"
    assert study(base, "{episodes: 4096}", tuned + own).arms[-1].trials == ({"update.epochs": 2},)


def test_random_is_a_fresh_policy_that_is_never_trained(study):
    base = ROOT / "recipes" / "calculator-grpo.yaml"
    tuned = "tuning: {seed: 9, trials: [{update.epochs: 2}]}\n"
    arm = study(base, "{episodes: 4096}", tuned + "falsify: {random: {}}\n").arms[-1]
    recipe = arm.recipe(1)
    assert recipe.policy.model == "builtin:tiny" and not arm.matched and arm.trials == ()
    assert recipe.run.evaluation.until.success == 0.0
    own = "arms: {start: {train: false}}\n"
    start = study(base, "{episodes: 4096}", own).arms[-1].recipe(1)
    assert start.policy == load(base).policy and start.run.evaluation.until.success == 0.0


def test_the_study_that_the_documentation_prints_can_be_planned(tmp_path):
    page = (ROOT / "docs" / "compare.md").read_text()
    block = re.search(r"## A study file\n\n((?:    .*\n)+)", page)[1]
    for path in (ROOT / "recipes").glob("*.yaml"):
        shutil.copy(path, tmp_path)
    (tmp_path / "printed.yaml").write_text(re.sub("^    ", "", block, flags=re.MULTILINE))
    found = plan(tmp_path / "printed.yaml")
    assert {"rejection", "monte_carlo"} <= {arm.name for arm in found.arms}
