"""What the recipe adds to the surrogate, against the same numbers by a plain autograd pass."""

import numpy as np
import pytest
import torch
from learner_world import assign, parameters, random_episodes, recipe, tiny

from hexad.contract.faults import ContractViolation
from hexad.learner.assemble import assemble
from hexad.learner.assign import Assigner
from hexad.learner.batch import RoleScore, Scores
from hexad.learner.learner import Learner
from hexad.recipe.axes import Recipe
from hexad.update import correction, kl, ratio, surrogate

SGD = {"optimizer": {"lr": 1e-2, "clip_norm": None}}


def made(**sections):
    """A recipe of one optimiser step, token mean, and what ``sections`` add."""
    base = recipe(action={"denominator": "token"}, update=SGD).model_dump()
    for name, values in sections.items():
        base[name] = {**(base[name] or {}), **values}
    return Recipe.model_validate(base)


def logprobs(model, batch):
    """Log-prob and entropy [T] of every action by a plain pass, row by row, with gradient."""
    current = torch.zeros(len(batch.ids), dtype=torch.float64)
    entropy = torch.zeros(len(batch.ids), dtype=torch.float64)
    for start, end in zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True):
        logs = model(input_ids=batch.ids[None, start:end]).logits[0].double().log_softmax(-1)
        places = start + batch.action[start:end].nonzero().squeeze(1)
        before = logs[places - start - 1]
        current = current.index_put((places,), before.gather(1, batch.ids[places, None])[:, 0])
        entropy = entropy.index_put((places,), -(before.exp() * before).sum(-1))
    return current, entropy


def gradient(model):
    grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
    return torch.cat([grad.reshape(-1) for grad in grads])


def stepped(settings, episodes, learner=None):
    """The gradient that the learner stepped on."""
    learner = learner or Learner(tiny(), settings)
    batch = assemble(episodes)
    scores = learner.score(batch)
    penalty = learner.penalty(batch, scores)
    credit = Assigner(settings)(batch, scores, penalty)
    report = learner.update(batch, scores, credit, 0.0)
    assert report.optimizer_steps == 1
    return torch.cat([g.reshape(-1) for g in learner.stepper.gradients()]), report, learner


def reference_loss(settings, episodes, add):
    """Gradient of token mean of ``-A log pi`` plus ``add(current, entropy, batch)`` [T]."""
    policy = tiny()
    batch = assemble(episodes)
    current, entropy = logprobs(policy.model, batch)
    advantage = assign(batch, settings).advantage
    terms = -advantage * current + add(current, entropy, batch)
    (terms[batch.action].sum() / batch.action.sum()).backward()
    return gradient(policy.model)


def test_an_entropy_bonus_raises_the_entropy_by_its_exact_gradient():
    settings, episodes = made(update={"entropy": 0.3}), random_episodes(31)
    found, _, _ = stepped(settings, episodes)
    expected = reference_loss(settings, episodes, lambda current, entropy, batch: -0.3 * entropy)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("estimator", ["k2", "k3", "k3_straight"])
@pytest.mark.parametrize("weighted", ["none", "graph", "detached"])
def test_a_penalty_in_the_loss_is_that_estimators_gradient(estimator, weighted):
    spec = {"estimator": estimator, "placement": "loss", "coefficient": 0.5, "weighted": weighted}
    settings, episodes = made(update={"kl": spec}), random_episodes(32)
    learner = Learner(tiny(), settings)
    with torch.no_grad():  # the reference is the initial policy; move away from it
        for parameter in learner.policy.model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, dtype=parameter.dtype))
    weights = {k: v.clone() for k, v in learner.policy.model.state_dict().items()}
    found, report, _ = stepped(settings, episodes, learner)
    policy, initial, batch = tiny(), tiny(), assemble(episodes)
    policy.model.load_state_dict(weights)
    current, _ = logprobs(policy.model, batch)
    with torch.no_grad():
        anchor, _ = logprobs(initial.model, batch)
    mask = batch.action
    away = kl.ESTIMATORS[estimator](ratio.anchored(current=current, reference=anchor, mask=mask))
    if weighted != "none":
        direct = ratio.direct(current=current, behaviour=batch.behaviour, mask=mask)
        away = kl.weighted(away, direct, graph=weighted == "graph")
    terms = -assign(batch, settings).advantage * current + 0.5 * away
    (terms[mask].sum() / mask.sum()).backward()
    torch.testing.assert_close(found, gradient(policy.model), rtol=1e-7, atol=1e-9)
    assert report.scalars["kl_reference"] > 0
    assert report.roles["reference"].startswith("0:")


