"""``update.old`` and ``update.sampled``: whose log-probs they are, kept, bounded and resumed."""

import copy
from dataclasses import replace

import pytest
import torch
from learner_world import assign, episode, parameters, random_episodes, recipe, segment, tiny

from hexad.contract.faults import ContractViolation
from hexad.learner.assemble import assemble
from hexad.learner.batch import Scores
from hexad.learner.learner import Learner
from hexad.learner.minibatch import index_of
from hexad.learner.objective import corrected
from hexad.update.anchor import ewma

LAG = {"mode": "asynchronous", "max_lag": 2}


def made(old="recomputed", sampled="this_version", **update):
    update = {"minibatches": 2, "old": old, "sampled": sampled, **update}
    return recipe(update=update, timing=LAG)


def aged(batch, *versions):
    """``batch`` with these versions, one an episode in turn."""
    each = torch.tensor([versions[i % len(versions)] for i in range(len(batch.episodes))])
    return replace(batch, version=torch.where(batch.action, each[batch.token_episode], -1))


def trained(settings, batches, seed=0):
    """A learner after ``batches``, and the weights that each version had."""
    learner, held = Learner(tiny(seed), settings), []
    for number in range(batches):
        held.append(copy.deepcopy(learner.policy))
        step(learner, settings, number)
    return learner, held


def step(learner, settings, number):
    batch = aged(assemble(random_episodes(number)), *range(max(0, number - 2), number + 1))
    return learner.update(batch, learner.score(batch), assign(batch, settings), 0.0)


def spoken(policy, batch):
    """Log-probs of ``batch`` by ``policy``, as a fresh learner recomputes them."""
    return Learner(policy, made()).score(batch).old.logprob


def test_snapshots_say_each_token_by_the_weights_that_sampled_it():
    settings = made("snapshot", "snapshot")
    learner, held = trained(settings, 3)
    batch = aged(assemble(random_episodes(9)), 1, 2, 3)
    scores = learner.score(batch)
    assert scores.old is scores.sampled
    for version, policy in ((1, held[1]), (2, held[2]), (3, learner.policy)):
        mask = batch.version == version
        assert torch.equal(scores.old.logprob[mask], spoken(policy, batch)[mask]), version
    assert scores.old.logprob[~batch.action].isnan().all()
    digests = [held[1].lineage(), held[2].lineage(), learner.lineage]
    assert scores.old.played == ",".join(
        f"{v}:{d}" for v, d in zip((1, 2, 3), digests, strict=True)
    )
    assert len(set(digests)) == 3
    report = learner.update(batch, scores, assign(batch, settings), 0.0)
    assert report.roles["old"] == report.roles["sampled"] == scores.old.played


def test_as_many_weights_are_kept_as_data_may_lag():
    learner, held = trained(made(sampled="snapshot"), 4)
    kept = learner.roles.snapshots
    assert kept.digests == {2: held[2].lineage(), 3: held[3].lineage()}
    assert set(kept.weights) == set(kept.digests.values())
    assert all(t.device.type == "cpu" for named in kept.weights.values() for t in named.values())
    names = {name for name, _ in learner.policy.model.named_parameters()}
    assert all(set(named) == names for named in kept.weights.values())  # tied ones once
    scores = learner.score(aged(assemble(random_episodes(9)), 1, 2))
    lost = scores.sampled.logprob.isnan()
    batch = aged(assemble(random_episodes(9)), 1, 2)
    assert torch.equal(lost, batch.version != 2)  # version 1 is gone: missing, not 1


def test_versions_of_equal_weights_share_one_copy():
    settings = made(sampled="snapshot")
    learner = Learner(tiny(), settings)
    for number in range(2):
        batch = assemble(random_episodes(number))
        learner.skip(batch, learner.score(batch), assign(batch, settings), 0.0)
    kept = learner.roles.snapshots
    assert list(kept.digests) == [0, 1] and len(kept.weights) == 1
    batch = aged(assemble(random_episodes(5)), 0, 1)
    scores = learner.score(batch)
    assert torch.equal(scores.sampled.logprob[batch.action], scores.old.logprob[batch.action])
    assert scores.sampled.forward == 0  # the learner's own pass says it all


def test_without_snapshots_older_tokens_have_no_sampled():
    learner, _ = trained(made(), 2)
    batch = aged(assemble(random_episodes(9)), 1, 2)
    scores = learner.score(batch)
    assert torch.equal(scores.sampled.logprob.isfinite(), batch.version == 2)


