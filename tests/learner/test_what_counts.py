"""Whether forced and gated tokens count is declared; what leaves the recorded sets is seen."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_world import assign, episode, random_episodes, recipe, segment, tiny

from hexad.contract.support import Support
from hexad.learner.assemble import assemble
from hexad.learner.learner import Learner
from hexad.learner.pack import Sets
from hexad.learner.root import Root, outside_sets
from hexad.update.reduce import Index, Reduction, coefficients
from hexad.update.table import SURROGATES

SGD = {"optimizer": {"lr": 1e-2, "clip_norm": None}}
TOKEN = {"denominator": "token"}


def gradient(batch, settings):
    """Gradient and report of the one step that ``settings`` make on ``batch``."""
    learner = Learner(tiny(), settings)
    scores = learner.score(batch)
    report = learner.update(batch, scores, assign(batch, settings), 0.0)
    assert report.optimizer_steps == 1
    return torch.cat([g.reshape(-1) for g in learner.stepper.gradients()]), report


def both(batch, key, **update):
    """The gradients with ``in`` and with ``out``."""
    found = []
    for choice in ("in", "out"):
        action = {**TOKEN, key: choice}
        settings = recipe(action=action, update={**SGD, **update}, credit={"estimator": "rloo"})
        found.append(gradient(batch, settings)[0])
    assert bool((found[0] != 0).any())
    return found


def drifted(seed=0):
    """A batch whose behaviour log-probs lie known log-ratios under the policy's, and those."""
    batch = assemble(random_episodes(seed, rewards=(1.0, 0.0, 0.25)))
    learner = Learner(tiny(), recipe(update={"minibatches": 2}))
    logprob = learner.score(batch).old.logprob
    log = torch.randn(len(logprob), generator=torch.Generator().manual_seed(seed)).double()
    return replace(batch, behaviour=(logprob - log).float()), log


def test_the_worked_number_of_dis():
    """algorithms.md 1.5: the sum 2.0448 over all four tokens is .5112, over the two kept 1.0224."""
    pi, mu = (torch.tensor(x).double() for x in ((0.44, 0.26, 0.65, 0.24), (0.4, 0.4, 0.1, 0.3)))
    facts = {"log_ratio": (pi / mu).log(), "current": pi.log()}
    facts["advantage"] = torch.tensor([1.0, 1.0, -1.0, 1.0]).double()
    numbers, dis = {"low": 0.3, "high": 5.0}, SURROGATES["dis"]
    closed = dis.gated(facts, numbers)
    assert closed.tolist() == [False, True, True, False]
    where = torch.zeros(4, dtype=torch.int64)
    for counted, expected in ((torch.ones(4, dtype=torch.bool), 0.5112), (~closed, 1.0224)):
        index = Index(where, where, where, where, counted, torch.ones(4))
        loss = (coefficients(index, Reduction("token")) * dis.loss(facts, numbers)).sum()
        assert float(loss) == pytest.approx(expected, abs=5e-5)


def test_the_gate_of_a_difference_knows_which_way_it_pushes():
    """.70 -> .95 and back: dropped where the advantage pushes on, kept where it pulls back."""
    new, old = torch.tensor([0.95, 0.95, 0.7, 0.7]).double(), torch.tensor([0.7, 0.7, 0.95, 0.95])
    facts = {"log_ratio": (new / old).log(), "current": new.log()}
    facts["advantage"] = torch.tensor([1.0, -1.0, 1.0, -1.0]).double()
    numbers = {"low": 0.2, "high": 0.2}
    assert SURROGATES["difference"].gated(facts, numbers).tolist() == [True, False, False, True]
    assert not SURROGATES["clip"].gated(facts, numbers).any()


def test_tokens_behind_the_gate_of_dis_leave_the_denominator_where_declared():
    batch, log = drifted()
    rho = log.exp()[batch.action]
    kept = ((rho > 0.5) & (rho < 2.0)).sum()
    inside, out = both(batch, "gated", surrogate="dis", clip_low=0.5, clip_high=1.0)
    assert 0 < kept < batch.action.sum()
    torch.testing.assert_close(out, inside * batch.action.sum() / kept, rtol=1e-5, atol=1e-7)


def test_tokens_that_a_correction_drops_leave_the_denominator_where_declared():
    batch, log = drifted(1)
    rho = log.exp()[batch.action]
    kept = ((rho >= 0.5) & (rho <= 2.0)).sum()
    spec = {"ratio": "proximal", "rule": "icepop", "low": 0.5, "high": 2.0}
    inside, out = both(batch, "gated", correction=spec)
    assert 0 < kept < batch.action.sum()
    torch.testing.assert_close(out, inside * batch.action.sum() / kept, rtol=1e-5, atol=1e-7)


def forcing():
    """Two episodes of three tokens; the first token of the first one had no alternative."""
    chosen = [[7], [1, 5], [2, 9], [3, 4, 8], [6, 10], [0, 11]]
    rows = []
    for sets in (chosen[:3], chosen[3:]):
        logprob = np.where([len(ids) == 1 for ids in sets], 0.0, -1.0).astype(np.float32)
        row = segment([9, *(ids[0] for ids in sets)], [0, 1, 1, 1], logprob=logprob)
        rows.append(replace(row, support=Support.of([[], *sets])))
    return assemble([episode(str(i), [row], reward=float(i)) for i, row in enumerate(rows)])


def test_forced_tokens_leave_the_denominator_where_declared():
    """Six tokens, one of them forced: without it the gradient is 6/5 of what it was."""
    batch = forcing()
    assert int(batch.forced[batch.action].sum()) == 1
    inside, out = both(batch, "forced")
    torch.testing.assert_close(out, inside * 6 / 5, rtol=1e-5, atol=1e-7)


def test_probability_outside_the_recorded_sets_is_measured():
    """(8, 4, 2, 1, 1) / 16: outside of {0, 1} lies 1/4, of {3} 15/16, of everything nothing."""
    logits = torch.tensor([[8.0, 4.0, 2.0, 1.0, 1.0]] * 3, dtype=torch.float64).log()
    sets = Sets(torch.tensor([0, 1, 3, 0, 1, 2, 3, 4]), torch.tensor([2, 1, 5]), torch.tensor([0]))
    assert outside_sets(logits, sets).tolist() == pytest.approx([0.25, 0.9375, 0.0], abs=1e-12)


def test_drift_out_of_the_sets_is_in_the_report():
    batch = forcing()
    _, report = gradient(batch, recipe(action=TOKEN, update=SGD, credit={"estimator": "rloo"}))
    logits = Root(tiny().model).model(input_ids=batch.ids.reshape(2, 4)).logits.double()
    share = logits.detach().softmax(-1)[:, :-1].reshape(6, -1)
    expected = []
    for at, token in enumerate(batch.action.nonzero().squeeze(1).tolist()):
        ids = batch.support_ids[batch.support_edges[token] : batch.support_edges[token + 1]]
        if len(ids) > 1:
            expected.append(1 - float(share[at][ids.long()].sum()))
    tally = report.tallies["support/outside"]
    assert tally.count == 5 and tally.mean == pytest.approx(sum(expected) / 5)
    plain = assemble(random_episodes(2))
    _, report = gradient(plain, recipe(action=TOKEN, update=SGD))
    assert "support/outside" not in report.tallies
