import math

import pytest
import torch
from learner_world import assign, episode, recipe, segment

from hexad.contract.ending import EndingKind
from hexad.contract.faults import ContractViolation
from hexad.learner.assemble import assemble
from hexad.learner.assign import CLOCKED, EPISODIC
from hexad.recipe.legal import ESTIMATORS

ROW = segment([5, 6, 7, 8], [0, 1, 0, 1], [-0.5, -0.25], [0, 0, 0, 1], version=3)


def test_rows_episodes_and_groups_are_carried():
    episodes = [
        episode("a", [ROW, segment([1, 2], [0, 1])], group="y", reward=1.0),
        episode("b", [segment([9, 9, 9], [0, 1, 1])], group="x", reward=0.0),
        episode("c", [ROW], group="y", reward=None),
    ]
    batch = assemble(episodes)
    assert batch.offsets.tolist() == [0, 4, 6, 9, 13]
    assert batch.row_episode.tolist() == [0, 0, 1, 2]
    assert batch.episode_group.tolist() == [0, 1, 0]
    assert batch.token_episode.tolist() == [0] * 6 + [1] * 3 + [2] * 4
    assert batch.ids[:4].tolist() == [5, 6, 7, 8]
    assert batch.action[:4].tolist() == [False, True, False, True]
    assert batch.version[:4].tolist() == [-1, 3, -1, 3]
    assert batch.turn[:4].tolist() == [0, 0, 0, 1]
    assert batch.behaviour[[1, 3]].tolist() == [-0.5, -0.25]
    assert batch.behaviour.isnan()[[0, 2]].all()
    assert batch.scored.tolist() == [True, True, False]
    assert batch.success.tolist() == [True, False, False]
    assert batch.score[:2].tolist() == [1.0, 0.0]
    assert math.isnan(batch.score[2])
    types = {f: getattr(batch, f).dtype for f in ("ids", "weight", "behaviour", "score")}
    assert list(types.values()) == [torch.int64, torch.float32, torch.float32, torch.float64]


def test_weights_multiply_named_components_and_others_weigh_one():
    batch = assemble([episode("a", [ROW], reward=2.0)], {"task": 0.25, "style": 9.0})
    assert batch.score.tolist() == [0.5]
    assert assemble([episode("a", [ROW], reward=2.0)]).score.tolist() == [2.0]


def test_ages_belong_to_episodes_and_are_unknown_by_default():
    pair = [episode("a", [ROW, ROW]), episode("b", [ROW])]
    age = assemble(pair, ages={"b": 2.5, "other": 9.0}).age
    assert age.dtype == torch.float64 and age.isnan().tolist() == [True, False]
    assert age[1] == 2.5
    assert assemble(pair).age.isnan().all()


def test_nothing_to_assemble_raises():
    with pytest.raises(ContractViolation, match="no token"):
        assemble([])


def test_advantages_reach_action_tokens_of_scored_episodes_only():
    """O16 item 1: crash and grader time-out carry no loss and move nobody."""
    episodes = [
        episode("a", [ROW, ROW], reward=1.0),
        episode("b", [ROW], reward=0.0),
        episode("c", [ROW], reward=1.0, ending=EndingKind.ENVIRONMENT_ERROR),
        episode("d", [ROW], reward=None),
    ]
    batch = assemble(episodes)
    found = assign(batch, recipe(credit={"estimator": "dr_grpo"}))
    assert found.advantage.tolist() == [0, 0.5, 0, 0.5] * 2 + [0, -0.5, 0, -0.5] + [0.0] * 8
    assert found.counted.tolist() == [True, True, False, False]


def test_groups_come_from_ids_not_from_order():
    """O09 item 3: arrival A0 B0 A1 B1."""
    rewards = zip("ABAB", (0.0, 1.0, 0.0, 1.0), strict=True)
    episodes = [episode(str(i), [ROW], reward=r, group=g) for i, (g, r) in enumerate(rewards)]
    batch = assemble(episodes)
    assert set(assign(batch, recipe(credit={"estimator": "rloo"})).advantage.tolist()) == {0.0}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"estimator": "none"}, [0, 0, 0]),
        ({"estimator": "reinforce"}, [1, 0, 0]),
        ({"estimator": "reinforce", "baseline": "batch"}, [2 / 3, -1 / 3, -1 / 3]),
        ({"estimator": "rloo"}, [1, -0.5, -0.5]),
        ({"estimator": "dr_grpo"}, [2 / 3, -1 / 3, -1 / 3]),
        ({"estimator": "grpo"}, [2**0.5, -(0.5**0.5), -(0.5**0.5)]),
        ({"estimator": "grpo", "std": "sample"}, [2 / 3**0.5, -1 / 3**0.5, -1 / 3**0.5]),
        ({"estimator": "grpo", "threshold": 0.6}, [0, 0, 0]),
    ],
)
def test_the_estimator_is_chosen_by_data(spec, expected):
    batch = assemble([episode(str(i), [ROW], reward=r) for i, r in enumerate((1.0, 0.0, 0.0))])
    found = assign(batch, recipe(credit=spec)).advantage[batch.offsets[:-1] + 1]
    assert found.tolist() == pytest.approx(expected)


def test_every_estimator_of_the_recipe_has_a_function():
    assert set(ESTIMATORS) == set(EPISODIC) | set(CLOCKED)
    assert not set(EPISODIC) & set(CLOCKED)
