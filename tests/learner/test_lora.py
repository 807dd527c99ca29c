"""Every learner with a LoRA adapter: the base stands still, the reference is the start (O13)."""

import math

import pytest
import torch
from learner_world import assign, random_episodes, recipe, tiny
from preference_world import pairs, singles
from preference_world import settings as preferences
from test_reward_learner import awake
from test_reward_learner import settings as rewards

from hexad.contract.faults import UserError
from hexad.learner.assemble import assemble
from hexad.learner.batch import Scores
from hexad.learner.critic import Critic
from hexad.learner.learner import Learner
from hexad.learner.preference import PreferenceLearner
from hexad.learner.reward_learner import RewardLearner
from hexad.policy import adapter as adapters
from hexad.policy.policy import Policy
from hexad.recipe.axes import AdapterSpec, Recipe

SPEC = AdapterSpec(rank=2, alpha=4)
KL = {"estimator": "k3", "coefficient": 0.1, "placement": "loss"}


def lora(seed=0, trained=True, other_base=False):
    """A tiny float64 policy with an adapter: fresh, or as some training left it."""
    model = tiny(int(other_base)).model
    base = adapters.Base("here", "other" if other_base else "own")
    known = adapters.attach(model, SPEC, seed)
    if trained:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _, value in adapters.trained(model):
                value.add_(0.1 * torch.randn(value.shape, generator=generator).to(value))
    return Policy(model.eval(), None, "here", (1,), 512, known, base)


def with_kl(**sections):
    update = {"kl": KL, "epochs": 2, **sections.pop("update", {})}
    return recipe(update=update, **sections)


def gaps(learner, batch):
    """|log policy - log reference| of every action, before the batch's first step."""
    scores = learner.score(batch)
    return (scores.old.logprob - scores.reference.logprob)[batch.action].abs()


def test_the_wrong_answer_by_hand():
    """Base logits (0, 0), the adapter adds (1, 0): against the base, KL is .110944 and not 0."""
    p = torch.tensor([1.0, 0.0]).softmax(0)
    assert float((p * (p * 2).log()).sum()) == pytest.approx(0.110944, abs=1e-6)


@pytest.mark.parametrize("kind", ["whole", "fresh", "trained", "resumed"])
def test_the_reference_is_the_policy_that_the_run_starts_with(kind):
    batch = assemble(random_episodes())
    policy = tiny() if kind == "whole" else lora(trained=kind != "fresh")
    learner = Learner(policy, with_kl())
    if kind == "resumed":
        learner.update(batch, learner.score(batch), assign(batch, learner.recipe), 0.0)
        state, moved = learner.state(), gaps(learner, batch)
        learner = Learner(lora(), with_kl())
        assert gaps(learner, batch).max() == 0.0
        learner.restore(state)
        assert torch.equal(gaps(learner, batch), moved) and moved.max() > 1e-4
        return
    assert gaps(learner, batch).max() == 0.0
    if kind == "trained":
        bare = torch.zeros(())
        for module in policy.model.modules():
            if adapters.is_adapted(module):
                bare = bare + (adapters.whole_weight(module) - module.base_layer.weight).norm()
        assert bare > 1.0  # the base alone would be another policy


def test_an_error_in_the_references_forward_leaves_the_policy_as_it_was(monkeypatch):
    batch, learner = assemble(random_episodes()), Learner(lora(), with_kl())
    before, lineage = learner.score(batch).old.logprob, learner.policy.lineage()

    def fails(*_args, **_kwargs):
        raise RuntimeError("no memory")

    with monkeypatch.context() as patched:
        patched.setattr(learner.reference.model, "forward", fails)
        with pytest.raises(RuntimeError, match="no memory"):
            learner.score(batch)
    after = learner.score(batch)
    assert torch.equal(after.old.logprob[batch.action], before[batch.action])
    assert learner.policy.lineage() == lineage
    assert (after.old.logprob - after.reference.logprob)[batch.action].abs().max() == 0.0


def test_the_reference_trains_nothing_and_costs_one_adapter():
    learner = Learner(lora(), with_kl())
    frozen = dict(learner.reference.model.named_parameters())
    assert not any(p.requires_grad for p in frozen.values())
    mine = dict(learner.policy.model.named_parameters())
    assert all((frozen[n] is mine[n]) == (".lora_" not in n) for n in mine)
    assert set(learner.stepper.parameters) == set(learner.weights())
    assert set(learner.weights()) == {n for n in mine if ".lora_" in n}


CRITIC = {"optimizer": {"lr": 1e-2, "schedule": "constant"}}


def with_critic(**critic):
    made = recipe(credit={"estimator": "gae"}).model_dump()
    return Recipe.model_validate({**made, "critic": {**CRITIC, **critic}})


FORMS = {
    "sft": recipe(
        feedback={"source": "demonstrations"},
        credit={"estimator": "none"},
        update={"surrogate": "nll", "clip_low": None, "clip_high": None},
    ),
    "grpo": recipe(update={"epochs": 2}),
    "grpo with a reference": with_kl(),
    "snapshots": recipe(
        timing={"mode": "asynchronous", "max_lag": 2},
        update={"old": "snapshot", "sampled": "snapshot", "epochs": 2},
    ),
    "moving average": recipe(update={"old": "ewma", "decay": 0.9, "epochs": 2}),
}


