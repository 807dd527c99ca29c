"""Buckets of lag, age and length, with numbers by hand."""

import math
from dataclasses import replace

import pytest
import torch
from learner_world import assign, episode, random_episodes, recipe, segment, tiny

from hexad.contract.mix import labels
from hexad.contract.tally import Tally
from hexad.evidence.staleness import numbers
from hexad.learner import buckets
from hexad.learner.assemble import assemble
from hexad.learner.batch import RoleScore, Scores
from hexad.learner.learner import Learner
from hexad.learner.minibatch import index_of

NAN = math.nan
FIRST = segment(range(5), [0, 1, 1, 0, 1], [-1.0] * 3, [0, 0, 0, 1, 1], [-1, 4, 4, -1, 5])
SECOND = segment(range(2), [0, 1], [-1.0], version=2)
BATCH = assemble([episode("a", [FIRST]), episode("b", [SECOND], reward=0.0)], ages={"b": 5.0})
CURRENT = torch.tensor([NAN, -0.9, -1.2, NAN, -1.0, NAN, -0.5], dtype=torch.float64)


def view(scores=Scores(), batch=BATCH):  # noqa: B008
    lag = torch.where(batch.action, 5 - batch.version, 0)
    length = torch.tensor([3] * 5 + [1] * 2)
    advantage = torch.where(batch.action, torch.arange(7.0).double(), 0.0)
    return buckets.View(batch, index_of(batch, batch.action), scores, advantage, lag, length)


def seen(tokens, batch=BATCH):
    last = buckets.Last.of(len(batch.ids))
    chosen = torch.tensor(tokens)
    below, above = torch.zeros(len(tokens)).bool(), CURRENT[chosen] > -0.7
    last.see(chosen, CURRENT[chosen], (below, above))
    return last


def values(tokens=(1, 2, 4, 6), scores=Scores(), batch=BATCH):  # noqa: B008
    found = buckets.values(view(scores, batch), seen(list(tokens), batch))
    return {name: [round(float(v), 12) for v in tensor] for name, tensor in found.items()}


def test_tokens_fall_into_the_buckets_of_their_own_lag():
    found = values()
    assert found["bucket/lag_0/log_ratio_direct"] == [0.0]
    assert found["bucket/lag_1/log_ratio_direct"] == [0.1, -0.2]
    assert found["bucket/lag_2/log_ratio_direct"] == [0.5]  # lag 3: from 2 to below 4
    assert found["bucket/lag_1/advantage"] == [1.0, 2.0] and found["bucket/lag_2/outside"] == [1.0]
    assert found["bucket/lag_2/kl"] == [pytest.approx(math.expm1(0.5) - 0.5)]
    assert not any(name.startswith("bucket/lag_4") for name in found)


def test_episodes_fall_into_the_bucket_of_their_oldest_token_age_and_length():
    found = values()
    assert found["bucket/lag_1/reward"] == [1.0] and found["bucket/lag_2/reward"] == [0.0]
    assert "bucket/lag_0/reward" not in found
    assert found["bucket/age_4/reward"] == [0.0]  # the other's age is not known
    assert [n for n in found if n.startswith("bucket/age_") and n.endswith("reward")] == [
        "bucket/age_4/reward"
    ]
    assert found["bucket/length_0/reward"] == [1.0, 0.0]
    assert found["bucket/length_0/advantage"] == [1.0, 2.0, 4.0, 6.0]


def test_effective_sample_size_of_episodes_and_of_turn_prefixes():
    found = values()
    one, two = math.exp(-0.1), math.exp(0.5)
    assert found["bucket/length_0/weight"] == pytest.approx([one, two])
    assert found["bucket/lag_1/prefix_weight"] == pytest.approx([one, one])  # after turns 0 and 1
    both = found["bucket/length_0/prefix_weight"]  # one has a second turn, the other has none
    assert both == pytest.approx([one, one, two])
    tally = Tally.of(found["bucket/length_0/weight"])
    share = (one + two) ** 2 / (2 * (one**2 + two**2))
    assert numbers("bucket/length_0/weight", tally) == {"bucket/length_0/ess": pytest.approx(share)}
    # algorithms.md 10: weights 1, 1, 1, 5 are worth 2.286 of 4.
    worked = numbers("bucket/lag_0/prefix_weight", Tally.of([1.0, 1.0, 1.0, 5.0]))
    assert worked == {"bucket/lag_0/ess_prefix": pytest.approx(0.571, abs=5e-4)}


def test_a_row_that_no_step_read_counts_by_old_where_the_learner_said_it():
    old = RoleScore(torch.full((7,), -0.8, dtype=torch.float64), 5, "d")
    found = values((1, 2, 4), Scores(old=old))
    assert found["bucket/lag_2/log_ratio_direct"] == [0.2]
    assert found["bucket/lag_1/log_ratio_update"] == [-0.1, -0.4]
    assert "bucket/lag_2/log_ratio_update" not in found and "bucket/lag_2/outside" not in found
    other = values((1, 2, 4), Scores(old=replace(old, own=False)))
    assert "bucket/lag_2/log_ratio_direct" not in other and "bucket/lag_2/weight" not in other
    assert other["bucket/lag_2/advantage"] == [6.0]


