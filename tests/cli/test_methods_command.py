"""``hexad methods``, and what becomes of a method that cannot run yet."""

import contextlib
import io
import json

import pytest

from hexad.cli import main as entry
from hexad.recipe.methods import METHODS

LACKING = {"compactionrl"}
ROUND = ("budget.episodes=null", "budget.train_tokens=64")
EXTRA = {
    "dr_grpo": ("action.length=64",),
    **dict.fromkeys(("rejection", "dagger", "dpo", "ipo", "simpo", "kto", "reward_model"), ROUND),
    "awr": ("data.origin=runs/x/episodes",),
}


def hexad(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        with pytest.raises(SystemExit) as caught:
            entry.main([str(word) for word in words])
    return caught.value.code, out.getvalue(), err.getvalue()


def test_the_table_names_every_method_and_the_legal_combinations():
    code, out, _ = hexad("methods")
    assert code == 0
    assert all(name in out for name in METHODS)
    assert "surrogates" in out and "estimators" in out


def test_a_card_is_one_screen_with_equation_source_and_functions():
    code, out, _ = hexad("methods", "vapo")
    assert code == 0 and len(out.splitlines()) < 50
    assert "lambda_policy = 1 - 1 / (alpha l)" in out and "2504.05118" in out
    assert "hexad.credit.gae:gae" in out


def test_json_is_one_document():
    code, out, _ = hexad("methods", "--json")
    records = {record["name"]: record for record in json.loads(out)["methods"]}
    assert code == 0 and set(records) == set(METHODS)
    assert {name for name, record in records.items() if not record["runs"]} == LACKING


def test_an_unknown_method_is_the_users_mistake():
    code, _, err = hexad("methods", "vappo")
    assert code == 2 and "did you mean vapo?" in err


@pytest.mark.parametrize("name", METHODS)
def test_every_card_passes_a_dry_run(tmp_path, name):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"method: {name}\nbudget: {{episodes: 64}}\n")
    code, out, err = hexad("train", recipe, *EXTRA.get(name, ()), "--dry-run")
    assert code == 0, err
    assert name in out


@pytest.mark.parametrize("name", sorted(LACKING))
def test_a_method_that_cannot_run_as_published_does_not_run_at_all(tmp_path, name):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"method: {name}\nbudget: {{episodes: 64}}\n")
    code, _, err = hexad("train", recipe, "--run", tmp_path / "run")
    assert code == 2 and METHODS[name].missing in err and "hexad methods" in err
