"""How much of what was visited is in what is learned from."""

import pytest

from builders import attempt
from hexad.contract.events import ItemsMade
from hexad.evidence.ledger import Ledger
from hexad.recipe.axes import Recipe
from hexad.schedule.made import made

RECIPE = Recipe.model_validate(
    {"data": {"regime": "iterative", "pairs": {"rule": "reward_gap", "gap": 0.5}}}
)


def test_states_of_unused_attempts_are_outside_unless_a_pair_holds_them():
    episodes = [
        attempt(0, 1.0, states=("a", "b")),
        attempt(1, 0.0, states=("a", "c", "c")),
        attempt(2, 0.9, states=("a", "b", "d")),
    ]
    found = made(episodes, RECIPE, "pair")
    assert found.row["states"] == {"visited": 4, "outside": 1} and found.outside == 0.25
    assert found.text.endswith("; 1 of 4 visited states are in none")
    assert [e.member for e in found.unused] == [2]


def test_without_states_nothing_is_said():
    found = made([attempt(0, 1.0, states=()), attempt(1, 0.0, states=())], RECIPE, "pair")
    assert found.outside is None and "visited" not in found.text


def test_the_share_is_in_the_row_of_the_rounds_start(tmp_path):
    ledger = Ledger(tmp_path)
    ledger(ItemsMade(0, "round 0: 1 pairs", 0.25))
    assert ledger.commit(0)["data/states_outside"] == pytest.approx(0.25)
    assert "data/states_outside" not in ledger.commit(1)
