"""Stored episodes with the weight of their logged score."""

import pytest

from builders import episode, verdict
from hexad.contract.reward import Reward
from hexad.contract.store import Store
from hexad.recipe.axes import AdvantageSpec, DataSpec, FeedbackSpec, Recipe
from hexad.schedule.stored import FolderShelf, by_advantage


def test_episodes_weigh_by_their_score_within_their_group(tmp_path):
    good = [episode(i, rewards=(Reward("task", float(i)),)) for i in range(2)]
    unjudged = episode(2, verdict=verdict("verifier_error"), rewards=())
    Store(tmp_path / "episodes").append(0, [*good, unjudged])
    spec = AdvantageSpec(beta=0.5, cap=2.0, baseline="group")
    recipe = Recipe(
        data=DataSpec(regime="fixed", origin="x", advantage=spec),
        feedback=FeedbackSpec(weights={"task": 1.0}),
    )
    shelf = by_advantage(FolderShelf(tmp_path / "episodes", size=None), recipe)
    found = shelf.take(range(shelf.size))
    for each, weight in zip(found, (0.36787944, 2.0, 1.0), strict=True):
        (segment,) = each.segments
        assert segment.weight[segment.action] == pytest.approx(weight)
        assert not segment.weight[~segment.action].any()
    halved = recipe.model_copy(update={"feedback": FeedbackSpec(weights={"task": 0.5})})
    again = by_advantage(FolderShelf(tmp_path / "episodes", size=None), halved).take([0])
    (segment,) = again[0].segments
    assert segment.weight[segment.action] == pytest.approx(0.60653066)
