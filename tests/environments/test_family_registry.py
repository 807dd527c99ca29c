import asyncio

import pytest

from hexad.contract.faults import EnvironmentFault, ToolFault, UserError
from hexad.contract.messages import AssistantTurn
from hexad.contract.task import Split
from hexad.environments import registry


def test_built_ins_and_references_resolve():
    assert registry.family("calculator", {"high": 9}, {"train": {"high": 5}}).name == "calculator"
    assert registry.family("calculator-hard").name == "calculator-hard"
    direct = registry.family("hexad.environments.calculator:CalculatorFamily", {}, {})
    assert direct.digest == registry.family("calculator").digest


def test_digest_names_family_and_options():
    digests = {
        registry.family("calculator").digest,
        registry.family("calculator-hard").digest,
        registry.family("calculator", {"high": 20}).digest,
        registry.family("calculator", {}, {"hidden": {"high": 20}}).digest,
    }
    assert len(digests) == 4
    assert registry.family("calculator", {"high": 9}).digest in digests


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("calculater", "did you mean calculator"),
        ("zzz", "known: calculator, calculator-hard"),
        ("no.such.module:thing", "cannot import no.such.module"),
        ("hexad.environments.calculator:CalculatorFamly", "did you mean CalculatorFamily"),
        ("hexad.environments.calculator:", "package.module:object"),
        ("bad_environment:not_a_family", "no task family"),
        ("bad_environment:too_few", r"\(options, split_options, workers\)"),
        ("bad_environment:BLOCK_SECONDS", "cannot make a family"),
    ],
)
def test_a_wrong_name_is_the_users_error_with_a_way_out(name, says):
    with pytest.raises(UserError, match=says) as caught:
        registry.family(name, {}, {})
    assert caught.value.where == "task.environment"


@pytest.mark.parametrize(
    ("options", "splits", "where", "says"),
    [
        ({"hihg": 3}, {}, "task.options.hihg", "did you mean high"),
        ({}, {"train": {"opertions": {}}}, "task.train.options.opertions", "operations"),
        ({}, {"hidden": {"seed": 1}}, "task.hidden.options.seed", "only training"),
        ({}, {"trian": {}}, "task", "did you mean train"),
        ({"high": "many"}, {}, "task.options.high", "integer"),
        ({"low": -1}, {}, "task.options.low", "greater than or equal to 0"),
        ({"low": 9, "high": 3}, {}, "task.options", "low is 9 but high is 3"),
        ({"operations": {"x": 1}}, {}, "task.options.operations.x", "integer"),
        ({"operations": {0: 1}}, {}, "task.options.operations", "1..12"),
        ({"operations": {1: -1}}, {}, "task.options.operations", "at least 0"),
        ({"operations": {1: float("nan")}}, {}, "task.options.operations", "at least 0"),
        ({"operations": {1: 0}}, {}, "task.options.operations", "must be positive"),
        ({"operators": "+/"}, {}, "task.options.operators", r"among \+ - \*"),
        ({"operators": []}, {}, "task.options.operators", "distinct"),
        ({"operators": "++"}, {}, "task.options.operators", "distinct"),
    ],
)
def test_a_bad_option_is_named_with_its_place(options, splits, where, says):
    with pytest.raises(UserError, match=says) as caught:
        registry.family("calculator", options, splits)
    assert caught.value.where.startswith(where)


def test_split_options_override_common_ones_and_keys_may_be_text():
    family = registry.family("calculator", {"low": 50, "high": 60}, {"train": {"low": 30}})
    assert min(int(t.data["expression"][:2]) for t in family.tasks(Split.TRAIN, 60)) < 50
    assert min(int(t.data["expression"][:2]) for t in family.tasks(Split.HIDDEN, 60)) >= 50
    listed = registry.family("calculator", {"operators": ["+"], "operations": {"1": 1}})
    assert all("+" in t.data["expression"] for t in listed.tasks(Split.TRAIN, 20))


def bad(**options):
    return registry.family("bad_environment:BadFamily", options)


def play_bad(family):
    async def episode():
        world = family.make()
        [task] = family.tasks(Split.TRAIN, 1)
        start = await world.reset(task, 0)
        step = await world.step(AssistantTurn("1"))
        await world.close()
        return start, step

    return asyncio.run(asyncio.wait_for(episode(), 0.5))


@pytest.mark.parametrize("where", ["reset", "step"])
def test_the_bad_families_are_bad_where_they_say(where):
    with pytest.raises(ZeroDivisionError, match=where):
        play_bad(bad(where=where))
    with pytest.raises(EnvironmentFault, match=where):
        play_bad(bad(where=where, how="fault"))
    with pytest.raises(ToolFault, match=where):
        play_bad(bad(where=where, how="tool_fault"))
    with pytest.raises(TimeoutError):
        play_bad(bad(where=where, how="hang"))
    assert {"junk": where} in play_bad(bad(where=where, how="junk"))
    once = bad(where=where, how="raise", times=1)
    with pytest.raises(ZeroDivisionError):
        play_bad(once)
    assert play_bad(once)[1].ending.terminated and once.hits == 1