def test_a_penalty_in_the_reward_changes_the_advantage_of_each_episode():
    spec = {"estimator": "k1", "placement": "reward", "coefficient": 0.1}
    settings = made(update={"kl": spec}, credit={"estimator": "rloo"})
    learner, batch = Learner(tiny(), settings), assemble(random_episodes(33))
    scores = learner.score(batch)
    penalty = learner.penalty(batch, scores)
    expected = 0.1 * (batch.behaviour.double() - scores.reference.logprob)
    torch.testing.assert_close(penalty[batch.action], expected[batch.action])
    taken = torch.zeros(len(batch.episodes), dtype=torch.float64)
    taken.index_add_(0, batch.token_episode[batch.action], penalty[batch.action])
    score = batch.score - taken
    groups = batch.episode_group
    others = torch.stack([score[(groups == g)].sum() for g in groups]) - score
    sizes = torch.stack([(groups == g).sum() for g in groups]) - 1
    advantage = Assigner(settings)(batch, scores, penalty).advantage
    firsts = [
        batch.action.nonzero()[batch.token_episode[batch.action] == e][0, 0] for e in range(9)
    ]
    torch.testing.assert_close(advantage[torch.stack(firsts)], (score - others / sizes)[:9])


def test_successes_are_imitated_with_their_own_denominator():
    settings, episodes = made(update={"positive_nll": 0.7}), random_episodes(34)
    found, report, _ = stepped(settings, episodes)

    def add(current, entropy, batch):
        success = batch.action & batch.success[batch.token_episode]
        return torch.where(success, -0.7 * current, 0.0) * batch.action.sum() / success.sum()

    expected = reference_loss(settings, episodes, add)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    assert report.tallies["positive_nll"].count > 0


def test_imitation_of_successes_is_of_the_model_not_of_the_tempered_policy():
    sampling = {"sampling": {"temperature": 2.0}}
    settings = made(update={"positive_nll": 1.0}, policy=sampling, credit={"estimator": "dr_grpo"})
    episodes = random_episodes(34, rewards=(1.0, 1.0, 1.0))[3:]
    found, _, _ = stepped(settings, episodes)  # no advantage: the imitation alone
    policy, batch = tiny(), assemble(episodes)
    current, _ = logprobs(policy.model, batch)
    (-current[batch.action].mean()).backward()
    torch.testing.assert_close(found, gradient(policy.model), rtol=1e-8, atol=1e-10)


def test_a_correction_weighs_the_policy_term_and_leaves_the_denominator():
    spec = {"ratio": "proximal", "rule": "icepop", "low": 0.9, "high": 1.6}
    settings, episodes = made(update={"correction": spec}), random_episodes(35)
    found, report, _ = stepped(settings, episodes)
    policy, batch = tiny(), assemble(episodes)
    current, _ = logprobs(policy.model, batch)
    log = (current.detach() - batch.behaviour.double())[batch.action]
    weight, keep = correction.icepop(log, 0.9, 1.6)
    assert 0 < int(keep.sum()) < len(keep)
    advantage = assign(batch, settings).advantage[batch.action]
    terms = surrogate.plain(current[batch.action] - current[batch.action].detach(), advantage)
    (weight * terms).mean().backward()
    torch.testing.assert_close(found, gradient(policy.model), rtol=1e-6, atol=1e-8)
    assert report.tallies["correction/kept"].mean == pytest.approx(float(keep.double().mean()))


def test_a_ratio_that_is_missing_is_not_one():
    spec = {"ratio": "engine", "rule": "tis", "high": 2.0}
    settings, batch = made(update={"correction": spec}), assemble(random_episodes(36))
    learner = Learner(tiny(), settings)
    scores = learner.score(batch)
    with pytest.raises(ContractViolation, match="`sampled` is missing"):
        learner.update(batch, Scores(old=scores.old), assign(batch, settings), 0.0)
    with pytest.raises(ContractViolation, match="`old` is missing"):
        learner.update(batch, Scores(), assign(batch, settings), 0.0)


@pytest.mark.parametrize("micro", [1, 60, 10_000])
@pytest.mark.parametrize("unit", ["turn", "episode"])
def test_a_ratio_of_units_does_not_depend_on_micro_batches(unit, micro):
    """Episodes here have two rows now and then: their ratio needs both in one micro-batch."""
    settings = [
        made(
            action={"ratio": unit, "combine": "mean", "denominator": "episode"},
            update={"minibatches": 2, "epochs": 2, "clip_low": 3e-4, "clip_high": 4e-4},
            system={"micro_batch_tokens": limit},
        )
        for limit in (micro, 10_000)
    ]
    after = []
    for each in settings:
        learner, batch = Learner(tiny(), each), assemble(random_episodes(37))
        report = learner.update(batch, learner.score(batch), assign(batch, each), 0.0)
        after.append(parameters(learner))
    torch.testing.assert_close(*after, rtol=1e-9, atol=1e-11)
    assert report.tallies[f"log_ratio/{unit}"].count > 0


def test_a_token_ratio_and_a_unit_ratio_agree_where_nothing_has_moved():
    plain = made(action={"denominator": "episode"})
    unit = made(action={"denominator": "episode", "ratio": "episode", "combine": "mean"})
    first, second = (stepped(each, random_episodes(38))[0] for each in (plain, unit))
    torch.testing.assert_close(first, second, rtol=1e-8, atol=1e-10)


