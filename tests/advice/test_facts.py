"""Measured beats stated, and answers that cannot both be true are named."""

from itertools import pairwise

import pytest
from advice_world import GAIN, NO_GAIN, ask, methods, number

from hexad.advice.contradictions import CONTRADICTIONS
from hexad.advice.measured import BarrierProfile, Groups, Lag

CONTRADICTORY = (
    {"feedback": {"goal": "outcome", "outcome": "none", "agreement": None}},
    {"feedback": {"goal": "subjective", "preferences": "none", "outcome": "exact"}},
    {"feedback": {"goal": "subjective", "preferences": "stable", "outcome": "none"}},
    {"feedback": {"outcome": "none", "agreement": None, "verifier": "numeric"}},
    {"data": {"irreversible": True, "trials": "cheap", "collection": "fixed"}},
    {"data": {"irreversible": True, "trials": "costly", "collection": "rounds"}},
    {"data": {"trials": "costly"}, "critic": {"candidates": "cheap"}},
    {"data": {"collection": "fixed"}, "critic": {"candidates": "cheap"}},
    {
        "data": {"collection": "fixed"},
        "critic": {"candidates": "single"},
        "timing": {"learner": "idle"},
    },
    {"action": {"unit": "episode"}, "credit": {"reward": "transitions"}},
    {"credit": {"reward": "steps"}},
    {"feedback": {"process_signal": "remaining_operations"}},
    {"action": {"overflow": True}},
)
"""One task for each row of the table, in order."""


@pytest.mark.parametrize(
    ("row", "answers"), list(zip(CONTRADICTIONS, CONTRADICTORY, strict=True)), ids=range(13)
)
def test_each_contradiction_is_found_with_both_answers_named(row, answers):
    found = ask(answers).contradictions
    assert row in found
    assert len(row.answers) >= 2 and row.reason
    named = ask(answers).row()["contradictions"]
    assert any(set(each["answers"]) == set(row.answers) for each in named)


def test_consistent_answers_contradict_nothing():
    assert ask().contradictions == () and ask().differences == ()


def test_of_two_answers_the_cautious_one_is_followed():
    advice = ask({"data": {"collection": "fixed"}})
    assert methods(advice) == []  # attempts that cannot be sampled are not compared
    assert {"critic.candidates": "single"} in [row.followed for row in advice.contradictions]


def test_costly_trials_are_not_spent_on_comparing_attempts():
    assert methods(ask({"data": {"trials": "costly"}})) == ["ppo"]


def test_what_a_critic_has_shown_beats_what_was_hoped():
    single = {"critic": {"candidates": "single", "value": "learnable"}}
    advice = ask(single, explained_variance=number(0.0))
    assert methods(advice) == ["reinforce"]
    (difference,) = advice.differences
    assert (difference.key, difference.stated, difference.source) == (
        "critic.value",
        "learnable",
        "run",
    )
    single["critic"]["value"] = "poor"
    assert methods(ask(single, explained_variance=number(0.2))) == ["ppo"]
    assert methods(ask(single, explained_variance=number(0.19))) == ["reinforce"]


def test_a_policy_that_never_succeeds_has_not_learned_the_protocol():
    few = {"feedback": {"demonstrations": "few"}}
    (difference,) = ask(few, success=number(0.009)).differences
    assert difference.key == "feedback.protocol" and "0.9%" in difference.measured
    assert ask(few, success=number(0.01)).differences == ()


def test_durations_and_use_are_taken_from_the_profile():
    keys = [each.key for each in ask(profile=GAIN).differences]
    assert keys == ["timing.durations", "timing.learner"]
    stated = {"timing": {"durations": "heavy_tailed", "learner": "idle"}}
    assert ask(stated, profile=GAIN).differences == ()
    assert [each.measured for each in ask(stated, profile=NO_GAIN).differences] == [
        "the p99 of an episode's seconds is 1.2 times its p50",
        "the learner works 90% of the time",
    ]


def test_the_smallest_lag_that_gains_nearly_all_is_the_best():
    # 0.95 x 4.0 = 3.8
    assert GAIN.best.max_lag == 2
    assert BarrierProfile("", (Lag(2, 3.79, 0.0), Lag(4, 4.0, 0.0))).best.max_lag == 4
    assert BarrierProfile("", (Lag(1, 1.2, 0.15),)).best.max_lag == 1
    for lag in (Lag(1, 1.19, 0.0), Lag(1, 2.0, 0.16)):
        assert BarrierProfile("", (lag,)).best is None


def test_groups_are_flat_solved_or_have_a_contrast():
    # 20 % is a contrast; below it, 80 % all right is solved
    states = [Groups("", 10, c, r, 10 - c - r).state for c, r in ((2, 0), (1, 8), (1, 7))]
    assert states == ["contrast", "solved", "flat"]


def test_two_rows_never_follow_different_readings_of_one_answer():
    for row, other in pairwise(CONTRADICTIONS):
        shared = set(row.followed) & set(other.followed)
        assert all(row.followed[key] == other.followed[key] for key in shared)
