"""What a shared beginning does to a margin: nothing to a sum, and to ours nothing at all."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_world import assign, segment, tiny
from preference_world import settings, side, train, weights

from hexad.contract.reward import Reward
from hexad.feedback.pairs import Rule, make
from hexad.learner.assemble import assemble
from hexad.learner.comparison import shares
from hexad.learner.minibatch import index_of
from hexad.learner.preference import PreferenceLearner
from hexad.recipe.preference_axis import PreferenceSpec
from hexad.update import preference

PROMPT, SHARED, HEARD = [1, 2, 3], [4, 5], [6, 7]


def one(member, *said):
    """Turn 0 says ``SHARED``, the later ones ``said``, with ``HEARD`` between them."""
    ids, action, turn = list(PROMPT), [0, 0, 0], [0, 0, 0]
    for number, words in enumerate((SHARED, *said)):
        ids += [*words, *HEARD]
        action += [1] * len(words) + [0] * len(HEARD)
        turn += [number] * (len(words) + len(HEARD))
    made = side(0, member, [segment(ids, action, None, turn)])
    return replace(made, rewards=(Reward("task", 1.0 - member),))


def plain(chosen=((8, 9),), rejected=((10,),)):
    return [one(0, *chosen), one(1, *rejected)]


def branched(**said):
    (pair,), _ = make(plain(**said), Rule("branch", 0.5))
    assert pair.branch.turn == 1
    return list(pair.sides("p0"))


def margin(episodes, logs, reduce, spec=None):
    batch = assemble(episodes)
    index = index_of(batch, batch.action & (batch.weight > 0))
    spec = spec or PreferenceSpec(beta=1.0, reduction=reduce)
    log = torch.zeros(len(batch.ids), dtype=torch.float64)
    log[batch.action] = torch.tensor(logs, dtype=torch.float64)
    chosen, rejected = preference.scores(log, index.episode, shares(index, spec), 2, reduce)
    return float(chosen - rejected)


LOGS = [-1.0, -2.0, -0.5, -0.5, -1.0, -2.0, -3.0]
"""Two shared tokens and two of the chosen branch; the same two and one of the rejected."""


def test_a_sum_is_the_same_with_and_without_the_beginning_and_a_mean_is_not():
    """Sum: (-4) - (-6) = (-1) - (-3) = 2. Mean: -4/4 + 6/3 = 1; of the branches -.5 + 3 = 2.5."""
    assert margin(plain(), LOGS, "sum") == margin(branched(), LOGS, "sum") == 2.0
    assert margin(plain(), LOGS, "mean") == 1.0
    assert margin(branched(), LOGS, "mean") == 2.5


def test_turns_are_discounted_from_the_branch_on():
    """DMPO at .5 over two turns: 1, and .5 (1 - .5) / (1 - .25) = 1/3."""
    spec = PreferenceSpec(beta=1.0, reduction="sum", decay=0.5)
    batch = assemble(branched(chosen=((8,), (9,)), rejected=((10,),)))
    index = index_of(batch, batch.action & (batch.weight > 0))
    found = shares(index, spec)
    assert found[found > 0].tolist() == pytest.approx([1.0, 1 / 3, 1.0])


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_training_sees_the_beginning_only_through_a_mean(reduce):
    """Three steps of Adam from a common start; rounding is all that a sum leaves between them."""
    recipe = settings(preference={"reduction": reduce})
    (whole, one), (ours, two) = (train(made, recipe, batches=3) for made in (plain(), branched()))
    gap = float((weights(whole) - weights(ours)).abs().max())
    margins = [report.scalars["preference/margin"] for report in (one, two)]
    if reduce == "sum":
        assert gap < 1e-6 and margins[0] == pytest.approx(margins[1], rel=1e-6)
    else:
        assert gap > 1e-2 and margins[1] > 1.5 * margins[0]


def test_the_loss_is_of_the_branchs_mean():
    """SimPO's margin by hand, from whole-row log-softmaxes of the tokens behind the branch."""
    recipe, sides = settings("simpo"), branched()
    learner = PreferenceLearner(tiny(), recipe)
    means = []
    for each in sides:
        row = each.segments[0]
        ids = torch.tensor(row.ids)[None].long()
        with torch.no_grad():
            logs = torch.log_softmax(learner.policy.model(ids).logits[0], -1)[:-1]
        picked = logs.gather(1, ids[0, 1:, None])[:, 0]
        behind = np.flatnonzero(row.action & (row.turn >= 1)) - 1
        means.append(picked[behind].mean())
    batch = assemble(sides)
    report = learner.update(batch, learner.score(batch), assign(batch, recipe), 0.0)
    expected = 2.0 * float(means[0] - means[1])
    assert report.scalars["preference/margin"] == pytest.approx(expected, rel=1e-9)
    assert report.loss_tokens == 3