def test_the_rate_follows_the_effective_sample_size():
    episodes = random_episodes(39)
    settings = made(update={"ess": {"base": 1.0}})
    _, report, _ = stepped(settings, episodes)
    batch = assemble(episodes)
    with torch.no_grad():
        current, _ = logprobs(tiny().model, batch)
    log = torch.zeros(len(batch.episodes), dtype=torch.float64)
    log.index_add_(0, batch.token_episode, torch.where(batch.action, current - batch.behaviour, 0))
    weight = log.exp()
    share = float(weight.sum() ** 2 / weight.square().sum()) / len(weight)
    assert report.tallies["ess"].mean == pytest.approx(share, rel=1e-5)
    assert report.scalars["lr"] == pytest.approx(1e-2 * np.sqrt(share), rel=1e-5)


@pytest.mark.parametrize("name", ["squared", "token_clip"])
def test_a_penalty_inside_the_surrogate_moves_rows_without_advantage(name):
    values = {"surrogate": name, "tau": 0.5, "epochs": 2}
    action = {"ratio": "episode", "combine": "sum", "denominator": "episode"}
    settings = made(update=values, action=action if name == "squared" else {})
    learner, batch = Learner(tiny(), settings), assemble(random_episodes(40))
    report = learner.update(batch, learner.score(batch), assign(batch, settings), 0.0)
    assert report.skipped_rows == 0


def test_an_adaptive_coefficient_moves_and_survives_a_resume():
    spec = {
        "estimator": "k3",
        "placement": "loss",
        "coefficient": 0.5,
        "target": 1e-6,
        "horizon": 9,
    }
    settings, batch = made(update={"kl": spec}), assemble(random_episodes(41))
    learner = Learner(tiny(), settings)
    for _ in range(3):
        learner.update(batch, learner.score(batch), assign(batch, settings), 0.0)
    assert learner.kl.coefficient != 0.5
    again = Learner(tiny(), settings)
    again.restore(learner.state())
    assert again.kl.coefficient == learner.kl.coefficient


def test_direct_ratios_divide_by_the_record():
    settings = made(update={"surrogate": "dis", "clip_low": 0.9, "clip_high": 9.0})
    episodes = random_episodes(42)
    found, report, _ = stepped(settings, episodes)
    policy, batch = tiny(), assemble(episodes)
    current, _ = logprobs(policy.model, batch)
    log = (current - batch.behaviour.double())[batch.action]
    advantage = assign(batch, settings).advantage[batch.action]
    surrogate.dis(log, current[batch.action], advantage, 0.9, 9.0).mean().backward()
    torch.testing.assert_close(found, gradient(policy.model), rtol=1e-6, atol=1e-8)
    assert report.tallies["log_ratio/direct"].count == int(batch.action.sum())


def test_old_given_by_hand_is_what_the_ratio_divides_by():
    settings, batch = made(update={"minibatches": 2}), assemble(random_episodes(43))
    learner = Learner(tiny(), settings)
    scores = learner.score(batch)
    shifted = RoleScore(scores.old.logprob - 5.0, 0, scores.old.digest)
    report = learner.update(batch, Scores(scores.sampled, shifted), assign(batch, settings), 0.0)
    assert report.tallies["log_ratio/update"].mean == pytest.approx(5.0, abs=0.2)


def test_a_correction_of_episodes_multiplies_over_all_their_rows():
    spec = {"ratio": "proximal", "rule": "sequence_tis", "high": 1e9}
    settings, batch = made(update={"correction": spec}), assemble(random_episodes(44))
    learner = Learner(tiny(), settings)
    scores = learner.score(batch)
    log = torch.zeros(len(batch.episodes), dtype=torch.float64)
    own = torch.where(batch.action, scores.old.logprob - batch.behaviour, 0.0)
    log.index_add_(0, batch.token_episode, own)
    report = learner.update(batch, scores, assign(batch, settings), 0.0)
    expected = log[batch.token_episode[batch.action]].exp()
    assert report.tallies["correction/weight"].sum == pytest.approx(float(expected.sum()), rel=1e-4)


@pytest.mark.parametrize("denominator", ["episode", "token"])
def test_a_summed_ratio_moves_each_token_once_whatever_the_denominator(denominator):
    """Where an episode's term is averaged over it, every token's gradient is that of the sum; where
    it is not, each token's term is its own: both are A s grad log pi, the first |u| times a mean.
    """
    action = {"ratio": "episode", "combine": "sum", "denominator": denominator}
    settings, episodes = made(action=action), random_episodes(45)
    found, _, _ = stepped(settings, episodes)
    policy, batch = tiny(), assemble(episodes)
    current, _ = logprobs(policy.model, batch)
    advantage = assign(batch, settings).advantage
    index = batch.token_episode
    count = torch.zeros(len(batch.episodes), dtype=torch.float64)
    count.index_add_(0, index, batch.action.double())
    if denominator == "episode":
        share = torch.full_like(advantage, 1.0 / len(batch.episodes))
    else:
        share = torch.full_like(advantage, 1.0 / float(count.sum()))
    (-(share * advantage * current)[batch.action].sum()).backward()
    torch.testing.assert_close(found, gradient(policy.model), rtol=1e-7, atol=1e-9)
