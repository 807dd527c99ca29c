import pytest

from hexad.contract.faults import UserError
from hexad.contract.sampling import Sampling
from hexad.recipe.legal import PREFERENCES
from hexad.recipe.load import load
from hexad.recipe.methods import METHODS
from hexad.recipe.validate import validate

STORED = ("dagger", "rejection", "reward_model", *PREFERENCES)
HEADS = {
    "grpo": "method: grpo\nbudget: {episodes: 64}\n",
    "rloo": "method: rloo\nbudget: {episodes: 64}\n",
    "dr_grpo": "method: dr_grpo\naction: {length: 64}\nbudget: {episodes: 64}\n",
    "reinforce": "method: reinforce\nbudget: {episodes: 64}\n",
    "sft": "method: sft\nbudget: {episodes: 64}\n",
    "awr": "method: awr\ndata: {origin: runs/x/episodes}\nbudget: {episodes: 64}\n",
    **{
        name: f"method: {name}\nbudget: {{{counted}: 64}}\n"
        for name in METHODS
        for counted in ("train_tokens" if name in STORED else "episodes",)
        if name not in ("grpo", "rloo", "dr_grpo", "reinforce", "sft", "awr")
    },
}
TRACKED = ["credit.tracker={low: 0.5, high: 0.96, half_life: 0.06}"]
TIS = "update.correction={ratio: engine, rule: tis, high: 2.0}"
TURNS = ["credit.estimator=turn_group", "credit.clock=turn", "credit.truncation=score"]
VINE = ["credit={estimator: vine, clock: turn, continuations: 9, truncation: score}"]
STEPS = ["credit.estimator=n_step", "credit.steps=4"]
CASES = [
    ("rloo", ["data.group_size=1"], "data.group_size"),
    ("grpo", ["data.group_size=1"], "data.group_size"),
    ("dr_grpo", ["data.group_size=1"], "data.group_size"),
    ("grpo", ["policy.sampling.temperature=0"], "policy.sampling.temperature"),
    ("grpo", ["policy.sampling.top_k=1"], "policy.sampling.top_k"),
    ("grpo", ["policy.sampling.top_k=4097"], "policy.sampling.top_k"),
    ("grpo", ["policy.sampling.top_p=0"], "policy.sampling.top_p"),
    ("grpo", ["policy.sampling.min_p=1"], "policy.sampling.min_p"),
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
    ("awr", ["data.origin=expert"], "data.advantage"),
    ("awr", ["data.advantage=null"], "data.regime"),
    ("awr", ["feedback.source=demonstrations"], "data.advantage"),
    ("grpo", ["data.advantage={beta: 0.5, cap: 2.0, baseline: data}"], "data.advantage"),
    ("dagger", ["feedback.source=verifier"], "feedback.source"),
    ("dagger", ["data.rounds.keep=correct"], "data.regime"),
    ("dagger", ["data.group_size=2"], "data.group_size"),
    ("grpo", ["data.held_out={path: x, format: jsonl}"], "data.held_out"),
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
    ("ppo", ["critic=null"], "critic"),
    ("ppo", ["credit.estimator=rloo", "critic=null"], "credit.truncation"),
    ("grpo", ["credit.truncation=null"], "credit.truncation"),
    ("grpo", ["credit.truncation=terminal"], "credit.truncation"),
    ("ppo", ["credit.truncation=score"], "credit.truncation"),
    ("gigpo", ["credit.truncation=null"], "credit.truncation"),
    ("grpo", ["critic={updates: 1}"], "critic"),
    ("ppo", ["credit.alpha=1.5"], "credit.lambda_policy"),
    ("ppo", ["credit.lambda_policy=null"], "credit.lambda_policy"),
    ("ppo", ["credit.lambda_critic=null"], "credit.lambda_critic"),
    ("ppo", ["credit.truncation=mask"], "credit.truncation"),
    ("ppo", ["critic.head=hl_gauss"], "critic.support"),
    ("ppo", ["critic.head=hl_gauss", "critic.support=[1.0, 0.0]"], "critic.support"),
    ("ppo", ["critic={head: hl_gauss, support: [0.0, 1.0], clip: 0.2}"], "critic.clip"),
    ("ppo", ["critic.bins=11"], "critic.bins"),
    ("ppo", ["critic={head: hl_gauss, support: [0.0, 1.0], bins: 5}"], "critic.bins"),
    ("ppo", ["critic={trunk: shared, updates: 2}"], "critic.updates"),
    ("ppo", ["critic={trunk: shared, rescore: true}"], "critic.rescore"),
    ("ppo", ["critic.coefficient=0.1"], "critic.coefficient"),
    ("ppo", ["data.groups=4", "critic.minibatches=5"], "critic.minibatches"),
    ("vapo", ["credit.alpha=null"], "credit.lambda_policy"),
    ("gigpo", ["data.group_size=1"], "data.group_size"),
    ("gigpo", ["credit.clock=token"], "credit.clock"),
    ("gigpo", ["credit.std=sample"], "credit.threshold"),
    ("gigpo", ["credit.omega=null"], "credit.omega"),
    ("grpo", ["credit.clock=turn"], "credit.clock"),
    ("grpo", ["credit.omega=1.0"], "credit.omega"),
    ("reinforce", ["credit.baseline=prompt_mean"], "credit.window"),
    ("reinforce", ["credit.window=8"], "credit.window"),
    ("reinforce", ["credit.baseline=beta"], "credit.tracker"),
    ("reinforce", ["credit.baseline=greedy", "data.dynamic={surplus: drop}"], "credit.baseline"),
    ("reinforce", ["credit.whiten=group", "data.group_size=1"], "credit.whiten"),
    ("reinforce_pp", ["credit.whiten=null"], "credit.whiten"),
    ("reinforce_pp", ["credit.baseline=group", "data.group_size=1"], "credit.baseline"),
    ("reinforce_pp", ["credit.baseline=beta", *TRACKED], "credit.baseline"),
    ("reinforce", ["credit.baseline=group", "data.group_size=2"], "credit.baseline"),
    ("gigpo", [*TURNS, "credit.clock=token"], "credit.clock"),
    ("gigpo", [*TURNS, "data.group_size=1"], "data.group_size"),
    ("gigpo", [*TURNS, "credit.std=sample"], "credit.threshold"),
    ("ppo", [*STEPS, "credit.steps=null"], "credit.steps"),
    ("ppo", [*STEPS, "credit.lambda_critic=1"], "credit.lambda_critic"),
    ("ppo", ["credit.steps=4"], "credit.steps"),
    ("reinforce", [*VINE, "credit.continuations=null"], "credit.continuations"),
    ("reinforce", [*VINE, "credit.clock=token"], "credit.clock"),
    ("reinforce", ["credit.continuations=9"], "credit.continuations"),
    ("reinforce", [*VINE, "data.dynamic={surplus: drop}"], "data.dynamic"),
    ("reinforce", [*VINE, "timing={mode: asynchronous, max_lag: 2}"], "timing.mode"),
    (
        "reinforce",
        [*VINE, "update.kl={estimator: k1, placement: reward, coefficient: 0.1}"],
        "update.kl.placement",
    ),
    ("grpo", ["action.forced=out"], "action.forced"),
    ("grpo", ["action.gated=out"], "action.gated"),
    ("grpo", ["action.gated=out", TIS], "action.gated"),
    ("impala", ["credit.rho_bar=0.5"], "credit.c_bar"),
    ("impala", ["credit.c_bar=null"], "credit.c_bar"),
    ("gspo", ["action.combine=null"], "action.combine"),
    ("grpo", ["action.combine=mean"], "action.combine"),
    ("cispo", ["action={ratio: turn, combine: sum}"], "action.ratio"),
    ("cispo", ["update.clip_high=null"], "update.clip_high"),
    ("grpo", ["update.clip_low=1.5"], "update.clip_low"),
    ("grpo", ["update.tau=0.1"], "update.tau"),
    ("cispo", ["update.dual=3.0"], "update.dual"),
    ("grpo", ["update={surrogate: sapo, tau: 1.0}"], "update.tau_negative"),
    ("grpo", ["update={surrogate: squared, tau: 0.1}"], "action.ratio"),
    (
        "gspo",
        ["update={surrogate: squared, tau: 0.1}", "action.denominator=token"],
        "action.denominator",
    ),
    ("sao", ["update.correction={ratio: engine, rule: tis, high: 2.0}"], "update.correction"),
    (
        "impala",
        ["update.correction={ratio: proximal, rule: tis, high: 2.0}"],
        "update.correction",
    ),
    ("impala", ["update={surrogate: dis, clip_low: 0.3, clip_high: 5.0}"], "update.surrogate"),
    ("grpo", ["update.correction={rule: icepop, high: 5.0}"], "update.correction.low"),
    ("grpo", ["update.correction={rule: tis, low: 0.5, high: 5.0}"], "update.correction.low"),
    ("grpo", ["update.correction={rule: icepop, low: 6.0, high: 5.0}"], "update.correction.low"),
    (
        "grpo",
        ["update.kl={estimator: k1, placement: loss, coefficient: 0.1}"],
        "update.kl.estimator",
    ),
    (
        "grpo",
        ["update.kl={estimator: k3, placement: reward, coefficient: 0.1}"],
        "update.kl.estimator",
    ),
    ("reinforce_pp", ["update.kl.weighted=graph"], "update.kl.weighted"),
    ("reinforce_pp", ["update.kl.target=0.1"], "update.kl.horizon"),
    ("sft", ["update.entropy=0.1"], "update.entropy"),
    ("sft", ["update.positive_nll=0.1"], "update.positive_nll"),
    ("grpo", ["update.decay=0.9"], "update.decay"),
    ("areal", ["update.old=ewma"], "update.decay"),
    ("ppo", ["update={old: ewma, decay: 0.9}"], "update.correction"),
    ("areal", ["update.old=interpolated", "update.correction.ratio=engine"], "update.correction"),
    ("areal", ["update.old=interpolated", "system.dtype=bfloat16"], "update.old"),
    ("areal", ["update.old=interpolated", "timing.max_lag=0"], "update.old"),
    ("grpo", ["update={old: snapshot, sampled: snapshot}"], "update.old"),
    ("grpo", ["update.sampled=snapshot"], "update.sampled"),
    ("areal", ["timing.max_lag=0", "update.sampled=snapshot"], "update.sampled"),
    ("areal", ["update={old: snapshot, correction: null}"], "update.sampled"),
    ("areal", ["update={old: snapshot, sampled: snapshot}"], "update.correction.ratio"),
    ("sao", ["update={old: snapshot, sampled: snapshot}"], "update.old"),
    ("sft", ["update={old: ewma, decay: 0.9}"], "update.old"),
    ("sft", ["update.sampled=none"], "update.sampled"),
    ("impala", ["update={old: snapshot, sampled: snapshot}"], "update.old"),
    (
        "areal",
        [
            "update={old: ewma, decay: 0.9}",
            "update.kl={estimator: k3, placement: loss, coefficient: 0.1, target: 1.0, horizon: 9}",
        ],
        "update.kl.target",
    ),
    ("areal", ["update.correction.ratio=engine"], "update.correction.missing"),
    ("areal", ["update.correction.missing=drop"], "update.correction.missing"),
    (
        "grpo",
        ["update.correction={rule: tis, high: 2.0, missing: keep}"],
        "update.correction.missing",
    ),
    (
        "grpo",
        ["update={sampled: none, correction: {rule: tis, high: 2.0}}"],
        "update.sampled",
    ),
    (
        "ppo",
        ["timing={mode: asynchronous, max_lag: 2}", "update.sampled=snapshot"],
        "timing.mode",
    ),
    ("grpo", ["timing.mode=asynchronous"], "timing.max_lag"),
    ("grpo", ["timing={mode: asynchronous, max_lag: 2}"], "timing.mode"),
    ("grpo", ["timing.max_lag=2"], "timing.max_lag"),
    ("dapo", ["data.dynamic.surplus=carry"], "data.dynamic.surplus"),
    ("reinforce", ["data.dynamic={surplus: drop}", "data.group_size=1"], "data.dynamic"),
    ("sft", ["data.dynamic={surplus: drop}"], "data.dynamic"),
    ("sft", ["feedback.overlong={limit: 40, cache: 10}"], "feedback.overlong"),
    ("grpo", ["feedback.overlong={limit: 4, cache: 10}"], "feedback.overlong.cache"),
    ("grpo", ["feedback.overlong={limit: 9000, cache: 10}"], "feedback.overlong.limit"),
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
        ("grpo", ["policy.sampling.top_k=4096"]),
        ("grpo", ["action.forced=out", "policy.sampling.grammar=tool_calls"]),
        ("grpo", ["action.gated=out", TIS.replace("tis, high", "mis, high")]),
        ("rloo", ["update.epochs=2", "update.minibatches=4"]),
        ("rloo", ["update={surrogate: clip, clip_low: 0.2, clip_high: 0.3}"]),
        ("reinforce", ["data.group_size=1", "credit.baseline=none"]),
        ("reinforce", ["credit={baseline: prompt_mean, window: 8}"]),
        ("reinforce", ["credit.baseline=greedy", "data.group_size=1"]),
        ("ppo", ["credit={lambda_policy: null, alpha: 1.5, clock: turn}"]),
        ("reinforce_pp", ["credit={baseline: group, std: sample}", "data.group_size=2"]),
        ("gigpo", TURNS),
        ("gigpo", [*TURNS, "credit.std=sample", "credit.threshold=0.01"]),
        ("ppo", STEPS),
        ("reinforce", [*VINE, "data.group_size=1"]),
        ("ppo", ["critic={trunk: shared, coefficient: 0.1}"]),
        ("ppo", ["critic={head: hl_gauss, support: [0.0, 1.0]}", "credit.whiten=null"]),
        ("grpo", ["action={ratio: turn, combine: sum, denominator: response}"]),
        ("gspo", ["action.ratio=token", "update={clip_low: 0.2, clip_high: 0.2}"]),
        ("grpo", ["update={surrogate: sapo, tau: 1.0, tau_negative: 1.05}"]),
        ("dapo", ["feedback.overlong={limit: 100, cache: 20}", "credit.truncation=mask"]),
        ("grpo", ["update.correction={rule: icepop, low: 0.5, high: 5.0}"]),
        ("grpo", ["update.kl={estimator: k3, placement: loss, coefficient: 0.04}"]),
        ("areal", ["update.old=interpolated"]),
        ("areal", ["update={old: ewma, decay: 0.9}"]),
        ("areal", ["update={old: snapshot, sampled: snapshot, correction: null}"]),
        ("areal", ["update.sampled=snapshot"]),
        ("sao", ["update.sampled=none"]),
        ("areal", ["update.correction={ratio: engine, rule: tis, high: 2.0, missing: keep}"]),
        (
            "areal",
            [
                "update={old: snapshot, sampled: snapshot}",
                "update.correction={ratio: engine, rule: tis, high: 2.0, missing: refuse}",
            ],
        ),
        (
            "ppo",
            [
                "update={old: ewma, decay: 0.9}",
                "update.correction={ratio: proximal, rule: tis, high: 5.0}",
            ],
        ),
        (
            "ppo",
            [
                "timing={mode: asynchronous, max_lag: 4}",
                "update.correction={ratio: proximal, rule: tis, high: 5.0}",
            ],
        ),
        ("grpo", ["action={denominator: prompt, inner: token}"]),
        ("grpo", ["budget={seconds: 60}", "update.optimizer.schedule=constant"]),
        ("sft", ["data.origin=runs/other/episodes", "data.size=50"]),
    ],
)
def test_sound_departures_from_a_preset_are_accepted(tmp_path, method, overrides):
    path = tmp_path / "r.yaml"
    path.write_text(HEADS[method])
    load(path, overrides)


def test_a_cut_distribution_is_a_valid_choice(tmp_path):
    cuts = "{temperature: 0.8, top_k: 50, top_p: 0.9, min_p: 0.02, grammar: tool_calls}"
    for name in ("grpo", "sft", "rloo"):
        path = tmp_path / f"{name}.yaml"
        path.write_text(HEADS[name])
        recipe = load(path, [f"policy.sampling={cuts}"])
        assert recipe.policy.sampling.build() == Sampling(0.8, 50, 0.9, 0.02, "tool_calls")