@pytest.mark.parametrize("minibatches", [1, 2])
def test_nobody_says_sampled_where_the_recipe_says_none(minibatches):
    seen = {}
    for sampled in ("none", "this_version"):
        settings = made(sampled=sampled, minibatches=minibatches)
        learner = Learner(tiny(), settings)
        batch = assemble(random_episodes(9))
        scores = learner.score(batch)
        assert scores.sampled is None or (sampled, minibatches) == ("this_version", 2)
        report = learner.update(batch, scores, assign(batch, settings), 0.0)
        seen[sampled] = any("engine" in name for name in report.tallies)
    assert seen == {"none": False, "this_version": True}


def test_interpolated_by_hand():
    """algorithms.md 3.2: at version 6, alpha is 3/4 for version 3 and 0 for version 6."""
    learner = Learner(tiny(), made("interpolated"))
    learner.version = 6
    rows = [segment([5, 6, 7], [0, 1, 1], [-1.2, -1.2], version=v) for v in (3, 6)]
    batch = assemble([episode(str(i), [row]) for i, row in enumerate(rows)])
    now = spoken(learner.policy, batch)
    found = learner.score(batch)
    old = found.old.logprob
    expected = -1.2 + 0.75 * (now[1:3] + 1.2)
    assert old[1:3].tolist() == pytest.approx(expected.tolist(), abs=1e-7)
    assert torch.equal(old[4:6], batch.behaviour[4:6].double())
    assert torch.equal(found.sampled.logprob[4:6], now[4:6])  # engine / learner is still watched
    assert torch.equal(
        found.old.entropy[batch.action], learner.score(batch).old.entropy[batch.action]
    )


def test_the_average_of_weights_is_old_and_forgets_by_its_decay():
    settings = made("ewma", decay=0.9, correction={"ratio": "proximal", "rule": "tis", "high": 5.0})
    learner = Learner(tiny(), settings)
    name, weight = next(iter(learner.stepper.masters.items()))
    average, total, seen = weight.detach().clone(), 1.0, []
    inner = learner.stepper.step

    def watched(*args):
        rate = inner(*args)
        seen.append(weight.detach().clone())
        return rate

    learner.stepper.step = watched
    for number in range(2):
        step(learner, settings, number)
    assert len(seen) == 4  # optimiser steps, not batches
    for value in seen:
        average, total = ewma(average, total, value, decay=0.9)
    assert torch.equal(learner.roles.average.weights[name], average)
    batch = assemble(random_episodes(9))
    meant = copy.deepcopy(learner.policy)
    with torch.no_grad():
        for key, parameter in meant.model.named_parameters():
            parameter.copy_(learner.roles.average.weights[key])
    scores = learner.score(aged(batch, 2))
    assert torch.equal(scores.old.logprob[batch.action], spoken(meant, batch)[batch.action])
    now = spoken(learner.policy, batch)[batch.action]
    assert torch.equal(scores.sampled.logprob[batch.action], now)
    assert not torch.equal(scores.old.logprob[batch.action], now)


def test_the_average_follows_a_policy_that_shares_its_trunk_with_a_critic():
    settings = recipe(
        credit={"estimator": "gae", "lambda_policy": 1.0, "lambda_critic": 1.0},
        critic={"trunk": "shared"},
        update={"old": "ewma", "decay": 0.5},
    )
    learner = Learner(tiny(), settings)
    names = {name for name, _ in learner.policy.model.named_parameters()}
    assert set(learner.roles.average.weights) == names


@pytest.mark.parametrize(
    ("settings", "dtype"),
    [
        (made("snapshot", "snapshot"), torch.float32),
        (made("snapshot", "snapshot"), torch.bfloat16),
        (made("ewma", decay=0.9), torch.float32),
        (made("ewma", decay=0.9), torch.bfloat16),
        (made("interpolated"), torch.float32),
    ],
)
def test_a_resume_is_bit_exact(settings, dtype):
    straight = Learner(tiny(dtype=dtype), settings)
    expected = [step(straight, settings, n) for n in range(5)]
    first = Learner(tiny(dtype=dtype), settings)
    for number in range(3):
        step(first, settings, number)
    saved = first.state()
    step(first, settings, 3)  # what comes after the state was taken does not reach it
    resumed = Learner(tiny(seed=5, dtype=dtype), settings)
    resumed.restore(saved)
    assert [step(resumed, settings, n) for n in (3, 4)] == expected[3:]
    assert torch.equal(parameters(straight), parameters(resumed))


