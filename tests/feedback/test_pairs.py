"""Pairs of episodes: who wins, who may not, and what the audit tells."""

from dataclasses import replace

import numpy as np
import pytest

from builders import episode, segment, verdict
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.reward import Reward
from hexad.feedback.pair_audit import audit
from hexad.feedback.pairs import Refused, Rule, best, correct, labelled, make


def attempt(member, score=None, *, group="g", length=5, correct=None, **changes):
    """``length`` action tokens, different for every member unless ``ids`` says otherwise."""
    row = segment((("user", 3), ("text", length)))
    ids = changes.pop("ids", np.arange(len(row)) + 100 * (member + 1))
    good = (score or 0) > 0.5 if correct is None else correct
    made = episode(
        member,
        episode_id=f"{group}-{member}",
        group_id=group,
        task_id=f"task-{group}",
        segments=(replace(row, ids=np.asarray(ids, np.int32)),),
        verdict=verdict("correct" if good else "wrong"),
        rewards=(Reward("task", score),) if score is not None else (),
    )
    return replace(made, **changes)


def members(pairs):
    return [(pair.chosen.member, pair.rejected.member) for pair in pairs]


GAP = Rule("reward_gap", gap=0.5, most=4)


def test_the_best_is_paired_with_the_worst_and_each_episode_is_used_once():
    pairs, refused = make([attempt(i, s) for i, s in enumerate([0.0, 1.0, 0.4, 0.9])], GAP)
    assert members(pairs) == [(1, 0), (3, 2)]
    assert [pair.margin for pair in pairs] == pytest.approx([1.0, 0.5])
    assert refused.ties == 0


def test_a_gap_that_is_too_small_is_a_tie():
    pairs, refused = make([attempt(0, 0.9), attempt(1, 0.6)], GAP)
    assert pairs == [] and refused.ties == 1
    pairs, refused = make([attempt(0, 0.9), attempt(1, 0.9)], Rule("reward_gap"))
    assert pairs == [] and refused.ties == 1, "no gap at all is no preference"


def test_no_more_pairs_a_task_than_declared():
    group = [attempt(i, s) for i, s in enumerate([0.0, 0.0, 1.0, 1.0])]
    assert members(make(group, Rule("reward_gap", 0.5, most=1))[0]) == [(2, 1)]


def test_groups_are_never_mixed():
    pairs, refused = make([attempt(0, 1.0, group="a"), attempt(0, 0.0, group="b")], GAP)
    assert pairs == [] and refused.ties == 0


def test_weights_of_components_decide_who_wins():
    bad = replace(attempt(0, 1.0), rewards=(Reward("task", 1.0), Reward("length", -1.0)))
    rule = Rule("reward_gap", 0.5, weights={"length": 2.0})
    assert members(make([bad, attempt(1, 0.0)], rule)[0]) == [(1, 0)]


def test_a_truncated_episode_never_wins_but_may_lose():
    cut = Ending.of(EndingKind.TRUNCATED_TURNS)
    pairs, refused = make([attempt(0, 1.0, ending=cut), attempt(1, 0.0)], GAP)
    assert pairs == [] and refused.reasons["truncated_winner"] == 1
    pairs, _ = make([attempt(0, 1.0), attempt(1, 0.0, ending=cut)], GAP)
    assert members(pairs) == [(0, 1)]


def test_sides_that_say_the_same_are_no_pair():
    same = np.arange(8)
    pairs, refused = make([attempt(0, 1.0, ids=same), attempt(1, 0.0, ids=same)], GAP)
    assert pairs == [] and refused.reasons["equal_sides"] == 1


def test_both_sides_begin_in_one_state():
    group = [attempt(0, 1.0), attempt(1, 0.0, initial_state="elsewhere"), attempt(2, 0.0)]
    pairs, refused = make(group, GAP)
    assert members(pairs) == [(0, 2)] and refused.reasons["other_initial_state"] == 1


def test_what_faulted_or_was_not_scored_is_in_no_pair():
    fault = Ending.of(EndingKind.ENVIRONMENT_ERROR)
    group = [attempt(0, 1.0), attempt(1, 0.0, ending=fault), attempt(2)]
    pairs, refused = make(group, GAP)
    assert pairs == [] and dict(refused.reasons) == {"faulted": 1, "unscored": 1}


def test_shortest_correct_prefers_short_to_wrong_and_then_short_to_long():
    rule = Rule("shortest_correct", most=2)
    group = [
        attempt(0, 1.0, length=9),
        attempt(1, 1.0, length=4),
        attempt(2, 0.0, length=2),
        attempt(3, 1.0, length=6),
    ]
    assert members(make(group, rule)[0]) == [(1, 2), (3, 0)]


def test_equal_lengths_are_no_preference_for_the_shorter():
    pairs, refused = make([attempt(0, 1.0), attempt(1, 1.0)], Rule("shortest_correct"))
    assert pairs == [] and refused.ties == 1


def test_the_sides_become_a_group_of_two():
    (pair,), _ = make([attempt(0, 0.0), attempt(1, 1.0)], GAP)
    chosen, rejected = pair.sides("pair-7")
    assert (chosen.group_id, chosen.member, chosen.episode_id) == ("pair-7", 0, "g-1")
    assert (rejected.group_id, rejected.member, rejected.episode_id) == ("pair-7", 1, "g-0")


def test_labels_of_single_episodes():
    cut = Ending.of(EndingKind.TRUNCATED_TURNS)
    refused = Refused()
    group = [attempt(0, 1.0), attempt(1, 0.0), attempt(2, 1.0, ending=cut), attempt(3)]
    made = labelled(group, refused)
    assert [(e.episode_id, e.group_id, e.member) for e in made] == [
        ("g-0", "g-0", 0),
        ("g-1", "g-1", 1),
    ]
    assert dict(refused.reasons) == {"unscored": 1, "truncated_winner": 1}


def test_rejection_sampling_keeps_what_is_correct_and_best_of_n_one_a_task():
    cut = Ending.of(EndingKind.TRUNCATED_TURNS)
    group = [
        attempt(0, 1.0, length=9),
        attempt(1, 0.0),
        attempt(2, 1.0, length=4),
        attempt(3, 1.0, ending=cut),
        attempt(4, 0.8, length=2),
    ]
    refused = Refused()
    assert [e.member for e in correct(group, refused)] == [0, 2, 4]
    assert dict(refused.reasons) == {"wrong": 1, "truncated_winner": 1}
    assert [e.member for e in best(group, Refused(), {})] == [2]


def test_the_audit_counts_source_length_coverage_ties_and_duplicates():
    episodes = [
        attempt(0, 1.0, group="a", length=7),
        attempt(1, 0.0, group="a", length=3),
        attempt(0, 1.0, group="b", length=2),
        attempt(1, 0.0, group="b", length=5),
        attempt(0, 1.0, group="c"),
        attempt(1, 1.0, group="c"),
    ]
    pairs, refused = make(episodes, GAP)
    found = audit([*pairs, pairs[0]], 3, refused)
    assert (found.pairs, found.covered, found.tasks, found.ties) == (3, 2, 3, 1)
    assert (found.longer, found.shorter, found.duplicates) == (2, 1, 1)
    row = found.row()
    assert row["sources"] == {"reward_gap": 3}
    assert row["chosen"]["mean"] == pytest.approx(16 / 3)
    assert "3 pairs of 2 of 3 tasks" in found.text() and "1 ties" in found.text()
