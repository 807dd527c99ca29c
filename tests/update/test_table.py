import inspect

import pytest
import torch

from hexad.recipe import legal
from hexad.recipe.update_axis import CorrectionSpec, KLSpec
from hexad.update import kl, surrogate
from hexad.update.table import CORRECTIONS, KEYS, SURROGATES, Stack, conflicts

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
    assert set(KEYS.values()) == set(legal.SURROGATE_KEYS)


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


# -- stacks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stack",
    [
        Stack("clip", "update"),
        Stack("clip", "direct"),
        Stack("clip", "update", "episode"),
        Stack("clip", "update", corrections=[("icepop", "engine")]),
        Stack("clip", "update", corrections=[("tis", "proximal")]),
        Stack("plain", "update", corrections=[("sequence_tis", "proximal")]),
        Stack("cispo", "update", corrections=[("tis", "engine"), ("geometric", "engine")]),
        Stack("squared", "update", "episode"),
        Stack("dis", "direct"),
        Stack("plain", "update", vtrace=True),
        Stack("nll", "none"),
    ],
)
def test_sound_stacks(stack):
    assert conflicts(stack) == []


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        (Stack("dis", "direct", corrections=[("tis", "engine")]), "does again"),
        (Stack("dis", "direct", corrections=[("opsm", "proximal")]), "does again"),
        (Stack("difference", "direct", corrections=[("icepop", "engine")]), "does again"),
        (Stack("clip", "direct", corrections=[("tis", "engine")]), "does again"),
        (Stack("dis", "direct", vtrace=True), "V-trace has already"),
        (Stack("plain", "update", corrections=[("tis", "proximal")], vtrace=True), "do so again"),
        (Stack("plain", "update", corrections=[("tis", "engine")], vtrace=True), "do so again"),
        (Stack("clip", "update", corrections=[("tis", "engine"), ("mis", "proximal")]), "twice"),
        (Stack("clip", "update", corrections=[("k3", "engine"), ("k3", "proximal")]), "twice"),
        (Stack("dis", "update"), "takes the ratio direct, not update"),
        (Stack("squared", "direct", "episode"), "takes the ratio update, not direct"),
        (Stack("clip", "proximal"), "not proximal"),
        (Stack("squared", "update"), "not of a token"),
        (Stack("cispo", "update", "turn"), "not of a turn"),
        (Stack("clip", "update", corrections=[("tis", "update")]), "not update"),
        (Stack("nll", "none", corrections=[("tis", "engine")]), "nothing to correct"),
    ],
)
def test_stacks_that_count_twice_or_do_not_fit(stack, said):
    found = conflicts(stack)
    assert len(found) == 1 and said in found[0]


def test_an_unknown_name_is_no_stack():
    with pytest.raises(KeyError):
        conflicts(Stack("clop", "update"))