def test_an_old_that_nobody_can_say_stops_the_update():
    settings = made("snapshot", "snapshot")
    learner, _ = trained(settings, 4)
    batch = aged(assemble(random_episodes(9)), 1, 4)
    with pytest.raises(ContractViolation, match="`old` is missing for"):
        learner.update(batch, learner.score(batch), assign(batch, settings), 0.0)


def test_staleness_is_watched_where_the_sampling_version_speaks():
    settings = made(sampled="snapshot")
    learner, held = trained(settings, 2)
    batch = aged(assemble(random_episodes(9)), 1, 2)
    scores = learner.score(batch)
    report = learner.update(batch, scores, assign(batch, settings), 0.0)
    stale = batch.version == 1
    log = scores.old.logprob - spoken(held[1], batch)
    tally = report.tallies["log_ratio/staleness"]
    assert tally.count == int(stale.sum()) and tally.sum == pytest.approx(float(log[stale].sum()))
    assert report.tallies["log_ratio/engine"].count == int(batch.action.sum())


def engine(rule, missing, **more):
    return made(correction={"ratio": "engine", "rule": rule, "missing": missing, **more})


@pytest.mark.parametrize(("missing", "weight"), [("keep", 1.0), ("drop", 0.0)])
@pytest.mark.parametrize("rule", ["tis", "sequence_tis"])
def test_what_follows_a_missing_engine_ratio_is_declared(missing, weight, rule):
    settings = engine(rule, missing, high=2.0)
    learner, _ = trained(settings, 2)
    batch = aged(assemble(random_episodes(9)), 1, 2)
    scores = learner.score(batch)
    index = index_of(batch, batch.action)
    spec = settings.update.correction
    found = corrected(spec, batch, scores, index, torch.zeros(len(batch.ids)))
    old = batch.version == 1
    assert torch.equal(found.missing, old)
    assert found.weight[old].tolist() == [weight] * int(old.sum())
    assert found.keep[old].tolist() == [missing == "keep"] * int(old.sum())
    fresh = batch.version == 2
    log = torch.where(fresh, scores.sampled.logprob - batch.behaviour, 0.0).double()
    if rule == "sequence_tis":
        sums = torch.zeros(len(batch.episodes), dtype=torch.float64)
        log = sums.index_add_(0, batch.token_episode, log)[batch.token_episode]
    assert torch.allclose(found.weight[fresh], log.exp().clamp(max=2.0)[fresh])
    report = learner.update(batch, scores, assign(batch, settings), 0.0)
    assert report.tallies["correction/missing"].sum == int(old.sum())
    assert report.tallies["correction/weight"].count == int(fresh.sum())


def test_one_token_without_a_ratio_leaves_its_episode_without_one():
    batch = assemble([episode(n, [segment(range(4), [0, 1, 1, 1])]) for n in "ab"])
    learner = Learner(tiny(), made())
    scores = learner.score(batch)
    gap = scores.sampled.logprob.clone()
    gap[2] = torch.nan
    scores = Scores(replace(scores.sampled, logprob=gap), scores.old)
    spec = engine("sequence_tis", "drop", high=2.0).update.correction
    found = corrected(spec, batch, scores, index_of(batch, batch.action), torch.zeros(8))
    assert found.missing.tolist() == [False, True, True, True] + [False] * 4
    single = engine("tis", "drop", high=2.0).update.correction
    found = corrected(single, batch, scores, index_of(batch, batch.action), torch.zeros(8))
    assert found.missing.nonzero().flatten().tolist() == [2]


@pytest.mark.parametrize("missing", ["refuse", None])
def test_a_missing_ratio_is_refused_unless_declared(missing):
    settings = engine("tis", missing, high=2.0)
    learner, _ = trained(made(), 2)
    batch = aged(assemble(random_episodes(9)), 1, 2)
    refusing = Learner(learner.policy, settings)
    refusing.version = 2
    count = int((batch.version == 1).sum())
    with pytest.raises(ContractViolation, match=f"`sampled` is missing for {count} tokens"):
        refusing.update(batch, refusing.score(batch), assign(batch, settings), 0.0)
