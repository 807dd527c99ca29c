import dataclasses
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_world import (
    assign,
    episode,
    parameters,
    random_episodes,
    random_segment,
    recipe,
    segment,
    tiny,
    train,
)

from hexad.contract.ending import EndingKind
from hexad.contract.faults import ContractViolation, UserError
from hexad.learner.assemble import assemble
from hexad.learner.batch import Scores
from hexad.learner.learner import Learner
from hexad.learner.report import NonFiniteUpdate

DENOMINATORS = [
    {"denominator": "token"},
    {"denominator": "response"},
    {"denominator": "segment"},
    {"denominator": "episode"},
    {"denominator": "prompt", "inner": "token"},
    {"denominator": "prompt", "inner": "episode"},
    {"denominator": "fixed", "length": 20},
]
STEPPED = {"update": {"minibatches": 2, "epochs": 2}}


def same(left, right, tolerance=1e-9):
    assert torch.allclose(parameters(left), parameters(right), rtol=0, atol=tolerance)


def moved(learner):
    return not torch.equal(parameters(learner), parameters(Learner(tiny(), recipe())))


@pytest.mark.parametrize("action", DENOMINATORS, ids=lambda a: "-".join(map(str, a.values())))
def test_neither_split_nor_order_changes_loss_or_step(action):
    """O05: padded micro-batches of any size, episodes and members in any order."""
    episodes = random_episodes(5)
    settings = recipe(action=action, update={"epochs": 2})
    whole, base = train(episodes, settings)
    for limit in (1, 40, 100):
        split = settings.model_copy(
            update={"system": settings.system.model_copy(update={"micro_batch_tokens": limit})}
        )
        learner, report = train(episodes, split)
        same(whole, learner)
        assert report.scalars == pytest.approx(base.scalars, abs=1e-9)
    learner, report = train(episodes[::-1], settings)
    same(whole, learner)
    assert report.scalars == pytest.approx(base.scalars, abs=1e-9)


def test_the_step_is_the_gradient_of_the_written_objective():
    """GRPO on policy, against a loss written out token by token."""
    episodes = random_episodes(6, groups=3)
    settings = recipe(update={"optimizer": {"clip_norm": None}})
    learner = Learner(tiny(), settings)
    batch = assemble(episodes)
    advantages = [2**0.5, -(0.5**0.5), -(0.5**0.5)]
    model, loss = tiny().model, 0.0
    for number, e in enumerate(episodes):
        score = 0.0 if number < 3 else advantages[number % 3]
        terms = []
        for s in e.segments:
            logits = model(torch.tensor(s.ids)[None].long()).logits[0]
            logs = torch.log_softmax(logits, -1)
            terms += [logs[t - 1, int(s.ids[t])] for t in np.flatnonzero(s.action)]
        loss = loss - score * sum(terms) / len(terms) / len(episodes)
    loss.backward()
    learner.update(batch, learner.score(batch), assign(batch, settings), 0.0)
    expected = [p.grad for p in model.parameters()]
    for found, wanted in zip(learner.stepper.gradients(), expected, strict=True):
        assert torch.allclose(found, wanted, atol=1e-10)


def test_imitation_is_the_token_mean_of_raw_log_probs():
    settings = recipe(
        action={"denominator": "token"},
        update={"surrogate": "nll"},
        credit={"estimator": "none"},
        policy={"sampling": {"temperature": 0.5}},
    )
    rng = np.random.default_rng(0)
    episodes = [episode(str(i), [random_segment(rng)], reward=None) for i in range(3)]
    learner, report = train(episodes, settings)
    total, count = 0.0, 0
    for e in episodes:
        (s,) = e.segments
        logs = torch.log_softmax(tiny().model(torch.tensor(s.ids)[None].long()).logits[0], -1)
        for t in np.flatnonzero(s.action):
            total, count = total - logs[t - 1, int(s.ids[t])].item(), count + 1
    assert report.scalars["loss"] == pytest.approx(total / count, abs=1e-12)
    assert report.tallies["nll"].count == count == report.loss_tokens == report.train_tokens
    assert "old" not in report.roles and moved(learner)


def test_faulted_demonstrations_are_not_imitated():
    settings = recipe(update={"surrogate": "nll"}, credit={"estimator": "none"})
    rng = np.random.default_rng(0)
    good = [episode("a", [random_segment(rng)], reward=None)]
    bad = episode("b", [random_segment(rng)], ending=EndingKind.INFRASTRUCTURE_ERROR, group="h")
    same(train(good, settings)[0], train([*good, bad], settings)[0], 1e-12)


