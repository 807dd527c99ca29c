"""Pairs through the learner: numbers first, then what must not matter."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_world import assign, segment, tiny
from preference_world import NEUTRAL, NUMBERS, data, pairs, settings, side, singles, train, weights

from hexad.contract.faults import ContractViolation, UserError
from hexad.learner.assemble import assemble
from hexad.learner.preference import PreferenceLearner
from hexad.update import preference

NAMES = list(NUMBERS)


@pytest.mark.parametrize("name", list(NEUTRAL))
def test_the_loss_is_neutral_at_a_fresh_reference(name):
    learner, report = train(data(name), settings(name))
    assert report.scalars["loss"] == pytest.approx(NEUTRAL[name], abs=1e-9)
    assert learner.steps == 1 and learner.version == 1
    if name != "ipo":
        for reward in ("chosen", "rejected"):
            assert report.tallies[f"preference/{reward}"].high == pytest.approx(0, abs=1e-9)


def by_hand(learner, episodes, recipe):
    """The loss from whole-row log-softmaxes, side by side, without any of our packing."""
    policy, frozen = learner.policy.model, learner.reference
    spec, totals = recipe.update.preference, []
    for one in episodes:
        log, length = torch.zeros((), dtype=torch.float64), 0
        for row in one.segments:
            ids, acted = torch.tensor(row.ids)[None].long(), torch.tensor(row.action)
            for model, sign in ((policy, 1.0), (frozen.model if frozen else None, -1.0)):
                if model is None:
                    continue
                logs = torch.log_softmax(model(ids).logits[0], -1)[:-1]
                picked = logs.gather(1, ids[0, 1:, None])[:, 0]
                log = log + sign * picked[acted[1:]].sum()
            length += int(acted.sum())
        totals.append(log / length if spec.reduction == "mean" else log)
    margin = torch.stack(totals[::2]) - torch.stack(totals[1::2])
    loss = preference.LOSSES[recipe.update.surrogate]
    return loss.function(margin, **learner.numbers).mean()


@pytest.mark.parametrize("name", ["dpo", "ipo", "simpo"])
def test_loss_and_gradient_are_those_computed_by_hand(name):
    recipe = settings(name)
    learner, _ = train(pairs(), recipe)
    expected = by_hand(learner, pairs(), recipe)
    gradient = torch.autograd.grad(expected, list(learner.policy.model.parameters()))
    before = [p.detach().clone() for p in learner.policy.model.parameters()]
    batch = assemble(pairs())
    report = learner.update(batch, learner.score(batch), assign(batch, recipe), 0.0)
    assert report.scalars["loss"] == pytest.approx(float(expected.detach()), rel=1e-10)
    norm = torch.cat([g.reshape(-1) for g in gradient]).norm()
    assert report.scalars["grad_norm"] == pytest.approx(float(norm), rel=1e-9)
    for old, mine, g in zip(before, learner.stepper.gradients(), gradient, strict=True):
        scale = min(1.0, recipe.update.optimizer.clip_norm / float(norm))
        assert torch.allclose(mine, scale * g, atol=1e-12), old.shape


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limit", [1, 40])
def test_micro_batches_change_nothing(name, limit):
    whole, report = train(data(name), settings(name), batches=3)
    cut, same = train(data(name), settings(name, system={"micro_batch_tokens": limit}), batches=3)
    assert torch.allclose(weights(whole), weights(cut), atol=1e-10)
    assert report.scalars["loss"] == pytest.approx(same.scalars["loss"], rel=1e-9)


@pytest.mark.parametrize("name", ["dpo", "ipo", "simpo"])
def test_the_order_of_the_pairs_changes_nothing(name):
    """With KTO it decides which answers are mismatched."""
    episodes = pairs()
    other = [*episodes[4:], *episodes[2:4], episodes[1], episodes[0]]
    one, two = (train(e, settings(name), batches=2)[0] for e in (episodes, other))
    assert torch.allclose(weights(one), weights(two), atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_action_is_inert_even_as_nan(name):
    def spoil(batch):
        return replace(
            batch,
            behaviour=torch.full_like(batch.behaviour, torch.nan),
            weight=torch.where(batch.action, batch.weight, 0.0),
        )

    def poison(learner, batch):
        scores = learner.score(batch)
        if scores.reference is None:
            return scores
        held = torch.where(batch.action, scores.reference.logprob, torch.nan)
        return replace(scores, reference=replace(scores.reference, logprob=held))

    clean, _ = train(data(name), settings(name))
    learner = PreferenceLearner(tiny(), settings(name))
    batch = spoil(assemble(data(name)))
    learner.update(batch, poison(learner, batch), assign(batch, settings(name)), 0.0)
    assert torch.equal(weights(clean), weights(learner))


def test_observations_are_in_no_score():
    """Longer observations behind the last action change no log-prob, and so nothing at all."""

    def longer(one):
        row = one.segments[-1]
        more = segment([*row.ids, 1, 2, 3], [*row.action, 0, 0, 0], None, [*row.turn, 9, 9, 9])
        return replace(one, segments=(*one.segments[:-1], more))

    plain, _ = train(pairs(), settings("ipo"), batches=2)
    padded, _ = train([longer(one) for one in pairs()], settings("ipo"), batches=2)
    assert torch.allclose(weights(plain), weights(padded), atol=1e-10)


def test_a_pair_that_lost_a_side_is_in_no_term():
    """Of three pairs one has a rejected side without weight, and one no rejected side at all."""
    episodes = pairs()
    mute = episodes[3]
    zero = [replace(row, weight=np.zeros(len(row), np.float32)) for row in mute.segments]
    broken = [*episodes[:3], replace(mute, segments=tuple(zero)), episodes[4]]
    one, _ = train(broken, settings(), batches=2)
    two, _ = train(episodes[:2], settings(), batches=2)
    assert torch.allclose(weights(one), weights(two), atol=1e-10)


def test_without_any_whole_pair_there_is_no_update():
    with pytest.raises(ContractViolation, match="no token of the batch is valid"):
        train(pairs()[:1], settings())


def test_equal_sides_have_no_gradient_under_dpo_and_one_constant_loss_under_ipo():
    row = segment([1, 2, 3, 4], [0, 0, 1, 1])
    same = [side(0, 0, [row]), side(0, 1, [row])]
    for name, loss in (("dpo", np.log(2)), ("ipo", 25.0)):
        _, report = train(same, settings(name), batches=3)
        assert report.scalars["loss"] == pytest.approx(loss)
        assert report.scalars["grad_norm"] == pytest.approx(0.0, abs=1e-12)


def test_sum_and_mean_are_two_losses():
    one, two = (
        train(pairs(), settings(preference={"reduction": how}), batches=2)[1].scalars["loss"]
        for how in ("sum", "mean")
    )
    assert abs(one - two) > 1e-3


@pytest.mark.parametrize("change", [{"excess": 0.5}, {"decay": 0.7}, {"nll": 1.0}])
def test_variants_move_the_weights_elsewhere(change):
    plain, _ = train(pairs(), settings(), batches=2)
    other, _ = train(pairs(), settings(preference=change), batches=2)
    assert (weights(plain) - weights(other)).abs().max() > 1e-4


def test_training_tells_chosen_from_rejected():
    _, report = train(pairs(), settings(), batches=8)
    assert report.scalars["preference/accuracy"] == 1.0
    assert report.scalars["preference/margin"] > 0.5
    assert report.tallies["preference/chosen"].mean > report.tallies["preference/rejected"].mean


def test_a_reference_that_is_not_the_start_is_refused():
    learner = PreferenceLearner(tiny(), settings())
    with torch.no_grad():
        next(learner.policy.model.parameters()).add_(0.1)
    batch = assemble(pairs())
    with pytest.raises(ContractViolation, match="not the policy that it was copied from"):
        learner.update(batch, learner.score(batch), assign(batch, settings()), 0.0)


def test_a_reference_that_was_not_scored_is_refused():
    learner, batch = PreferenceLearner(tiny(), settings()), assemble(pairs())
    with pytest.raises(ContractViolation, match="score the batch first"):
        learner.update(batch, type(learner.score(batch))(), assign(batch, settings()), 0.0)


def test_the_reference_never_moves_and_needs_no_optimiser():
    start = weights(PreferenceLearner(tiny(), settings()))
    learner, _ = train(pairs(), settings(), batches=2)
    frozen = torch.cat([p.reshape(-1) for p in learner.reference.parameters()])
    assert torch.equal(frozen, start) and not frozen.requires_grad
    assert (weights(learner) - start).abs().max() > 1e-3
    assert PreferenceLearner(tiny(), settings("simpo")).reference is None


def test_a_resumed_learner_goes_on_bit_for_bit():
    whole, _ = train(pairs(), settings(update={"epochs": 2, "minibatches": 2}), batches=3)
    recipe = settings(update={"epochs": 2, "minibatches": 2})
    first, _ = train(pairs(), recipe, batches=1)
    second = PreferenceLearner(tiny(), recipe)
    second.restore(first.state())
    batch = assemble(pairs())
    for _ in range(2):
        second.update(batch, second.score(batch), assign(batch, recipe), 0.0)
    assert torch.equal(weights(whole), weights(second)) and second.version == 3


def test_a_resume_from_another_start_is_refused():
    learner, _ = train(pairs(), settings())
    with pytest.raises(UserError, match="other weights than when the run began"):
        PreferenceLearner(tiny(seed=1), settings()).restore(learner.state())


def rounds(reference):
    """Three batches: a round of two, then one of one. The last report, and the learner."""
    data = {"regime": "iterative", "rounds": {"tasks": 4, "rounds": 2, "reference": reference}}
    learner, losses = PreferenceLearner(tiny(), settings(data=data)), []
    for begins in (True, False, True):
        if begins:
            learner.begin_round()
        batch = assemble(pairs())
        before = weights(learner)
        scores = learner.score(batch)
        report = learner.update(batch, scores, assign(batch, learner.recipe), 0.0)
        losses.append(report.scalars["loss"])
    return learner, scores.reference, losses, before


def test_the_reference_of_a_round_is_the_policy_that_it_starts_with():
    learner, role, losses, before = rounds("round_start")
    assert losses[0] == pytest.approx(np.log(2), abs=1e-9) and losses[1] < 0.69
    assert losses[2] == pytest.approx(np.log(2), abs=1e-9)
    frozen = torch.cat([p.reshape(-1) for p in learner.reference.parameters()])
    assert torch.equal(frozen, before) and not frozen.requires_grad
    assert (role.version, role.digest) == (2, learner.anchor) != (2, learner.lineage)


def test_the_initial_reference_stays_through_all_rounds():
    learner, role, losses, _ = rounds("initial")
    assert losses[0] == pytest.approx(np.log(2), abs=1e-9) and losses[2] < losses[1] < 0.69
    frozen = torch.cat([p.reshape(-1) for p in learner.reference.parameters()])
    assert torch.equal(frozen, weights(PreferenceLearner(tiny(), settings())))
    assert role.version == 0


def test_a_resume_in_a_later_round_keeps_its_reference():
    learner, *_ = rounds("round_start")
    again = PreferenceLearner(tiny(seed=1), learner.recipe)
    again.restore(learner.state())
    batch = assemble(pairs())
    ours, theirs = (each.score(batch).reference for each in (learner, again))
    assert torch.equal(ours.logprob[batch.action], theirs.logprob[batch.action])
    assert (ours.version, ours.digest) == (theirs.version, theirs.digest) == (2, again.anchor)


# -- KTO ---------------------------------------------------------------------------------------


def test_ktos_baseline_is_the_mean_of_mismatched_scores():
    """Four tasks: every prompt with the next answer, the last one with the first."""
    recipe, episodes = settings("kto"), singles()
    learner, _ = train(episodes, recipe, batches=2)
    expected = []
    for number, one in enumerate(episodes):
        prompt, answer = one.segments[0], episodes[(number + 1) % 4].segments[0]
        head, tail = int(prompt.action.argmax()), int(answer.action.argmax())
        ids = torch.tensor(np.concatenate([prompt.ids[:head], answer.ids[tail:]]))[None].long()
        acted = torch.tensor(np.concatenate([prompt.action[:head], answer.action[tail:]]))
        with torch.no_grad():
            logs = [
                torch.log_softmax(model(ids).logits[0], -1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
                for model in (learner.policy.model, learner.reference.model)
            ]
        expected.append(float((logs[0] - logs[1])[acted[1:]].sum()))
    batch = assemble(episodes)
    report = learner.update(batch, learner.score(batch), assign(batch, recipe), 0.0)
    assert report.tallies["preference/mismatch"].mean == pytest.approx(np.mean(expected))
    assert report.tallies["preference/mismatch"].count == 4


def test_answers_to_the_same_task_are_no_mismatch():
    learner, report = train(pairs(count=1), settings("kto"), batches=2)
    assert "preference/mismatch" not in report.tallies and learner.steps == 2


def test_kto_refuses_episodes_of_several_contexts():
    with pytest.raises(ContractViolation, match="2 contexts"):
        train(pairs(), settings("kto"))
