"""What a preference recipe must say, and what it must not."""

import pytest

from hexad.contract.faults import UserError
from hexad.recipe.legal import PREFERENCES
from hexad.recipe.load import load

METHODS = [name for name, rule in PREFERENCES.items() if not rule.head] + ["reward_model"]
BUDGET = "budget: {train_tokens: 1000}\n"
CASES = [
    ("dpo", ["update.preference=null"], "update.preference"),
    ("grpo", ["update.preference={beta: 0.1, reduction: sum}"], "update.preference"),
    ("dpo", ["feedback.source=verifier"], "feedback.source"),
    ("grpo", ["feedback.source=preferences"], "feedback.source"),
    ("dpo", ["credit={estimator: rloo, truncation: score}"], "credit.estimator"),
    ("dpo", ["critic={}"], "critic"),
    ("dpo", ["update.kl={estimator: k2, placement: loss, coefficient: 0.1}"], "update.kl"),
    ("dpo", ["update.target_kl=0.1"], "update.target_kl"),
    ("dpo", ["update.preference.gamma=1.0"], "update.preference.gamma"),
    ("simpo", ["update.preference.gamma=null"], "update.preference.gamma"),
    ("ipo", ["update.preference.smoothing=0.1"], "update.preference.smoothing"),
    ("simpo", ["update.preference.reduction=sum"], "update.preference.reduction"),
    ("kto", ["update.preference.reduction=mean"], "update.preference.reduction"),
    ("kto", ["update.preference.nll=1.0"], "update.preference.nll"),
    ("ipo", ["update.preference.excess=0.5"], "update.preference.excess"),
    ("ipo", ["update.preference.decay=0.5"], "update.preference.decay"),
    ("reward_model", ["update.preference={beta: 0.1, reduction: sum}"], "update.preference"),
    ("reward_model", ["action.denominator=token"], "action.denominator"),
    ("reward_model", ["feedback.source=verifier"], "feedback.source"),
    ("reward_model", ["data.pairs={rule: labels}"], "data.pairs.rule"),
    ("dpo", ["action.denominator=episode"], "action.denominator"),
    ("kto", ["action.denominator=pair"], "action.denominator"),
    ("rloo", ["action.denominator=pair"], "action.denominator"),
    ("dpo", ["data.rounds=null"], "data.rounds"),
    ("grpo", ["data.rounds={tasks: 8}"], "data.rounds"),
    ("dpo", ["data.rounds.rounds=2"], "data.rounds.passes"),
    ("dpo", ["data.rounds.keep=best"], "data.rounds.keep"),
    ("dpo", ["data.rounds={rounds: 2, passes: 3}"], "data.rounds.reference"),
    ("dpo", ["data.rounds.reference=initial"], "data.rounds.reference"),
    ("simpo", ["data.rounds={rounds: 2, passes: 3, reference: initial}"], "data.rounds.reference"),
    ("rejection", ["data.rounds.reference=round_start"], "data.rounds.reference"),
    ("rejection", ["data.rounds.keep=null"], "data.rounds.keep"),
    ("rloo", ["action.length=9", "data.regime=iterative", "data.rounds={tasks: 8}"], "data.regime"),
    ("dpo", ["data.regime=online", "data.rounds=null"], "data.regime"),
    ("dpo", ["data.origin=expert"], "data.origin"),
    ("dpo", ["data.pairs=null"], "data.pairs"),
    ("grpo", ["data.pairs={rule: labels}"], "data.pairs"),
    ("dpo", ["data.pairs={rule: labels}"], "data.pairs.rule"),
    ("kto", ["data.pairs={rule: reward_gap, gap: 0.5}"], "data.pairs.rule"),
    ("dpo", ["data.pairs.gap=null"], "data.pairs.gap"),
    ("dpo", ["data.pairs={rule: shortest_correct, gap: 0.5}"], "data.pairs.gap"),
    ("dpo", ["data.pairs={rule: branch, gap: null}"], "data.pairs.gap"),
    ("dpo", ["data.rounds.forks=2"], "data.rounds.forks"),
    ("rejection", ["data.rounds.forks=2"], "data.rounds.forks"),
    ("kto", ["data.pairs={rule: branch, gap: 0.5}"], "data.pairs.rule"),
    ("kto", ["data.pairs.most=2"], "data.pairs.most"),
    ("dpo", ["data.group_size=1"], "data.group_size"),
    ("dpo", ["budget.episodes=2048"], "budget.episodes"),
    ("dpo", ["budget.rollout_tokens=2048"], "budget.rollout_tokens"),
    (
        "dpo",
        [
            "budget.rollout_tokens=2048",
            "budget.train_tokens=null",
            "data.rounds={rounds: 2, passes: 2, reference: initial}",
            "update.optimizer.schedule=linear",
        ],
        "update.optimizer.schedule",
    ),
    ("dpo", ["timing={mode: asynchronous, max_lag: 1}"], "timing.mode"),
]
GOOD = [
    ("dpo", ["update.preference={smoothing: 0.1, excess: 0.5, decay: 0.7, nll: 0.2}"]),
    ("dpo", ["update.preference.reduction=mean"]),
    ("dpo", ["data.pairs={rule: shortest_correct, gap: null}"]),
    ("ipo", ["data.pairs.rule=branch"]),
    ("dpo", ["data.pairs.rule=branch", "data.rounds.forks=2"]),
    ("reward_model", ["data.pairs={rule: branch, gap: 0.2}"]),
    ("dpo", ["data.rounds={rounds: 2, passes: 3, reference: initial}", "budget.episodes=9000"]),
    ("kto", ["data.rounds={rounds: 2, passes: 3, reference: round_start}"]),
    (
        "rejection",
        [
            "data.rounds={rounds: 2, passes: 3}",
            "budget.rollout_tokens=99999",
            "update.optimizer.schedule=constant",
        ],
    ),
    ("simpo", ["data.rounds={rounds: 2, passes: 3}"]),
    ("dpo", ["data={regime: fixed, origin: runs/x/episodes, rounds: null}"]),
    ("kto", ["update.preference={weight_desirable: 1.3, weight_undesirable: 0.7}"]),
    ("rejection", ["data.rounds.keep=best"]),
]


def written(folder, method):
    path = folder / "recipe.yaml"
    path.write_text(f"method: {method}\n{BUDGET}")
    return path


@pytest.mark.parametrize("name", [*METHODS, "rejection"])
def test_presets_are_valid(tmp_path, name):
    assert load(written(tmp_path, name)).method == name


@pytest.mark.parametrize(("name", "changes", "key"), CASES)
def test_what_does_not_fit_is_refused_by_its_key(tmp_path, name, changes, key):
    with pytest.raises(UserError) as caught:
        load(written(tmp_path, name), changes)
    named = [line.removeprefix("  also:  ") for line in caught.value.what.splitlines()]
    assert f"{key}:" in [line.split(" ")[0] for line in named], caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize(("name", "changes"), GOOD)
def test_declared_variants_are_valid(tmp_path, name, changes):
    load(written(tmp_path, name), changes)
