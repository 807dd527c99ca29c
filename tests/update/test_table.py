import inspect

import pytest
import torch

from hexad.recipe import legal
from hexad.recipe.preference_axis import PreferenceSpec
from hexad.recipe.update_axis import CorrectionSpec, KLSpec
from hexad.update import kl, surrogate
from hexad.update.preference import LOSSES
from hexad.update.table import CORRECTIONS, KEYS, SURROGATES

TOKENS = ("excess", "decay", "nll")
"""Keys of ``update.preference`` that no loss function takes."""

# -- one truth -------------------------------------------------------------------------------


def test_recipes_and_functions_agree():
    """The recipe's table may not import torch, so it is another file; here they are compared."""
    assert set(SURROGATES) == set(legal.SURROGATES)
    for name, rule in legal.SURROGATES.items():
        entry = SURROGATES[name]
        assert entry.units == rule.units, name
        assert (entry.roles or ("none",))[0] == rule.ratio, name
        assert {KEYS[key] for key in entry.required} == set(rule.required), name
        known = {KEYS[key] for key in entry.optional if key in KEYS}
        assert known == set(rule.optional), name
        assert (entry.closed is not None) == rule.gates, name
    assert set(KEYS.values()) == set(legal.SURROGATE_KEYS)


def test_preferences_agree_too():
    rules = {name: rule for name, rule in legal.PREFERENCES.items() if not rule.head}
    assert set(LOSSES) == set(rules)  # a loss on a head is no preference of the policy
    for name, rule in rules.items():
        numbers = {*rule.required, *(key for key in rule.optional if key not in TOKENS)}
        assert set(LOSSES[name].numbers) == {"beta", *numbers}, name
        assert LOSSES[name].reference == rule.reference, name
        assert LOSSES[name].paired == (rule.denominator == "pair"), name
        assert set(rule.reductions) <= {"sum", "mean"}, name
    numbers = {"beta", "reduction"}
    assert set(PreferenceSpec.model_fields) == numbers | set(legal.PREFERENCE_KEYS)


def literal(spec, field):
    return set(spec.model_fields[field].annotation.__args__)


def test_every_choice_of_a_recipe_has_its_function():
    assert literal(CorrectionSpec, "rule") == set(CORRECTIONS)
    assert literal(CorrectionSpec, "ratio") == set(CORRECTIONS["tis"].roles)
    assert literal(KLSpec, "estimator") == set(kl.ESTIMATORS)


@pytest.mark.parametrize("name", SURROGATES)
def test_the_table_describes_the_signature(name):
    entry = SURROGATES[name]
    parameters = inspect.signature(entry.function).parameters
    named = [*entry.inputs, *entry.required, *entry.optional]
    if name == "nll":
        named = ["logprob"]
    assert list(parameters) == named
    without = [key for key, p in parameters.items() if p.default is not p.empty]
    assert without == list(entry.optional), "no bound may have a default"
    assert getattr(surrogate, name) is entry.function


@pytest.mark.parametrize("name", CORRECTIONS)
def test_the_table_describes_the_corrections(name):
    rule = CORRECTIONS[name]
    parameters = inspect.signature(rule.function).parameters
    assert ("low" in parameters) == rule.low
    assert ({"unit", "counted"} <= set(parameters)) == rule.whole
    assert ("advantage" in parameters) == rule.advantage
    assert all(p.default is p.empty for p in parameters.values())


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"low": 0.2}, "missing .'high'."),
        ({"low": 0.2, "high": 0.2, "tau": 1.0}, "unknown .'tau'."),
    ],
)
def test_missing_and_unknown_numbers_are_refused(numbers, said):
    tensors = {"log_ratio": torch.zeros(1), "advantage": torch.ones(1)}
    with pytest.raises(ValueError, match=said):
        SURROGATES["clip"].loss(tensors, numbers)


def test_a_surrogate_without_bounds_has_no_sides():
    assert SURROGATES["sapo"].outside({"log_ratio": torch.zeros(1)}, {}) is None
