"""A reward model learns from pairs: numbers first, then what must not matter."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_world import assign, segment, tiny
from preference_world import pairs, side

from hexad.contract.faults import ContractViolation
from hexad.learner.assemble import assemble
from hexad.learner.reward_learner import RewardLearner
from hexad.recipe.axes import Recipe


def settings(**sections):
    update = {"surrogate": "bradley_terry", "optimizer": {"lr": 1e-2, "schedule": "constant"}}
    base = {
        "feedback": {"source": "preferences"},
        "action": {"denominator": "pair"},
        "credit": {"estimator": "none"},
        "update": {**update, **sections.pop("update", {})},
    }
    return Recipe.model_validate({**base, **sections})


def awake(learner, seed=1):
    """The head with weights: at zero every gradient to the trunk is zero."""
    made = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head = learner.model.net.head
        head.weight.copy_(torch.randn(head.weight.shape, generator=made, dtype=head.weight.dtype))
        head.bias.fill_(0.3)
    return learner


def step(learner, episodes, change=lambda batch: batch):
    batch = change(assemble(episodes))
    return learner.update(batch, learner.score(batch), assign(batch, learner.recipe), 0.0)


def train(episodes, recipe, batches=1, policy=None):
    learner = awake(RewardLearner(policy or tiny(), recipe))
    reports = [step(learner, episodes) for _ in range(batches)]
    return learner, reports[-1]


def weights(learner):
    return torch.cat([p.detach().reshape(-1) for p in learner.model.net.parameters()])


def by_hand(learner, episodes):
    """The rewards from whole rows, without any of our packing."""
    net, found = learner.model.net, []
    for one in episodes:
        row = one.segments[-1]
        last = int(np.flatnonzero(row.action)[-1])
        hidden = net.trunk(torch.tensor(row.ids)[None].long()).last_hidden_state[0, last]
        found.append((net.head.weight[0] * hidden).sum() + net.head.bias[0])
    return torch.stack(found)


def test_a_fresh_model_gives_nothing_and_its_loss_is_ln_2():
    learner = RewardLearner(tiny(), settings())
    assert learner.rewards(pairs()) == [0.0] * 6
    assert step(learner, pairs()).scalars["loss"] == pytest.approx(np.log(2), abs=1e-12)


def test_rewards_loss_and_gradient_are_those_computed_by_hand():
    learner = awake(RewardLearner(tiny(), settings(update={"optimizer": {"clip_norm": None}})))
    rewards = by_hand(learner, pairs())
    assert learner.rewards(pairs()) == pytest.approx(rewards.tolist(), abs=1e-10)
    margin = rewards[::2] - rewards[1::2]
    expected = torch.log1p(torch.exp(-margin)).mean()
    gradient = torch.autograd.grad(expected, list(learner.stepper.parameters.values()))
    report = step(learner, pairs())
    assert report.scalars["loss"] == pytest.approx(float(expected.detach()), rel=1e-10)
    named = zip(learner.stepper.parameters, learner.stepper.gradients(), gradient, strict=True)
    for name, mine, theirs in named:
        assert torch.allclose(mine, theirs, atol=1e-12)
        assert bool((mine != 0).any()) == (name != "head.bias")  # only differences are trained
    won = (margin > 0).double().mean()
    assert report.scalars["preference/accuracy"] == pytest.approx(float(won))
    assert report.scalars["preference/margin"] == pytest.approx(float(margin.mean().detach()))


@pytest.mark.parametrize("limit", [1, 40])
def test_micro_batches_change_nothing(limit):
    whole, _ = train(pairs(), settings(), batches=3)
    cut, _ = train(pairs(), settings(system={"micro_batch_tokens": limit}), batches=3)
    assert torch.allclose(weights(whole), weights(cut), atol=1e-10)


def test_the_order_of_the_pairs_changes_nothing():
    episodes = pairs()
    other = [*episodes[4:], *episodes[2:4], episodes[1], episodes[0]]
    one, two = (train(e, settings(), batches=2)[0] for e in (episodes, other))
    assert torch.allclose(weights(one), weights(two), atol=1e-10)


def test_what_is_no_action_at_the_end_is_inert_even_as_nan():
    def spoil(batch):
        nothing = torch.full_like(batch.behaviour, torch.nan)
        return replace(batch, behaviour=nothing, weight=torch.where(batch.action, 0.5, 0.0))

    def longer(one):
        row = one.segments[-1]
        more = segment([*row.ids, 1, 2, 3], [*row.action, 0, 0, 0], None, [*row.turn, 9, 9, 9])
        return replace(one, segments=(*one.segments[:-1], more))

    plain, _ = train(pairs(), settings())
    spoiled = awake(RewardLearner(tiny(), settings()))
    step(spoiled, [longer(one) for one in pairs()], spoil)
    assert torch.allclose(weights(plain), weights(spoiled), atol=1e-10)


def test_a_pair_that_lost_a_side_is_in_no_term():
    episodes = pairs()
    zero = [replace(row, weight=np.zeros(len(row), np.float32)) for row in episodes[3].segments]
    broken = [*episodes[:3], replace(episodes[3], segments=tuple(zero)), episodes[4]]
    one, _ = train(broken, settings(), batches=2)
    two, _ = train(episodes[:2], settings(), batches=2)
    assert torch.allclose(weights(one), weights(two), atol=1e-10)
    with pytest.raises(ContractViolation, match="no token of the batch is valid"):
        train(episodes[:1], settings())


def test_training_tells_chosen_from_rejected_and_leaves_the_policy_alone():
    policy = tiny()
    before = [p.detach().clone() for p in policy.model.parameters()]
    learner, report = train(pairs(), settings(), batches=8, policy=policy)
    assert report.scalars["preference/accuracy"] == 1.0 and report.scalars["loss"] < 0.2
    rewards = learner.rewards(pairs())
    assert all(high > low for high, low in zip(rewards[::2], rewards[1::2], strict=True))
    for mine, old in zip(policy.model.parameters(), before, strict=True):
        assert torch.equal(mine, old)
    assert learner.lineage == tiny().lineage() and learner.version == learner.steps == 8


def test_a_resumed_learner_goes_on_bit_for_bit():
    recipe = settings(update={"epochs": 2, "minibatches": 2})
    whole, _ = train(pairs(), recipe, batches=3)
    first, _ = train(pairs(), recipe, batches=1)
    first.model.measured = {"cut": 0.5}
    second = RewardLearner(tiny(seed=0), recipe)
    second.restore(first.state())
    for _ in range(2):
        step(second, pairs())
    assert torch.equal(weights(whole), weights(second)) and second.version == 3
    assert second.model.measured == {"cut": 0.5}


def test_episodes_without_an_action_have_no_reward():
    row = segment([1, 2, 3], [0, 0, 0])
    rewards = RewardLearner(tiny(), settings()).rewards([*pairs()[:1], side(9, 0, [row])])
    assert rewards[0] == 0.0 and np.isnan(rewards[1])