@pytest.mark.parametrize("sections", [{}, STEPPED], ids=["one step", "four steps"])
def test_unscored_episodes_are_in_neither_numerator_nor_n(sections):
    """O08, O16: whatever reward stands in for a fault leaves the update unchanged."""
    settings = recipe(**sections)
    episodes = random_episodes(7)
    rng = np.random.default_rng(9)
    lost = [episode("x", [random_segment(rng)], reward=None, group=f"g{g}") for g in (1, 2)]
    crash = EndingKind.ENVIRONMENT_ERROR
    crashed = [
        episode("y", [random_segment(rng)], reward=r, group="g1", ending=crash) for r in (1.0, -5.0)
    ]
    base, _ = train(episodes, settings)
    same(base, train([*episodes, *lost], settings)[0], 1e-12)
    for one in crashed:
        same(base, train([*episodes, one], settings)[0], 1e-12)


@pytest.mark.parametrize("outside", [torch.nan, 3.0])
def test_values_behind_the_mask_are_inert(outside):
    """NaN, or anything else, in log-probs, weights and advantages of observations."""
    settings = recipe(**STEPPED)

    def junk(batch):
        value = torch.where(batch.action, batch.behaviour, 1e9)
        weight = torch.where(batch.action, batch.weight, outside)
        return dataclasses.replace(batch, behaviour=value, weight=weight)

    episodes = random_episodes(8)
    base, before = train(episodes, settings)
    learner, after = train(episodes, settings, change=junk)
    same(base, learner, 0.0)
    assert before.tallies == after.tallies


def test_credit_behind_the_mask_is_inert():
    settings = recipe(**STEPPED)
    batch = assemble(random_episodes(8))
    made = []
    for junk in (0.0, torch.nan, 1e9):
        learner = Learner(tiny(), settings)
        credit = assign(batch, settings)
        credit = replace(credit, advantage=torch.where(batch.action, credit.advantage, junk))
        report = learner.update(batch, learner.score(batch), credit, 0.0)
        assert report.skipped_rows == 8
        made.append(learner)
    same(made[0], made[1], 0.0)
    same(made[0], made[2], 0.0)


def test_ids_after_the_last_action_are_inert():
    rows = [segment([1, 2, 3, 4], [0, 1, 1, 0]), segment([1, 2, 3, 9, 9, 9], [0, 1, 1, 0, 0, 0])]
    other = segment([1, 7, 8, 2], [0, 1, 1, 0])
    made = [
        train([episode("a", [row]), episode("b", [other], reward=0.0)], recipe())[0] for row in rows
    ]
    same(*made, 0.0)
    assert moved(made[0])


@pytest.mark.parametrize("sections", [{}, STEPPED, {"update": {"surrogate": "plain"}}])
def test_skipping_rows_without_a_gradient_changes_nothing(sections, monkeypatch):
    settings = recipe(**sections)
    episodes = random_episodes(11)
    skipping, report = train(episodes, settings, batches=2)
    assert report.skipped_rows > 0
    assert report.train_tokens < report.loss_tokens

    def every(self, work, part, coefficient):
        rows = torch.unique(work.index.row[part])
        return rows, torch.ones_like(rows, dtype=torch.bool)

    monkeypatch.setattr(Learner, "_live", every)
    full, complete = train(episodes, settings, batches=2)
    assert complete.skipped_rows == 0
    assert complete.train_tokens == complete.loss_tokens == report.loss_tokens
    same(skipping, full, 1e-12)
    assert report.scalars["loss"] == pytest.approx(complete.scalars["loss"], abs=1e-12)


def test_zero_advantage_tokens_stay_in_the_denominator():
    """The wrong-only group of random_episodes halves the loss it shares N with."""
    episodes = random_episodes(12, groups=2)
    settings = recipe(update={"surrogate": "plain"}, credit={"estimator": "reinforce"})
    _, both = train(episodes, settings)
    _, alone = train(episodes[3:], settings)
    assert both.scalars["loss"] == pytest.approx(alone.scalars["loss"] / 2)


