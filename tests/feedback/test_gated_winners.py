"""An episode that a gate has closed on is never imitated, whatever its verdict or its score."""

from dataclasses import replace

import numpy as np
import pytest

from builders import attempt
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.reward import Gate
from hexad.feedback.pair_audit import audit
from hexad.feedback.pairs import Refused, Rule, best, correct, labelled, make
from hexad.learner.assemble import assemble
from hexad.recipe.axes import Recipe
from hexad.schedule.branches import chosen
from hexad.schedule.dynamic import Refill
from hexad.schedule.made import made

CLOSED = Gate(0.0, "violation")
GAP = Rule("reward_gap", gap=0.5, most=4)


RIGHT, WRONG, VIOLATING = attempt(0, 1.0), attempt(1, 0.0), attempt(2, 1.0, gate=CLOSED, length=2)


def members(pairs):
    return [(pair.chosen.member, pair.rejected.member) for pair in pairs]


@pytest.mark.parametrize("reason", ["violation", "effort"])
def test_rejection_and_best_of_n_keep_none_of_them(reason):
    group = [RIGHT, WRONG, replace(VIOLATING, gate=Gate(2.0, reason))]
    refused = Refused()
    assert [e.member for e in correct(group, refused)] == [0]
    assert dict(+refused.reasons) == {"wrong": 1, "gated_winner": 1}
    assert [e.member for e in best(group, Refused(), {})] == [0]
    assert best(group[1:], Refused(), {}) == []


def test_it_is_an_undesirable_example():
    assert [(e.episode_id, e.member) for e in labelled([RIGHT, WRONG, VIOLATING], Refused())] == [
        ("g-0", 0),
        ("g-1", 1),
        ("g-2", 1),
    ]


def test_the_shortest_correct_is_another_and_it_may_lose():
    pairs, _ = make([RIGHT, VIOLATING], Rule("shortest_correct"))
    assert members(pairs) == [(0, 2)]
    pairs, refused = make([WRONG, VIOLATING], Rule("shortest_correct"))
    assert pairs == [] and refused.ties == 1


@pytest.mark.parametrize("rule", ["reward_gap", "branch"])
def test_a_gate_that_pays_more_than_the_rest_still_wins_nothing(rule):
    """Prices may push everybody else below what a violation is paid."""
    group = [attempt(0, 0.2), replace(VIOLATING, gate=Gate(1.0, "violation"))]
    pairs, refused = make(group, Rule(rule, gap=0.5))
    assert pairs == [] and refused.ties == 0 and refused.reasons["gated_winner"] == 1


def test_what_a_round_keeps_and_how_it_is_counted():
    data = {"regime": "iterative", "rounds": {"tasks": 1, "keep": "correct"}, "pairs": None}
    found = made([RIGHT, WRONG, VIOLATING], Recipe.model_validate({"data": data}), "round-0")
    assert [[e.member for e in item] for item in found.items] == [[0]]
    assert {e.member for e in found.unused} == {1, 2}
    assert found.row["refused"] == {"gated_winner": 1, "wrong": 1} and found.row["correct"] == 1


def test_a_violation_is_what_a_round_forks():
    assert chosen([RIGHT, VIOLATING]) is VIOLATING and chosen([RIGHT]) is RIGHT


def test_equal_scores_of_gated_members_are_no_success():
    recipe = Recipe.model_validate(
        {"data": {"dynamic": {"rounds": 1, "at_cap": "train", "surplus": "drop"}}}
    )
    gated = [replace(attempt(i, 1.0), gate=CLOSED) for i in range(2)]
    harvest = Refill(recipe).fill(0, lambda tasks: ([tuple(gated)], True))
    assert [reason for _, reason in harvest.dropped] == ["no_signal_all_wrong"] * 2


def test_the_likelihood_of_successes_leaves_it_out():
    assert assemble([RIGHT, WRONG, VIOLATING], {}).success.tolist() == [True, False, False]


def test_only_a_group_without_a_difference_is_a_tie():
    cut = Ending.of(EndingKind.TRUNCATED_TURNS)
    pairs, refused = make([attempt(0, 1.0, ending=cut), WRONG], GAP)
    row = audit(pairs, 1, refused).row()
    assert row["refused"] == {"truncated_winner": 1} and row["ties"] == 0
    assert make([attempt(0, 1.0), attempt(1, 1.0)], GAP)[1].ties == 1


def test_a_branch_that_the_rule_refuses_is_no_tie_either():
    def unweighed(member, score):
        made = attempt(member, score)
        (row,) = made.segments
        return replace(made, segments=(replace(row, weight=np.zeros(len(row), np.float32)),))

    pairs, refused = make([unweighed(0, 1.0), unweighed(1, 0.0)], Rule("branch", gap=0.5))
    assert pairs == [] and refused.ties == 0 and dict(refused.reasons) == {"branch_not_in_loss": 1}
