"""Probes of stored episodes: masks, the clock, reductions, and what a healthy batch says."""

from dataclasses import replace

import numpy as np
import pytest

from builders import episode, segment
from hexad.contract.episode import Actor, Costs, Prefix
from hexad.contract.reward import Reward
from hexad.evidence.diagnosis import stored as probes
from hexad.evidence.diagnosis.stored import Stored
from hexad.recipe.load import load

GRPO = "method: grpo\nbudget: {episodes: 64}\ndata: {groups: 4, group_size: 4}\n"


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "r.yaml").write_text(GRPO)
    return lambda *overrides: load(tmp_path / "r.yaml", list(overrides))


def runs(tokens, seen=2):
    return (("user", 3), ("tool_call", 3), ("observation", seen), ("text", tokens - 3))


def batch(lengths=(5, 6, 5, 6), count=4):
    """Groups of as many episodes as lengths; rewards alternate."""
    found = []
    for group in range(count):
        for member, tokens in enumerate(lengths):
            reward = Reward("task", float((member + group) % 2))
            made = episode(
                costs=Costs(sampled_tokens=tokens),
                episode_id=f"e{group}-{member}",
                group_id=f"g{group}",
                member=member,
                segments=(segment(runs(tokens)),),
                rewards=(reward,),
            )
            found.append(made)
    return tuple(found)


def test_a_healthy_batch_has_no_finding(recipe):
    single = ("data.group_size=1", "data.groups=16")
    for words in (("grpo",), ("ppo",), ("rloo",), ("impala", *single), ("sao", *single)):
        given = Stored(recipe(f"method={words[0]}", *words[1:]), 7, batch())
        assert len(given.usable) == 16
        assert probes.stored_rules(given) == []


def test_observations_among_the_actions_are_named(recipe):
    whole = batch()
    broken = whole[0].segments[0]
    action = broken.action.copy()
    action[6:8] = True  # the two observation tokens
    bad = replace(whole[0], segments=(replace(broken, action=action),))
    finding = probes.stored_rules(Stored(recipe(), 7, (bad, *whole[1:])))[0]
    assert finding.symptom.key == "observations-count" and finding.since == 7
    assert finding.evidence[0].startswith("2 tokens of 16")
    weight = broken.weight.copy()
    weight[6] = 1.0
    bad = replace(whole[0], segments=(replace(broken, weight=weight),))
    assert "1 that were not sampled" in probes.unmasked(Stored(recipe(), 7, (bad,))).evidence[0]


def test_observations_that_spans_and_masks_call_actions_are_named(recipe):
    """The record agrees with itself; only what the engine returned says otherwise."""
    whole = batch()
    said = segment((("user", 3), ("tool_call", 3), ("text", 2), ("text", 2)))
    bad = replace(whole[0], segments=(said,))
    (finding,) = probes.stored_rules(Stored(recipe(), 7, (bad, *whole[1:])))
    assert finding.symptom.key == "observations-count" and finding.confidence > 0.95
    assert finding.evidence[0].startswith("1 of 16") and "+2 in all" in finding.evidence[0]


def test_what_a_fork_repeats_and_what_an_expert_said_was_sampled_elsewhere(recipe):
    """Their action tokens come from no call of this episode, and nothing is wrong with that."""
    whole = batch()
    forked = replace(whole[0], prefix=Prefix("e0-1", "g0", 1), costs=Costs(sampled_tokens=2))
    told = replace(whole[1], actor=Actor.EXPERT, costs=Costs())
    assert (whole[0].action_count, forked.own_count) == (5, 2)
    assert probes.unsampled(Stored(recipe(), 7, (forked, told, *whole[2:]))) is None
    lost = replace(forked, costs=Costs(sampled_tokens=3))
    assert probes.unsampled(Stored(recipe(), 7, (lost,))) is not None


def test_an_observation_in_the_loss_shows_when_it_is_lengthened(recipe):
    """The mask is consistent with its spans here: only lengthening tells."""
    mixed = []
    for made in batch():
        seg = made.segments[0]
        action, logprob = seg.action.copy(), seg.logprob.copy()
        action[6:8], logprob[6:8] = True, -0.5
        weight = np.where(action, 1.0, 0.0).astype(np.float32)
        mixed.append(
            replace(made, segments=(replace(seg, action=action, logprob=logprob, weight=weight),))
        )
    finding = probes.clock(Stored(recipe(), 7, tuple(mixed)))
    assert finding is not None and finding.symptom.key == "observations-count"
    assert probes.clock(Stored(recipe(), 7, batch())) is None
    silent = tuple(replace(e, segments=(segment((("user", 3), ("text", 4))),)) for e in batch())
    assert probes.clock(Stored(recipe(), 7, silent)) is None


def test_reductions_side_by_side_by_hand():
    """Two groups of four: lengths 4, 4, 4, 12. The longest quarter: 12 + 12 of 48 tokens."""
    shares = probes.reductions(batch((4, 4, 4, 12), count=2))
    assert shares["token"] == pytest.approx(24 / 48)
    assert shares["episode"] == pytest.approx(2 / 8)
    assert shares["prompt"] == pytest.approx(12 / 24)
    # Two responses an episode (3 tokens, then the rest): the longest have 2 x 2 of 16 responses.
    assert shares["response"] == pytest.approx(4 / 16)


def test_a_long_minority_with_most_of_the_loss_is_named(recipe):
    given = batch((4, 4, 4, 60))
    assert probes.length_weight(Stored(recipe("action.denominator=episode"), 7, given)) is None
    finding = probes.length_weight(Stored(recipe("action.denominator=token"), 7, given))
    assert finding is not None and "token 83%" in finding.evidence[0]
    twice = replace(given[0], segments=given[0].segments * 2)
    repeated = probes.length_weight(Stored(recipe(), 7, (twice, *batch()[1:])))
    assert repeated is not None and repeated.confidence == 0.9
    assert repeated.evidence[-1].startswith("1 segments")


def test_score_by_length_and_endings():
    given = batch((4, 8, 4, 8), count=2)  # member 1 and 3 are longer; rewards alternate by group
    assert probes.by_length(given[:4]) == pytest.approx(1.0)
    assert probes.by_length(given) == pytest.approx(0.0)
    assert probes.by_length(batch((4, 4, 4, 4), count=1)) is None
    ended = probes.endings(given)
    assert ended["terminal"]["episodes"] == 8


def test_a_batch_that_left_the_loss_is_no_symptom(recipe):
    """Every member was too old: weights are 0, and there is nothing to weigh."""
    out = tuple(
        replace(e, segments=tuple(replace(s, weight=s.weight * 0.0) for s in e.segments))
        for e in batch()
    )
    given = Stored(recipe(), 7, out)
    assert given.usable == () and probes.stored_rules(given) == []
