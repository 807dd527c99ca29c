"""Policy roles over recorded sets: hand-computed numbers, and the real engine's own record."""

import asyncio
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_world import episode, random_episodes, recipe, segment, tiny

from hexad.contract.faults import ContractViolation
from hexad.contract.sampling import Sampling
from hexad.contract.support import Support
from hexad.learner.assemble import assemble
from hexad.learner.batch import Credit
from hexad.learner.learner import Learner
from hexad.learner.pack import Sets, layouts, pack
from hexad.learner.root import Root, over_sets
from hexad.policy.engine import DrawKey, Request
from hexad.policy.load import load_policy
from hexad.policy.local import LocalEngine

STEPPED = {"update": {"minibatches": 2}}
"""More than one step a batch, so that ``old`` is evaluated beforehand."""
SIXTEENTHS = torch.tensor([[8.0, 4.0, 2.0, 1.0, 1.0]], dtype=torch.float64).log()


def sets(*members, place):
    """Sets of the given ids; ``place`` is the position of each target in its own set."""
    lengths = torch.tensor([len(ids) for ids in members])
    starts = lengths.cumsum(0) - lengths
    return Sets(torch.tensor([i for ids in members for i in ids]), lengths, starts + place)


def cut(part, rng, vocab=32, forced=0.2, whole=False):
    """``part`` with random sets around its action tokens; log-prob 0 where a set is alone."""
    chosen, logprob = [], part.logprob.copy()
    for at, (token, acted) in enumerate(zip(part.ids.tolist(), part.action, strict=True)):
        others = rng.permutation(np.delete(np.arange(vocab), token))
        count = 0 if rng.random() < forced else int(rng.integers(1, 9))
        ids = range(vocab) if whole else sorted([token, *others[:count].tolist()])
        chosen.append(list(ids) if acted else [])
        if acted and len(chosen[-1]) == 1:
            logprob[at] = 0.0
    return replace(part, logprob=logprob, support=Support.of(chosen))


def cut_episodes(seed=0, **options):
    rng = np.random.default_rng(seed)
    return [
        replace(e, segments=tuple(cut(s, rng, **options) for s in e.segments))
        for e in random_episodes(seed)
    ]


def evaluated(root, batch, limit=10_000, temperature=1.0, raw=False):
    """Log-prob and entropy [T] of the action tokens."""
    found = torch.full((2, len(batch.ids)), torch.nan, dtype=torch.float64)
    for micro in pack(batch, layouts(batch, batch.action), limit, raw=raw):
        out = root(micro.ids, micro.select, micro.targets, temperature, micro.sets)
        for line, values in zip(found, out[:2], strict=True):
            line[micro.tokens] = values.detach().double()
    return found[:, batch.action]


def test_numbers_by_hand():
    """Probabilities 8 4 2 1 1 of 16. In {0, 2} they are 8 and 2 of 10; in {3, 4} one half each."""
    logits = SIXTEENTHS.expand(4, 5).clone().requires_grad_()
    chosen = sets([0, 2], [3, 4], [1], [0, 1, 2, 3, 4], place=torch.tensor([1, 0, 0, 1]))
    logprob, entropy = over_sets(logits, chosen)
    assert logprob.exp().tolist() == pytest.approx([0.2, 0.5, 1.0, 0.25])
    expected = -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))
    full = math.log(2) / 2 + math.log(4) / 4 + math.log(8) / 8 + math.log(16) / 8
    assert entropy.tolist() == pytest.approx([expected, math.log(2), 0.0, full])
    assert logprob[2].item() == 0.0 and entropy[2].item() == 0.0
    assert not entropy.requires_grad
    (gradient,) = torch.autograd.grad(logprob.sum(), logits)
    assert gradient[0].tolist() == pytest.approx([-0.8, 0, 0.8, 0, 0])
    assert gradient[1].tolist() == pytest.approx([0, 0, 0, 0.5, -0.5])
    assert gradient[2].tolist() == [0.0] * 5
    assert gradient[3].tolist() == pytest.approx([-0.5, 0.75, -0.125, -0.0625, -0.0625])


def test_the_gradient_is_that_of_finite_differences():
    logits = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    chosen = sets([0, 3, 5], [2, 6], [1, 2, 3, 4], place=torch.tensor([2, 0, 3]))
    assert torch.autograd.gradcheck(lambda z: over_sets(z, chosen)[0], logits)


def test_only_differences_inside_a_set_matter():
    """New weights put nearly all mass outside the set: nothing moves, and nothing overflows."""
    chosen = sets([0, 2], place=torch.tensor([1]))
    moved = SIXTEENTHS.clone()
    moved[:, [1, 3, 4]] += 1e4
    for logits in (moved, moved - 1e6, moved.float()):
        logits = logits.clone().requires_grad_()
        logprob, entropy = over_sets(logits, chosen)
        assert logprob.item() == pytest.approx(math.log(0.2), abs=0.05)
        (gradient,) = torch.autograd.grad(logprob.sum(), logits)
        assert torch.isfinite(gradient).all() and math.isfinite(entropy.item())
        assert gradient[0, [1, 3, 4]].tolist() == [0.0] * 3