def one_step(learner, batch):
    credit = assign(batch, learner.recipe)
    learner.update(batch, learner.score(batch), credit, 0.0)


def still_and_moved(model, before):
    """Names of parameters that stayed, and that changed, bit for bit."""
    now = dict(model.named_parameters())
    same = {name for name, value in before.items() if torch.equal(value, now[name])}
    return same, set(now) - same


def remembered(model):
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def require_only_the_adapter(model, before):
    still, moved = still_and_moved(model, before)
    assert moved and all(".lora_" in name for name in moved)
    assert all(name in still for name in before if ".lora_" not in name)


@pytest.mark.parametrize("form", FORMS)
def test_only_the_adapter_moves_and_a_resume_is_bit_exact(form):
    batch = assemble(random_episodes())
    learner, again = Learner(lora(), FORMS[form]), Learner(lora(), FORMS[form])
    before = remembered(learner.policy.model)
    one_step(learner, batch)
    require_only_the_adapter(learner.policy.model, before)
    state = learner.state()
    assert not any("base_layer" in key for key in state)
    again.restore(state)
    for each in (learner, again):
        one_step(each, batch)
    assert learner.policy.lineage() == again.policy.lineage() == learner.lineage


@pytest.mark.parametrize("name", ["dpo", "ipo", "simpo", "kto", "dpo by rounds"])
def test_preferences_move_the_adapter_alone_and_begin_at_its_start(name):
    rounds = {"data": {"rounds": {"tasks": 4, "rounds": 2, "reference": "round_start"}}}
    made = preferences(name.split()[0], **(rounds if "rounds" in name else {}))
    batch = assemble(singles() if name == "kto" else pairs())
    learner, again = PreferenceLearner(lora(), made), PreferenceLearner(lora(), made)
    before = remembered(learner.policy.model)
    # Raises unless reference and policy agree before the first step.
    one_step(learner, batch)
    require_only_the_adapter(learner.policy.model, before)
    if learner.follows:
        learner.begin_round()
        reference = learner.score(batch).reference.logprob
        now = learner._evaluate(batch, learner.root, batch.action)
        assert torch.equal(reference[batch.action], now[batch.action])
    state = learner.state()
    assert not any("base_layer" in key for key in state)
    again.restore(state)
    for each in (learner, again):
        one_step(each, batch)
    assert learner.lineage == again.lineage


def test_a_reward_model_trains_an_adapter_and_leaves_the_policys_alone():
    policy = lora()
    learner = awake(RewardLearner(policy, rewards()))
    trunk = learner.model.policy.model
    before, own = remembered(trunk), remembered(policy.model)
    one_step(learner, assemble(pairs()))
    require_only_the_adapter(trunk, before)
    assert not still_and_moved(policy.model, own)[1]


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_a_critic_trains_an_adapter_of_its_own_or_the_policys(trunk):
    policy, made = lora(), with_critic(trunk=trunk)
    before = remembered(policy.model)
    learner = Learner(policy, made)
    critic = learner.shared or Critic(policy, made)
    names = set(critic.stepper.parameters if trunk == "own" else learner.stepper.parameters)
    assert all("lora_" in name or "head" in name for name in names)
    if trunk == "own":
        inner = {id(p) for p in critic.net.parameters()}
        shared = [n for n, p in policy.model.named_parameters() if id(p) in inner]
        assert shared and not any("lora_" in name for name in shared)
    assert not still_and_moved(policy.model, before)[1]


def test_a_resume_on_another_base_is_refused():
    batch, learner = assemble(random_episodes()), Learner(lora(), with_kl())
    one_step(learner, batch)
    with pytest.raises(UserError, match="other weights than when the run began"):
        Learner(lora(other_base=True), with_kl()).restore(learner.state())
    preferring = PreferenceLearner(lora(), preferences("simpo"))
    with pytest.raises(UserError, match="other weights than when the run began"):
        PreferenceLearner(lora(other_base=True), preferences("simpo")).restore(preferring.state())
    rewarding = RewardLearner(lora(), rewards())
    with pytest.raises(UserError, match="other weights than when the run began"):
        RewardLearner(lora(other_base=True), rewards()).restore(rewarding.state())


def test_the_adapter_learns_what_is_paid():
    batch = assemble(random_episodes())
    learner = Learner(lora(trained=False), recipe(update={"epochs": 2}))
    credit = assign(batch, learner.recipe, Scores())
    before = learner._evaluate(batch, learner.root, batch.action)[0]
    for _ in range(6):
        learner.update(batch, learner.score(batch), credit, 0.0)
    gain = learner._evaluate(batch, learner.root, batch.action)[0] - before
    paid = batch.action & batch.success[batch.token_episode]
    assert float(gain[paid].mean()) > 0.01 and math.isfinite(float(gain[batch.action].mean()))
