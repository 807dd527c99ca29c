"""Where right and wrong are parted, and how often pairs are ranked right."""

import json

import pytest

from hexad.contract.task import Split
from hexad.evidence.evaluate import Place, Question
from hexad.evidence.ranking import Ranking, cut, rank
from hexad.feedback import pairs
from hexad.recipe.axes import LimitsSpec
from hexad.rollout.world import World
from toyworld import chatter, toy_world


@pytest.mark.parametrize(
    ("rewards", "right", "found"),
    [
        ([0.1, 0.4, 0.35, 0.8], [False, False, True, True], 0.225),
        ([3.0, -1.0, 1.0], [True, False, False], 2.0),
        ([0.0, 0.0, 1.0], [True, False, True], 0.5),  # equal rewards cannot be parted
        ([1.0, 2.0, 3.0, 4.0, 5.0], [False, True, True, True, True], 1.5),
        ([1.0, 2.0], [True, True], None),
        ([1.0, 1.0], [True, False], None),
        ([], [], None),
    ],
)
def test_the_cut_parts_right_from_wrong(rewards, right, found):
    assert cut(rewards, right) == (found if found is None else pytest.approx(found))


def ranked(folder, rewards, rule=("reward_gap", 0.5)):
    limits = LimitsSpec(turns=2, turn_tokens=8, context_tokens=64)
    world: World = toy_world(chatter, limits=limits)
    question = Question(Split.SELECTION, 8, 3, 0)
    ranking = Ranking(rewards, pairs.Rule(*rule), 4)
    return rank(question, world, ranking, Place(folder))


def test_a_model_that_knows_ranks_everything_right(tmp_path):
    row = ranked(tmp_path, lambda episodes: [e.score({}) for e in episodes])
    assert row["success"] == 1.0 and row["scored"] == row["correct"] > 2
    assert row["cut"] == 1.0 and row["agreement"]["success"] == 1.0
    assert row["episodes"] == 32 and row["agreement"]["scored"] == 32 - row["unscored"]
    (stored,) = [json.loads(line) for line in (tmp_path / "evaluation.jsonl").open()]
    assert stored["measure"] == "pairs" and stored["success"] == 1.0


def test_a_model_that_is_wrong_or_does_not_care_ranks_nothing_right(tmp_path):
    assert ranked(tmp_path, lambda es: [-e.score({}) for e in es])["success"] == 0.0
    flat = ranked(tmp_path, lambda es: [0.0 for _ in es])
    assert flat["success"] == 0.0 and "cut" not in flat


def test_without_a_pair_nothing_is_said(tmp_path):
    row = ranked(tmp_path, lambda es: [0.0 for _ in es], ("reward_gap", 9.0))
    assert row["scored"] == 0 and "success" not in row
