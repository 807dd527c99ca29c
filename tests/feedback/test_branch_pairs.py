"""Pairs that branch: where two attempts part, which pair is wanted most, and what it leaves out."""

import json
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from builders import episode, segment, verdict
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.reward import Reward
from hexad.feedback.pair_audit import audit
from hexad.feedback.pairs import Rule, make

RULE = Rule("branch", gap=0.5, most=4)
CUT = Ending.of(EndingKind.TRUNCATED_TURNS)


def walk(member, score, *said, heard="ok", group="g", **changes):
    """Says the words ``said``, a character a token, and hears ``heard`` after all but the last."""
    runs, text = [("user", 3)], "ask"
    for number, word in enumerate(said):
        runs.append(("text", len(word)))
        text += word
        if number + 1 < len(said):
            runs.append(("observation", len(heard)))
            text += heard
    made = episode(
        member,
        episode_id=f"{group}-{member}",
        group_id=group,
        task_id=f"task-{group}",
        segments=(replace(segment(tuple(runs)), ids=[ord(c) for c in text]),),
        verdict=verdict("correct" if score > 0.5 else "wrong"),
        rewards=(Reward("task", score),),
    )
    return replace(made, **changes)


def found(pairs):
    return [(p.chosen.member, p.rejected.member, p.branch.turn) for p in pairs]


def weights(pair):
    return [side.segments[0].weight.tolist() for side in pair.sides("p")]


def test_the_latest_branch_is_the_pair_and_only_what_follows_it_is_weighed():
    group = [
        walk(0, 1.0, "ab", "cd", "x"),
        walk(1, 0.0, "ab", "cd", "yy"),
        walk(2, 0.0, "ab", "z"),
        walk(3, 0.9, "q"),
    ]
    pairs, refused = make(group, RULE)
    assert found(pairs) == [(0, 1, 2), (3, 2, 0)] and not refused.reasons
    assert weights(pairs[0]) == [[0.0] * 11 + [1.0], [0.0] * 11 + [1.0, 1.0]]
    assert weights(pairs[1]) == [[0.0] * 3 + [1.0], [0.0] * 3 + [1.0, 1.0, 0.0, 0.0, 1.0]]
    chosen, _ = pairs[0].sides("p")
    assert chosen.segments[0].action.tolist() == group[0].segments[0].action.tolist()
    assert group[0].segments[0].weight.sum() == 5.0, "the episode itself stays as it is"


def test_a_turn_is_one_action_also_where_only_its_end_differs():
    (pair,), _ = make([walk(0, 1.0, "ab", "cde"), walk(1, 0.0, "ab", "cdf")], RULE)
    assert found([pair]) == [(0, 1, 1)]
    assert weights(pair)[0] == [0.0] * 7 + [1.0] * 3


def test_of_equal_branches_the_wider_gap_goes_first_then_the_lower_members():
    group = [
        walk(0, 0.1, "ab", "c"),
        walk(1, 1.0, "ab", "d"),
        walk(2, 1.0, "ab", "e"),
        walk(3, 0.0, "ab", "f"),
        walk(4, 0.0, "ab", "g"),
    ]
    pairs = [found(make(order, RULE)[0]) for order in permutations(group)]
    assert pairs == [[(1, 3, 1), (2, 4, 1)]] * len(pairs)


def test_a_gap_that_is_too_small_is_no_pair():
    pairs, refused = make([walk(0, 1.0, "ab", "c"), walk(1, 0.6, "ab", "d")], RULE)
    assert pairs == [] and refused.ties == 1


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (walk(1, 0.0, "ab", "d", heard="no", states=("s", "t")), "other_observation"),
        (walk(1, 0.0, "ab", "d", states=("s", "u")), "other_state"),
        (walk(1, 0.0, "ab", "d", states=()), "other_state"),
        (walk(1, 0.0, "ab", states=("s",)), "no_divergent_action"),
        (walk(1, 0.0, "ab", "c", states=("s", "t")), "equal_sides"),
    ],
)
def test_what_no_action_decided_is_no_pair(other, reason):
    pairs, refused = make([walk(0, 1.0, "ab", "c", states=("s", "t")), other], RULE)
    assert pairs == [] and dict(refused.reasons) == {reason: 1}


def test_states_behind_the_branch_may_differ():
    group = [
        walk(0, 1.0, "ab", "c", "e", states=("s", "t", "u")),
        walk(1, 0.0, "ab", "d", "e", states=("s", "t", "v")),
    ]
    assert found(make(group, RULE)[0]) == [(0, 1, 1)]


def test_a_truncated_winner_makes_way_for_an_earlier_branch():
    group = [
        walk(0, 1.0, "ab", "c", ending=CUT),
        walk(1, 0.0, "ab", "d", ending=CUT),
        walk(2, 1.0, "x"),
    ]
    pairs, refused = make(group, RULE)
    assert found(pairs) == [(2, 1, 0)] and refused.reasons["truncated_winner"] == 1


def test_no_pair_branches_at_a_turn_that_is_not_in_the_loss():
    quiet = walk(1, 0.0, "ab", "d", "e")
    row = quiet.segments[0]
    weight = row.weight.copy()
    weight[:8] = 0.0
    quiet = replace(quiet, segments=(replace(row, weight=weight),))
    assert make([walk(0, 1.0, "ab", "c"), quiet], RULE)[0] == []
    assert found(make([walk(0, 1.0, "ab", "d", "f"), quiet], RULE)[0]) == [(0, 1, 2)]


def test_a_context_that_differs_is_another_observation():
    """The second context of one was made from other tokens."""
    one, two = walk(0, 1.0, "ab", "c"), walk(1, 0.0, "ab", "d")
    after = replace(segment((("user", 2), ("text", 2))), parent=0, origin="summary")
    other = replace(after, ids=after.ids + 1)
    several = [
        replace(one, segments=(one.segments[0], after)),
        replace(one, episode_id="b", member=1, rewards=two.rewards),
    ]
    several[1] = replace(several[1], segments=(one.segments[0], other))
    pairs, refused = make(several, RULE)
    assert pairs == [] and dict(refused.reasons) == {"other_observation": 1}
    said = replace(after, ids=after.ids + np.array([0, 0, 0, 1]))
    several[1] = replace(several[1], segments=(one.segments[0], said))
    (pair,), _ = make(several, RULE)
    assert (pair.branch.turn, pair.branch.segment, pair.branch.start) == (2, 1, 2)
    rows = pair.sides("p")[0].segments
    assert not rows[0].weight.any() and rows[1].weight.tolist() == [0.0, 0.0, 1.0, 1.0]


def test_the_audit_counts_branches_by_turn_and_what_is_weighed():
    episodes = [
        walk(0, 1.0, "ab", "cd", "x", group="a"),
        walk(1, 0.0, "ab", "cd", "yy", group="a"),
        walk(0, 1.0, "abc", group="b"),
        walk(1, 0.0, "x", group="b"),
    ]
    pairs, refused = make(episodes, RULE)
    told = audit(pairs, 2, refused)
    row = json.loads(json.dumps(told.row()))
    assert row["branches"] == {"0": 1, "2": 1} and row["first_turn"] == 1
    assert (row["chosen"]["mean"], row["rejected"]["mean"]) == (2.0, 1.5)
    assert "they branch at the first turn in 1, at turn 2 in 1" in told.text()
    plain, refused = make(episodes, Rule("reward_gap", 0.5))
    assert "branches" not in audit(plain, 2, refused).row()