def test_untrained_tokens_and_what_nobody_said_are_in_no_bucket():
    sampled = torch.where(BATCH.version == 5, -1.25, NAN).double()
    found = values(scores=Scores(sampled=RoleScore(sampled, 5, "d")))
    assert found["bucket/lag_0/log_ratio_engine"] == [-0.25]
    assert "bucket/lag_1/log_ratio_engine" not in found
    valid = BATCH.action & (BATCH.version == 2)
    cut = replace(view(), index=index_of(BATCH, valid))
    only = buckets.values(cut, seen([6]))
    assert {name.split("/")[1] for name in only if "bucket" in name} == {
        "lag_2",
        "age_4",
        "length_0",
    }


def test_forced_tokens_are_accepted_and_in_no_ratio():
    edges = torch.tensor([0, 0, 2, 3, 3, 5, 5, 7])  # token 2 was drawn from a set of one
    forced = replace(BATCH, support_ids=torch.zeros(7, dtype=torch.int32), support_edges=edges)
    found = values(batch=forced)
    assert found["bucket/lag_1/log_ratio_direct"] == [0.1]
    assert found["bucket/lag_1/weight"] == pytest.approx([math.exp(0.1)])
    assert found["bucket/lag_1/advantage"] == [1.0, 2.0]


def test_mixes_show_what_staleness_shifts():
    found = values()
    assert found["mix/accepted/ending_terminal"] == [1.0, 1.0]
    assert not any(name.startswith("mix/fresh") for name in found)
    fresh = replace(BATCH, version=torch.where(BATCH.version == 2, 5, BATCH.version))
    found = values(batch=fresh)
    assert found["mix/fresh/ending_terminal"] == [1.0] and found["mix/fresh/horizon_0"] == [1.0]


def test_the_mix_names_the_kind_of_task():
    made = [replace(each, stratum=f"operations {n}") for n, each in enumerate(BATCH.episodes)]
    assert [labels(each)[2:] for each in made] == [("task_operations_0",), ("task_operations_1",)]
    assert labels(replace(made[0], stratum="")) == labels(made[0])[:2]
    assert labels(replace(made[0], stratum="a/b\nc"))[2] == "task_a_b_c"
    found = values(batch=replace(BATCH, episodes=tuple(made)))
    assert found["mix/accepted/task_operations_0"] == [1.0, 0.0]


def test_a_later_step_replaces_what_an_earlier_one_saw():
    last = seen([1, 2])
    part = torch.zeros(7, dtype=torch.bool)
    part[[1, 2]] = True
    last.begin(part)
    assert last.read.sum() == 0 and last.current.abs().sum() == 0


def test_every_step_forgets_what_earlier_ones_saw_of_its_tokens(monkeypatch):
    """On several ranks an epoch may deal a row to another rank: the sum must count it once."""
    begun = []
    inner = buckets.Last.begin
    monkeypatch.setattr(buckets.Last, "begin", lambda self, p: (begun.append(p), inner(self, p)))
    settings = recipe(update={**TERMS, "epochs": 2, "minibatches": 2}, timing=LAG)
    learner, batch = Learner(tiny(), settings), assemble(random_episodes(3))
    learner.update(batch, learner.score(batch), assign(batch, settings), 0.0)
    assert torch.equal(sum(p.long() for p in begun), 2 * batch.action.long())


LAG = {"mode": "asynchronous", "max_lag": 4}
TERMS = {"surrogate": "dis", "clip_low": 0.3, "clip_high": 5.0}


@pytest.mark.parametrize("timing", [LAG, {}])
def test_an_update_watches_buckets_where_data_may_be_stale(timing):
    settings = recipe(update={**TERMS, "epochs": 2, "minibatches": 2}, timing=timing)
    learner = Learner(tiny(), settings)
    batch = assemble(random_episodes(3), ages={"0-0": 2.0})
    report = learner.update(batch, learner.score(batch), assign(batch, settings), 0.0)
    names = {name for name in report.tallies if name.startswith(("bucket/", "mix/"))}
    assert bool(names) == bool(timing)
    if timing:
        tokens = int(batch.action.sum())
        assert report.tallies["bucket/lag_0/advantage"].count == tokens
        assert report.tallies["bucket/lag_0/log_ratio_direct"].count == tokens
        assert report.tallies["bucket/age_1/reward"].count == 1
        # Two epochs moved the policy; a token counts once, by the last step that read it.
        assert 0 < report.tallies["bucket/lag_0/log_ratio_update"].count <= tokens
        assert report.tallies["bucket/lag_0/log_ratio_update"].high > 0