def test_a_flat_batch_has_no_gradient_but_still_steps():
    settings = recipe()
    learner, report = train(random_episodes(1, groups=1), settings)
    assert report.optimizer_steps == 1 and report.train_tokens == 0
    assert report.scalars["grad_norm"] == 0.0
    assert not moved(learner)


def test_a_single_step_needs_no_scoring_pass_and_gives_the_same_result():
    settings = recipe()
    episodes = random_episodes(13)
    learner, report = train(episodes, settings)
    other = Learner(tiny(), settings)
    batch = assemble(episodes)
    assert other.score(batch) == Scores()
    two_pass = Learner(tiny(), recipe(update={"epochs": 2}))
    scores = two_pass.score(batch)
    second = other.update(batch, scores, assign(batch, settings), 0.0)
    same(learner, other, 1e-12)
    for name in ("entropy", "log_ratio/engine", "mismatch/engine"):
        assert report.tallies[name].count == second.tallies[name].count
        assert report.tallies[name].mean == pytest.approx(second.tallies[name].mean)


def test_old_is_held_fixed_through_epochs():
    learner, report = train(random_episodes(14), recipe(update={"epochs": 3}))
    assert report.optimizer_steps == 3
    assert report.tallies["log_ratio/update"].high > 1e-3
    again, _ = train(random_episodes(14), recipe(update={"epochs": 3}), batches=1)
    same(learner, again, 0.0)


def test_old_comes_from_the_learner_and_never_from_the_engine():
    """Behaviour log-probs far off move no weight; they show as mismatch."""
    settings = recipe(update={"epochs": 2})

    def shifted(batch):
        return dataclasses.replace(batch, behaviour=batch.behaviour - 0.5)

    episodes = random_episodes(15)
    base, before = train(episodes, settings)
    learner, after = train(episodes, settings, change=shifted)
    same(base, learner, 0.0)
    gap = after.tallies["log_ratio/engine"].mean - before.tallies["log_ratio/engine"].mean
    assert gap == pytest.approx(0.5, abs=1e-6)


def test_sampled_is_missing_where_another_version_sampled():
    settings = recipe(update={"epochs": 2})
    episodes = random_episodes(16)
    learner, _ = train(episodes, settings)
    batch = assemble(episodes)
    scores = learner.score(batch)
    assert scores.sampled is None and scores.old.version == 1
    report = learner.update(batch, scores, assign(batch, settings), 0.0)
    assert "log_ratio/engine" not in report.tallies
    assert set(report.roles) == {"old"}


def test_tokens_of_other_versions_are_in_no_engine_ratio():
    """Two of three tokens were sampled by this version; the gap of the third is no mismatch."""
    settings = recipe(update={"epochs": 2})
    row = segment([1, 2, 3, 4], [0, 1, 1, 1])
    batch = assemble([episode("a", [row]), episode("b", [row], reward=0.0)])
    batch = dataclasses.replace(batch, version=torch.tensor([-1, 7, 0, 7] * 2))
    learner, other = Learner(tiny(), settings), Learner(tiny(), recipe())
    learner.version = other.version = 7
    scores = learner.score(batch)
    assert scores.sampled.logprob.isfinite().tolist() == [False, True, False, True] * 2
    report = learner.update(batch, scores, assign(batch, settings), 0.0)
    assert report.tallies["log_ratio/engine"].count == 4
    single = other.update(batch, other.score(batch), assign(batch, recipe()), 0.0)
    assert single.tallies["log_ratio/engine"].count == 4


@pytest.mark.parametrize("action", DENOMINATORS[:-1], ids=lambda a: "-".join(map(str, a.values())))
def test_a_denominator_covers_one_optimiser_step(action):
    """O05: neither the generation batch nor a micro-batch. Reward 1 everywhere has loss -1."""
    update = {"surrogate": "plain", "minibatches": 2, "optimizer": {"lr": 1e-12}}
    credit = {"estimator": "reinforce", "baseline": "none"}
    settings = recipe(
        action=action, update=update, credit=credit, system={"micro_batch_tokens": 40}
    )
    rng = np.random.default_rng(3)
    episodes = [
        episode(str(i), [random_segment(rng, turns=1 + i % 3)], group=f"g{i % 4}") for i in range(8)
    ]
    _, report = train(episodes, settings)
    losses = report.tallies["loss"]
    assert (losses.count, losses.low, losses.high) == (2, pytest.approx(-1), pytest.approx(-1))


