import importlib
from pathlib import Path

import pytest

from hexad.contract.needs import Needs
from hexad.recipe import methods
from hexad.recipe.axes import Recipe
from hexad.recipe.methods import METHODS
from hexad.recipe.presets import lookup


@pytest.mark.parametrize("record", METHODS.values(), ids=str)
def test_every_named_function_exists(record):
    for name in record.functions.values():
        module, _, attribute = name.partition(":")
        target = importlib.import_module(module)
        assert not attribute or callable(getattr(target, attribute))


@pytest.mark.parametrize("record", METHODS.values(), ids=str)
def test_axis_values_are_keys_of_the_recipe(record):
    assert record.values()
    for key in record.values():
        lookup(Recipe(), key)


def test_one_small_file_a_method():
    folder = Path(methods.__file__).parent
    names = {path.stem for path in folder.glob("*.py")} - {"__init__", "record"}
    assert names == set(METHODS)


def test_group_estimators_state_their_smallest_group():
    fewest = {name: record.assumptions.min_group_size for name, record in METHODS.items()}
    assert fewest == {"sft": 1, "reinforce": 1, "rloo": 2, "grpo": 2, "dr_grpo": 2}


def test_only_imitation_does_without_behaviour_logprobs():
    demands = {name: record.assumptions.behaviour_logprobs for name, record in METHODS.items()}
    assert [name for name, needed in demands.items() if not needed] == ["sft"]
    assert all(r.needs["logprob"] == r.assumptions.behaviour_logprobs for r in METHODS.values())


@pytest.mark.parametrize("record", METHODS.values(), ids=str)
def test_needs_are_fields_that_admission_knows(record):
    assert Needs(**record.needs).reward == record.needs["reward"]
