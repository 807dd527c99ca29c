"""Traces: every token's numbers come back as they were, and a rewound past leaves none."""

import math

import torch
from learner_world import assign, episode, random_episodes, recipe, segment, tiny, train

from hexad.evidence import traces
from hexad.learner.assemble import assemble
from hexad.learner.learner import Learner
from hexad.learner.report import Trace

TWO = episode("two", [segment([1, 2, 3], [0, 1, 1]), segment([4, 5], [0, 1])])
ONE = episode("one", [segment([6, 7, 8], [0, 0, 1])])


def test_numbers_stand_at_their_tokens_segment_by_segment(tmp_path):
    batch = assemble([TWO, ONE])
    ratio = torch.arange(8).double()
    value = torch.arange(8).double() / 10  # of the prefix that ends with the token
    traces.write(tmp_path, 3, batch, Trace(ratio, -ratio), value)
    two, one = (traces.read(tmp_path, 3, name) for name in ("two", "one"))
    assert two[0]["ratio"] == [0, 1, 2] and two[1]["ratio"] == [3, 4]
    assert one[0]["advantage"] == [-5, -6, -7]
    # An action's value is that of the state before it, and other tokens have none.
    assert [round(v, 6) for v in two[0]["value"][1:]] == [0.0, 0.1]
    assert math.isnan(two[0]["value"][0]) and round(one[0]["value"][2], 6) == 0.6
    assert traces.read(tmp_path, 3, "nobody") == traces.read(tmp_path, 4, "one") == {}


def test_batches_of_a_rewound_past_are_forgotten(tmp_path):
    batch = assemble([ONE])
    nothing = torch.full((3,), torch.nan).double()
    for step in (0, 10, 20):
        traces.write(tmp_path, step, batch, Trace(nothing, nothing), None)
    traces.rewind(tmp_path, 10)
    assert [path.name for path in (tmp_path / traces.FOLDER).iterdir()] == ["step_0.parquet"]


def test_the_ratio_is_that_of_the_last_step_that_read_the_token():
    """By hand: current before the second step over behaviour, in a batch of two epochs."""
    settings = recipe(update={"epochs": 2, "minibatches": 1}, run={"traces": 1})
    batch, learner = assemble(random_episodes()), Learner(tiny(), settings)
    credit = assign(batch, settings)
    once = recipe(update={"epochs": 1, "minibatches": 1}, run={"traces": None})
    other = Learner(tiny(), once)
    other.update(batch, other.score(batch), credit, 0.0)
    expected = (other._evaluate(batch, other.root, batch.action)[0] - batch.behaviour).exp()
    trace = learner.update(batch, learner.score(batch), credit, 0.0).trace
    read = trace.ratio.isfinite()
    assert read.any() and not trace.ratio[~batch.action].isfinite().any()
    torch.testing.assert_close(trace.ratio[read], expected[read], rtol=1e-9, atol=1e-12)
    assert torch.equal(trace.advantage[read], credit.advantage[read])
    # The first group is all wrong: no step read its rows.
    silent = batch.episode_group[batch.token_episode] == 0
    assert silent.any() and not read[silent].any()


def test_a_trace_is_kept_every_so_many_batches_and_changes_no_step():
    runs = []
    for every in (None, 2):
        settings = recipe(update={"epochs": 2}, run={"traces": every})
        learner, batch = Learner(tiny(), settings), assemble(random_episodes())
        found = []
        for _ in range(3):
            report = learner.update(batch, learner.score(batch), assign(batch, settings), 0.0)
            found.append(report.trace is not None)
        runs.append((learner.policy.lineage(), found))
    assert runs[0] == (runs[1][0], [False, False, False])
    assert runs[1][1] == [True, False, True]


def test_imitation_has_no_ratio_and_no_trace():
    settings = recipe(
        feedback={"source": "demonstrations"},
        credit={"estimator": "none"},
        update={"surrogate": "nll", "clip_low": None, "clip_high": None},
        run={"traces": 1},
    )
    assert train(random_episodes(), settings)[1].trace is None
