import importlib
from pathlib import Path

import pytest

from hexad.contract.needs import Needs
from hexad.recipe import methods
from hexad.recipe.axes import Recipe
from hexad.recipe.legal import ESTIMATORS, PREFERENCES
from hexad.recipe.methods import METHODS
from hexad.recipe.presets import fill, lookup

IMITATION = {"sft", "dagger", "awr", "rejection"}
STORED = {*IMITATION, "reward_model", *(PREFERENCES.keys() - {"bradley_terry"})}
"""Methods that read stored tokens, whoever sampled them."""


@pytest.mark.parametrize("record", METHODS.values(), ids=METHODS)
def test_every_named_function_exists(record):
    for name in record.functions.values():
        module, _, attribute = name.partition(":")
        target = importlib.import_module(module)
        assert not attribute or callable(getattr(target, attribute))


@pytest.mark.parametrize("record", METHODS.values(), ids=METHODS)
def test_axis_values_are_keys_of_the_recipe(record):
    assert record.values()
    recipe = Recipe.model_validate(fill(record, {"method": record.name}))  # no key is unknown
    for key, value in record.values().items():
        assert lookup(recipe, key) == value


def test_one_small_file_a_method():
    folder = Path(methods.__file__).parent
    names = {path.stem for path in folder.glob("*.py")} - {"__init__", "card", "record"}
    assert names == set(METHODS)


def test_group_estimators_state_their_smallest_group():
    fewest = {name: record.assumptions.min_group_size for name, record in METHODS.items()}
    pairs = {name for name, least in fewest.items() if least == 2}
    assert pairs == {"rloo", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "gigpo"}
    assert set(fewest.values()) == {1, 2}


@pytest.mark.parametrize("record", METHODS.values(), ids=METHODS)
def test_assumptions_agree_with_the_table_of_estimators(record):
    recipe = Recipe.model_validate(fill(record, {"method": record.name}))
    rule = ESTIMATORS[recipe.credit.estimator]
    assert record.assumptions.critic == rule.critic == (recipe.critic is not None)
    assert record.assumptions.min_group_size >= rule.group
    kl = recipe.update.kl
    preference = PREFERENCES.get(recipe.update.surrogate)
    assert record.assumptions.reference == (
        kl is not None if preference is None else preference.reference
    )
    stale = recipe.timing.mode == "asynchronous"
    assert record.assumptions.tolerates_lag == (stale or record.name in STORED)


def test_only_imitation_and_preferences_do_without_behaviour_logprobs():
    demands = {name: record.assumptions.behaviour_logprobs for name, record in METHODS.items()}
    assert {name for name, needed in demands.items() if not needed} == STORED
    assert all(r.needs["logprob"] == r.assumptions.behaviour_logprobs for r in METHODS.values())


@pytest.mark.parametrize("record", METHODS.values(), ids=METHODS)
def test_needs_are_fields_that_admission_knows(record):
    assert Needs(**record.needs).reward == record.needs["reward"]
