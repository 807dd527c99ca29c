import pytest

from hexad.contract.faults import UserError
from hexad.recipe.load import load
from hexad.recipe.validate import validate

HEADS = {
    "grpo": "method: grpo\nbudget: {episodes: 64}\n",
    "rloo": "method: rloo\nbudget: {episodes: 64}\n",
    "dr_grpo": "method: dr_grpo\naction: {length: 64}\nbudget: {episodes: 64}\n",
    "reinforce": "method: reinforce\nbudget: {episodes: 64}\n",
    "sft": "method: sft\nbudget: {episodes: 64}\n",
}
CASES = [
    ("rloo", ["data.group_size=1"], "data.group_size"),
    ("grpo", ["data.group_size=1"], "data.group_size"),
    ("dr_grpo", ["data.group_size=1"], "data.group_size"),
    ("grpo", ["policy.sampling.temperature=0"], "policy.sampling.temperature"),
    ("grpo", ["policy.sampling.top_k=5"], "policy.sampling.top_k"),
    ("grpo", ["policy.sampling.top_p=0.9"], "policy.sampling.top_p"),
    ("grpo", ["policy.sampling.min_p=0.1"], "policy.sampling.min_p"),
    ("grpo", ["update.surrogate=nll"], "update.surrogate"),
    ("sft", ["update.surrogate=plain"], "feedback.source"),
    ("sft", ["feedback.source=verifier"], "update.surrogate"),
    ("sft", ["credit.estimator=rloo"], "credit.estimator"),
    ("grpo", ["credit.estimator=none"], "credit.estimator"),
    ("rloo", ["update.surrogate=clip"], "update.clip_low"),
    ("rloo", ["update.clip_low=0.2"], "update.clip_low"),
    ("rloo", ["credit.std=sample"], "credit.std"),
    ("rloo", ["credit.threshold=0.1"], "credit.threshold"),
    ("rloo", ["credit.baseline=batch"], "credit.baseline"),
    ("grpo", ["credit.estimator=reinforce"], "credit.baseline"),
    ("rloo", ["credit.estimator=grpo"], "credit.std"),
    ("grpo", ["action.denominator=fixed"], "action.length"),
    ("grpo", ["action.length=9"], "action.length"),
    ("grpo", ["action.denominator=prompt"], "action.inner"),
    ("grpo", ["action.inner=token"], "action.inner"),
    ("grpo", ["budget.episodes=null"], "budget"),
    ("grpo", ["budget={seconds: 60}"], "update.optimizer.schedule"),
    ("sft", ["budget.rollout_tokens=60"], "budget.rollout_tokens"),
    ("sft", ["data.regime=online"], "data.regime"),
    ("grpo", ["data.regime=fixed"], "data.regime"),
    ("sft", ["data.origin=policy"], "data.origin"),
    ("grpo", ["data.origin=expert"], "data.origin"),
    ("grpo", ["data.size=100"], "data.size"),
    ("sft", ["data.group_size=4"], "data.group_size"),
    ("grpo", ["data.groups=4", "update.minibatches=5"], "update.minibatches"),
    ("grpo", ["credit.gamma=0.99"], "credit.gamma"),
    ("grpo", ["run.evaluation.until={success: 1}", "run.evaluation.every=null"], None),
    ("grpo", ["run.evaluation.tasks=300"], "run.evaluation.tasks"),
    ("grpo", ["task.hidden.count=null"], "task.hidden.count"),
    ("grpo", ["update.optimizer.betas=[0.9, 1.0]"], "update.optimizer.betas"),
    ("sft", ["update.target_kl=0.1"], "update.target_kl"),
    ("sft", ["feedback.weights={task: 2}"], "feedback.weights"),
    ("grpo", ["update.optimizer.schedule=constant", "update.optimizer.floor=0.5"], None),
]


@pytest.mark.parametrize(("method", "overrides", "key"), CASES)
def test_impossible_combinations_name_the_key_the_reason_and_a_way_out(
    tmp_path, method, overrides, key
):
    path = tmp_path / "r.yaml"
    path.write_text(HEADS[method])
    with pytest.raises(UserError) as caught:
        load(path, overrides)
    error = caught.value
    named = [line.split(":")[1 if "also" in line else 0].strip() for line in error.what.split("\n")]
    assert (key or overrides[-1 if "floor" in overrides[-1] else 0].split("=")[0]) in named
    assert error.fix and error.where


@pytest.mark.parametrize("method", HEADS)
def test_every_preset_is_valid_as_it_comes(tmp_path, method):
    path = tmp_path / "r.yaml"
    path.write_text(HEADS[method])
    validate(load(path))


def test_dr_grpo_demands_a_declared_length(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("method: dr_grpo\nbudget: {episodes: 64}\n")
    with pytest.raises(UserError, match="length") as caught:
        load(path)
    assert "512" in caught.value.fix


@pytest.mark.parametrize(
    ("method", "overrides"),
    [
        ("rloo", ["update.epochs=2", "update.minibatches=4"]),
        ("rloo", ["update={surrogate: clip, clip_low: 0.2, clip_high: 0.3}"]),
        ("reinforce", ["data.group_size=1", "credit.baseline=none"]),
        ("grpo", ["action={denominator: prompt, inner: token}"]),
        ("grpo", ["budget={seconds: 60}", "update.optimizer.schedule=constant"]),
        ("sft", ["data.origin=runs/other/episodes", "data.size=50"]),
    ],
)
def test_sound_departures_from_a_preset_are_accepted(tmp_path, method, overrides):
    path = tmp_path / "r.yaml"
    path.write_text(HEADS[method])
    load(path, overrides)