@pytest.mark.parametrize("gap", [50.0, 200.0, 1e4])
def test_a_set_whose_tokens_lie_far_apart_stays_finite(gap):
    logits = torch.tensor([[0.0, gap, -gap]], requires_grad=True)
    logprob, entropy = over_sets(logits, sets([0, 1, 2], place=torch.tensor([2])))
    assert logprob.item() == pytest.approx(-2 * gap, rel=1e-6)
    (gradient,) = torch.autograd.grad(logprob.sum(), logits)
    assert torch.isfinite(gradient).all() and entropy.item() >= 0.0


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_selected_log_probs_equal_a_masked_softmax_of_each_row(temperature):
    model = tiny().model
    batch = assemble(cut_episodes(1))
    expected, entropies = [], []
    for row in range(len(batch.offsets) - 1):
        start, end = batch.offsets[row : row + 2].tolist()
        logits = model(batch.ids[start:end][None]).logits[0].detach() / temperature
        for at in range(start + 1, end):
            if not batch.action[at]:
                continue
            a, b = batch.support_edges[at : at + 2].tolist()
            ids = batch.support_ids[a:b].long()
            kept = torch.full((32,), -torch.inf, dtype=torch.float64)
            kept[ids] = logits[at - start - 1, ids]
            logs = kept.log_softmax(-1)
            expected.append(logs[batch.ids[at]].item())
            entropies.append(float(torch.special.entr(logs.exp()).sum()))
    found = evaluated(Root(model), batch, temperature=temperature)
    assert np.allclose(found[0], expected, atol=1e-12, rtol=0)
    assert np.allclose(found[1], entropies, atol=1e-12, rtol=0)
    assert (found[0][batch.forced[batch.action]] == 0.0).all()
    assert batch.forced.sum() > 3


@pytest.mark.parametrize("limit", [1, 30, 90])
def test_padding_and_split_change_no_log_prob(limit):
    root, batch = Root(tiny().model), assemble(cut_episodes(2))
    together, apart = evaluated(root, batch), evaluated(root, batch, limit)
    assert torch.allclose(together, apart, atol=1e-12, rtol=0)


def test_a_set_of_the_whole_vocabulary_is_no_cut():
    root = Root(tiny().model)
    whole, plain = assemble(cut_episodes(3, whole=True)), assemble(random_episodes(3))
    assert torch.allclose(evaluated(root, whole), evaluated(root, plain), atol=1e-12, rtol=0)


def test_raw_log_probs_do_not_see_the_sets():
    """Imitation and preference losses are over the full vocabulary."""
    root = Root(tiny().model)
    sets_, plain = assemble(cut_episodes(4)), assemble(random_episodes(4))
    assert torch.equal(evaluated(root, sets_, raw=True), evaluated(root, plain))
    assert not torch.allclose(evaluated(root, sets_), evaluated(root, plain), atol=1e-2)
    imitation = recipe(update={"surrogate": "nll"}, credit={"estimator": "none"})
    losses = [step(Learner(tiny(), imitation), batch) for batch in (sets_, plain)]
    assert losses[0] == losses[1]


def test_a_token_outside_its_set_or_without_one_is_a_broken_contract():
    part = segment([1, 2, 3], [0, 1, 1])
    for members in ([[], [1, 4], [3]], [[], [2, 2], [3]], [[], [2], []]):
        batch = assemble([episode("a", [replace(part, support=Support.of(members))])])
        with pytest.raises(ContractViolation, match="1 of 2 tokens are not once in their own set"):
            list(pack(batch, layouts(batch, batch.action), 100))
        assert next(pack(batch, layouts(batch, batch.action), 100, raw=True)).sets is None


def test_rows_without_sets_among_rows_with_sets_are_refused():
    both = assemble([*cut_episodes(5), *random_episodes(6)])
    with pytest.raises(ContractViolation, match="own set"):
        list(pack(both, layouts(both, both.action), 10_000))


def step(learner, batch):
    advantage = torch.linspace(-1, 1, len(batch.ids), dtype=torch.float64)
    credit = credit_of(batch, advantage)
    report = learner.update(batch, learner.score(batch), credit, 0.0)
    return report.scalars["loss"], report.scalars["grad_norm"]


def credit_of(batch, advantage):
    spare = {"counted": torch.ones(len(batch.episodes), dtype=torch.bool)}
    known = {name: value for name, value in spare.items() if name in Credit.__annotations__}
    return Credit(torch.where(batch.action, advantage, 0.0), **known)