def test_roles_name_who_played_them():
    settings = recipe(update={"epochs": 2})
    episodes = [
        dataclasses.replace(e, provenance=dataclasses.replace(e.provenance, versions=((0, "abc"),)))
        for e in random_episodes(17)
    ]
    learner = Learner(tiny(), settings)
    digest = learner.lineage
    batch = assemble(episodes)
    scores = learner.score(batch)
    report = learner.update(batch, scores, assign(batch, settings), 0.0)
    assert report.roles == {"behaviour": "0:abc", "old": f"0:{digest}", "sampled": f"0:{digest}"}
    assert learner.version == 1 and learner.lineage != digest
    assert learner.lineage == learner.policy.lineage()


def test_a_missing_old_is_refused():
    settings = recipe(update={"epochs": 2})
    batch = assemble(random_episodes(1))
    with pytest.raises(ContractViolation, match="`old` is missing"):
        Learner(tiny(), settings).update(batch, Scores(), assign(batch, settings), 0.0)


def test_no_unit_left_is_refused():
    settings = recipe()
    batch = assemble([episode("a", [segment([1, 2], [0, 1])], reward=None)])
    with pytest.raises(ContractViolation, match="denominator"):
        Learner(tiny(), settings).update(batch, Scores(), assign(batch, settings), 0.0)


def test_target_kl_ends_the_batch_before_the_step_that_breaks_it():
    episodes = random_episodes(18)
    free = {"epochs": 6, "optimizer": {"lr": 0.03}}
    _, unlimited = train(episodes, recipe(update=free))
    learner, report = train(episodes, recipe(update={**free, "target_kl": 1e-3}))
    assert unlimited.optimizer_steps == 6 and not unlimited.stopped
    assert report.stopped and 1 <= report.optimizer_steps < 6
    assert learner.version == 1
    same(learner, train(episodes, recipe(update={**free, "epochs": report.optimizer_steps}))[0])


def test_the_kl_that_stops_covers_rows_without_a_gradient():
    update = {"epochs": 2, "target_kl": 100.0}
    _, report = train(random_episodes(18), recipe(update=update))
    assert report.tallies["kl"].count == 2 * assemble(random_episodes(18)).action.sum()


@pytest.mark.parametrize("weight", [torch.nan, torch.inf])
def test_a_step_on_nan_is_never_made(weight):
    learner = Learner(tiny(), recipe(update={"epochs": 2}))
    batch = assemble(random_episodes(19))
    scores = learner.score(batch)
    credit = assign(batch, learner.recipe)
    with torch.no_grad():
        next(learner.root.model.model.layers[1].parameters())[0, 0] = weight
    before = parameters(learner).clone()
    with pytest.raises(NonFiniteUpdate, match=r"step 0 \(batch 0\)"):
        learner.update(batch, scores, credit, 0.0)
    assert torch.equal(parameters(learner).nan_to_num(), before.nan_to_num())


def test_weights_change_only_under_the_writers_lease():
    seen = []

    class Lease:
        @contextmanager
        def writer(self):
            before = parameters(learner).clone()
            yield
            seen.append(not torch.equal(before, parameters(learner)))

    learner = Learner(tiny(), recipe(update={"epochs": 2}))
    learner.lease = Lease()
    batch = assemble(random_episodes(20))
    start = parameters(learner).clone()
    credit = assign(batch, learner.recipe)
    learner.update(batch, learner.score(batch), credit, 0.0)
    assert seen == [True, True]
    assert not torch.equal(start, parameters(learner))


def test_a_distribution_that_cannot_be_replayed_is_refused():
    for sampling in ({"temperature": 0.0}, {"top_p": 0.0}, {"top_k": 1}):
        with pytest.raises(UserError, match=r"policy\.sampling"):
            Learner(tiny(), recipe(policy={"sampling": sampling}))


def test_every_role_is_tempered_like_the_sampler():
    learner = Learner(tiny(), recipe(policy={"sampling": {"temperature": 0.5}}, **STEPPED))
    batch = assemble([episode("a", [segment([3, 4, 5], [0, 1, 1])])])
    logits = learner.root.model(batch.ids[None]).logits[0]
    logs = torch.log_softmax(logits / 0.5, -1)
    expected = [logs[0, 4].item(), logs[1, 5].item()]
    assert learner.score(batch).old.logprob[1:].tolist() == pytest.approx(expected)
