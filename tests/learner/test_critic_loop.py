"""The critic inside the learner: one trunk or two, rescoring, and what the loop makes of it."""

import pytest
import torch
from learner_world import parameters, random_episodes, recipe, tiny

from hexad.learner.assemble import assemble
from hexad.learner.assign import Assigner
from hexad.learner.batch import Scores
from hexad.learner.critic import Critic, SharedCritic
from hexad.learner.learner import Learner
from hexad.recipe.axes import Recipe

CREDIT = {"estimator": "gae", "lambda_policy": 0.9, "lambda_critic": 1.0}


def made(critic, **sections):
    base = recipe(action={"denominator": "token"}).model_dump()
    base |= {"credit": CREDIT, "critic": critic}
    for name, values in sections.items():
        base[name] = {**base[name], **values}
    return Recipe.model_validate(base)


def scored(learner, critic, assigner, batch):
    wanted = assigner.wanted(batch)
    scores = learner.score(batch)
    return Scores(scores.sampled, scores.old, scores.reference, critic.score(batch, wanted))


def update(learner, episodes):
    batch, assigner = assemble(episodes), Assigner(learner.recipe)
    scores = scored(learner, learner.shared, assigner, batch)
    return learner.update(batch, scores, assigner(batch, scores), 0.0), batch, scores


def test_a_shared_critic_moves_the_trunk_by_its_coefficient():
    episodes = random_episodes(51)
    moved = {}
    for coefficient in (1e-12, 1.0):
        learner = Learner(tiny(), made({"trunk": "shared", "coefficient": coefficient}))
        with torch.no_grad():
            learner.shared.net.head.weight.fill_(0.3)
        report, _, _ = update(learner, episodes)
        moved[coefficient] = parameters(learner)
        assert report.tallies["critic/loss"].count > 0
    assert not torch.allclose(moved[1e-12], moved[1.0])


def test_a_shared_critics_step_is_the_sum_of_both_losses():
    episodes, coefficient = random_episodes(52), 0.4
    free = {"optimizer": {"lr": 1e-2, "clip_norm": None}}
    settings = made({"trunk": "shared", "coefficient": coefficient}, update=free)
    learner = Learner(tiny(), settings)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        learner.shared.net.head.weight.normal_(generator=generator)
    head = learner.shared.net.head.weight.detach().clone()
    batch, assigner = assemble(episodes), Assigner(learner.recipe)
    scores = scored(learner, learner.shared, assigner, batch)
    credit = assigner(batch, scores)
    learner.update(batch, scores, credit, 0.0)
    policy = tiny()
    weight = head.clone().requires_grad_()
    loss = torch.zeros((), dtype=torch.float64)
    count = batch.action.sum()
    for start, end in zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True):
        out = policy.model(input_ids=batch.ids[None, start:end], output_hidden_states=True)
        places = batch.action[start:end].nonzero().squeeze(1)
        logs = out.logits[0].log_softmax(-1)[places - 1]
        own = logs.gather(1, batch.ids[start:end][places, None])[:, 0]
        value = out.hidden_states[-1][0][places - 1] @ weight[0]
        loss = loss - (credit.advantage[start:end][places] * own).sum() / count
        error = (value - credit.target[start:end][places]).square()
        loss = loss + coefficient * 0.5 * error.sum() / count
    loss.backward()
    found = dict(zip(learner.stepper.masters, learner.stepper.gradients(), strict=True))
    torch.testing.assert_close(found["head.weight"], weight.grad, rtol=1e-8, atol=1e-10)
    norm = policy.model.model.norm.weight.grad
    torch.testing.assert_close(found["policy.model.norm.weight"], norm, rtol=1e-8, atol=1e-10)


def test_pretraining_a_shared_critic_moves_the_head_alone():
    learner = Learner(tiny(), made({"trunk": "shared", "pretrain": 1}))
    before = parameters(learner)
    batch, assigner = assemble(random_episodes(53)), Assigner(learner.recipe)
    scores = scored(learner, learner.shared, assigner, batch)
    learner.skip(batch, scores, assigner(batch, scores, pretrain=True), 0.0)
    assert torch.equal(parameters(learner), before)
    assert bool((learner.shared.net.head.weight != 0).any())
    assert (learner.version, learner.shared.batches) == (1, 1)
    update(learner, random_episodes(53))
    assert not torch.equal(parameters(learner), before)


def test_a_shared_critic_survives_a_resume():
    whole, again = (Learner(tiny(), made({"trunk": "shared"})) for _ in range(2))
    update(whole, random_episodes(54))
    again.restore(whole.state())
    again.shared.restore(whole.shared.state())
    for learner in (whole, again):
        update(learner, random_episodes(55))
    assert torch.equal(parameters(whole), parameters(again))
    assert torch.equal(whole.shared.net.head.weight, again.shared.net.head.weight)


def test_skipping_leaves_the_policy_and_counts_the_batch():
    settings = made({"pretrain": 2})
    learner, critic = Learner(tiny(), settings), Critic(tiny(), settings)
    before, batch, assigner = parameters(learner), assemble(random_episodes(56)), Assigner(settings)
    scores = scored(learner, critic, assigner, batch)
    credit = assigner(batch, scores, pretrain=True)
    report = learner.skip(batch, scores, credit, 0.0)
    assert torch.equal(parameters(learner), before)
    assert (report.optimizer_steps, report.loss_tokens, learner.version) == (0, 0, 1)
    # Monte Carlo returns: every step of an episode is told its score.
    expected = torch.where(batch.action, batch.score[batch.token_episode], torch.nan)
    torch.testing.assert_close(credit.target, expected, equal_nan=True)


@pytest.mark.parametrize("kind", [Critic, SharedCritic])
def test_values_are_read_where_decisions_are_taken_and_episodes_cut(kind):
    settings = made({"trunk": "shared" if kind is SharedCritic else "own"})
    learner = Learner(tiny(), settings)
    critic = learner.shared or Critic(tiny(), settings)
    batch, assigner = assemble(random_episodes(57)), Assigner(settings)
    wanted = assigner.wanted(batch)
    assert torch.equal(wanted[:-1], batch.action[1:])
    assert torch.equal(critic.score(batch, wanted).value.isfinite(), wanted)


def test_value_clipping_of_a_shared_critic_holds_each_value_to_its_own():
    """With the values of before the step as they are, a clip changes nothing in the first step."""
    after = []
    for clip in (None, 1e-6):
        settings = made({"trunk": "shared", "clip": clip})
        learner = Learner(tiny(), settings)
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            learner.shared.net.head.weight.normal_(generator=generator)
        update(learner, random_episodes(58))
        after.append(parameters(learner))
    torch.testing.assert_close(*after, rtol=1e-9, atol=1e-11)