def test_forced_tokens_are_no_policy_statistics_and_stay_in_the_denominator():
    batch = assemble(cut_episodes(7, forced=0.5))
    valid = batch.action & batch.scored[batch.token_episode]
    free, every = int((valid & ~batch.forced).sum()), int(valid.sum())
    assert 0 < free < every
    for epochs in ({"epochs": 2}, {"epochs": 1, "minibatches": 1}):
        learner = Learner(tiny(), recipe(update=epochs))
        report = learner.update(
            batch, learner.score(batch), credit_of(batch, torch.ones(len(batch.ids))), 0.0
        )
        assert report.loss_tokens == every * epochs["epochs"]
        assert report.tallies["entropy"].count == free
        assert report.tallies["mismatch/engine"].count == free
        assert report.tallies["kl"].count == free * epochs["epochs"]
        assert report.tallies["entropy"].mean > 0


def test_forced_tokens_do_not_dilute_the_divergence_that_stops_a_batch():
    batch = assemble(cut_episodes(7, forced=0.6))
    credit = credit_of(batch, torch.linspace(-1, 1, len(batch.ids), dtype=torch.float64))
    steps = []
    limit = None
    for _ in range(2):
        learner = Learner(tiny(), recipe(update={"epochs": 2, "target_kl": limit}))
        report = learner.update(batch, learner.score(batch), credit, 0.0)
        steps.append(report.optimizer_steps)
        limit = 0.9 * 2 * report.scalars["kl"]  # nothing has moved in the first of two passes
    assert steps == [2, 1]


def test_new_weights_that_leave_the_sets_give_finite_numbers():
    """Weights three times as large: inside a set tokens lie far apart."""
    learner = Learner(tiny(), recipe(**STEPPED))
    batch = assemble(cut_episodes(8))
    scores = learner.score(batch)
    with torch.no_grad():
        for parameter in learner.policy.model.parameters():
            parameter.mul_(3.0)
    credit = credit_of(batch, torch.linspace(-1, 1, len(batch.ids), dtype=torch.float64))
    report = learner.update(batch, scores, credit, 0.0)
    assert all(math.isfinite(number) for number in report.scalars.values())
    for name, tally in report.tallies.items():
        assert tally.missing == 0, name


POLICY = load_policy("builtin:tiny", seed=3)
with torch.no_grad():
    POLICY.model.model.norm.weight.mul_(4.0)  # decided, as a trained policy is
NUMBER = 'start: /[0-9]+/ ("calculate" | "apples") /[0-9]+/'
GRID = [
    Sampling(*values)
    for values in itertools.product(
        [1.0, 0.7, 1.6], [0, 4, 600], [1.0, 0.9, 0.5], [0.0, 0.05], [None, NUMBER]
    )
]


def sampled(sampling, count=5):
    """One-turn episodes that the real engine sampled from random prompts."""
    rng = np.random.default_rng(11)
    requests = [
        Request(
            ids=rng.integers(7, 512, rng.integers(2, 24)).astype(np.int32),
            sampling=sampling,
            key=DrawKey(1, "t", member),
            max_tokens=int(rng.integers(2, 20)),
            stop_ids=POLICY.stop_ids,
        )
        for member in range(count)
    ]

    async def together():
        engine = LocalEngine(POLICY, rows=3)
        return await asyncio.gather(*[engine.sample(each) for each in requests])

    episodes = []
    for number, (asked, done) in enumerate(zip(requests, asyncio.run(together()), strict=True)):
        prompt = len(asked.ids)
        part = segment([*asked.ids, *done.ids], [0] * prompt + [1] * len(done.ids), done.logprobs)
        if done.support is not None:
            part = replace(part, support=Support.joined([Support.empty(prompt), done.support]))
        episodes.append(episode(f"e{number}", [part], reward=float(number % 2)))
    return episodes


@pytest.mark.parametrize("sampling", GRID, ids=str)
def test_the_ratio_of_equal_weights_is_one_under_every_transform(sampling):
    """|log(sampled / behaviour)| <= 1e-4 in fp32: grammar x temperature x top_k x top_p x min_p."""
    spec = {"temperature": sampling.temperature, "top_k": sampling.top_k}
    spec |= {"top_p": sampling.top_p, "min_p": sampling.min_p}
    learner = Learner(POLICY, recipe(policy={"sampling": spec}, **STEPPED))
    batch = assemble(sampled(sampling))
    assert (batch.support_ids is None) == sampling.full_support
    old = learner.score(batch).old
    gap = (old.logprob - batch.behaviour)[batch.action].abs()
    assert gap.max() <= 1e-4
    assert torch.isfinite(old.entropy[batch.action]).all()
    assert (old.entropy[batch.forced] == 0).all()
    assert (gap[batch.forced[batch.action]] == 0).all()


def test_the_grid_has_forced_and_free_tokens_and_real_cuts():
    """Else the grid would prove little: over the full vocabulary its log-probs are others."""
    batch = assemble(sampled(Sampling(0.7, 4, 0.9, 0.05, NUMBER)))
    assert 0 < batch.forced.sum() < batch.action.sum()
    learner = Learner(POLICY, recipe(policy={"sampling": {"temperature": 0.7}}, **STEPPED))
    plain = replace(batch, support_ids=None, support_edges=None)
    gap = (learner.score(plain).old.logprob - batch.behaviour)[batch.action]
    assert gap.abs().max() > 1.0
