"""The rungs of docs/ladder.md differ in one axis each; recipes keep what makes their method."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from hexad.recipe.load import load

ROOT = Path(__file__).parents[2]
RUNGS = sorted((ROOT / "recipes" / "ladder").glob("*.yaml"))


def leaves(tree, prefix=""):
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from leaves(value, f"{name}.")
        else:
            yield name, value


def decisions(path):
    found = dict(leaves(load(path).model_dump()))
    del found["name"]
    return found


def changed(before, after):
    keys = {k for k in {*before, *after} if before.get(k) != after.get(k)}
    return {".".join(key.split(".")[:2]) for key in keys}


def test_each_rung_changes_what_the_table_says_and_nothing_else():
    rows = re.findall(
        r"^\| `(.+?)` \|.*?\| ?(.*?) ?\|$", (ROOT / "docs/ladder.md").read_text(), re.M
    )
    assert [name for name, _ in rows] == [path.stem for path in RUNGS]
    said = [set(re.findall(r"`(.+?)`", keys)) for _, keys in rows]
    rungs = [decisions(path) for path in RUNGS]
    found = [changed(before, after) for before, after in pairwise(rungs)]
    assert [set(), *found] == said
    axes = [{key.split(".")[0] for key in keys} for keys in found]
    assert axes == [{"timing"}, {"update"}, {"data"}, {"critic", "credit"}]


@pytest.mark.parametrize("method", ["sao", "areal", "impala"])
def test_an_asynchronous_recipe_keeps_what_makes_its_method(method):
    recipe = load(ROOT / "recipes" / f"calculator-{method}.yaml")
    assert recipe.method == method and recipe.timing.mode == "asynchronous"
    assert (
        recipe.task.latency.kind == "pareto" and recipe.data.groups * recipe.data.group_size == 256
    )
    update, credit = recipe.update, recipe.credit
    if method == "sao":
        assert (update.surrogate, update.clip_low, update.clip_high) == ("dis", 0.3, 5.0)
        assert (recipe.critic.updates, recipe.critic.freeze, credit.alpha) == (2, "attention", 1.5)
        assert recipe.data.group_size == 1
    elif method == "areal":
        assert (update.surrogate, update.correction.ratio, update.old) == (
            "clip",
            "proximal",
            "recomputed",
        )
    else:
        assert (credit.estimator, credit.rho_bar, credit.c_bar) == ("vtrace", 2.0, 2.0)
