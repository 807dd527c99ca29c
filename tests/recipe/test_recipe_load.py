import subprocess
import sys
from pathlib import Path

import pytest

from hexad.contract.faults import UserError
from hexad.recipe.axes import Recipe
from hexad.recipe.dump import dump
from hexad.recipe.load import load
from hexad.recipe.presets import headline, modified
from hexad.recipe.staged import Staged

RECIPES = Path(__file__).parents[2] / "recipes"
GRPO = "method: grpo\nbudget:\n  episodes: 64\n"


@pytest.fixture
def write(tmp_path):
    def _write(text, name="r.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return _write


def refused(path, *overrides):
    with pytest.raises(UserError) as caught:
        load(path, list(overrides))
    return caught.value


def test_preset_fills_what_the_user_did_not_write(write):
    recipe = load(write(GRPO))
    assert recipe.credit.std == "population" and recipe.credit.threshold == 1e-6
    assert (recipe.update.clip_low, recipe.update.clip_high) == (0.2, 0.2)
    assert recipe.action.denominator == "episode" and headline(recipe) == "grpo"


def test_written_values_win_and_are_said_aloud(write):
    recipe = load(write(GRPO + "update: {clip_high: 0.28}\n"))
    assert recipe.update.clip_high == 0.28 and recipe.update.clip_low == 0.2
    assert modified(recipe) == {"update.clip_high": (0.28, 0.2)}
    assert headline(recipe) == "grpo, modified: update.clip_high = 0.28 (preset 0.2)"


def test_another_choice_drops_the_preset_values_that_belonged_to_it(write):
    recipe = load(write(GRPO), ["update.surrogate=plain", "credit.estimator=rloo"])
    assert recipe.update.clip_low is None and recipe.credit.std is None


@pytest.mark.parametrize("name", ["calculator-sft", "calculator-rloo", "calculator-grpo"])
def test_resolved_dump_loads_to_the_identical_recipe(name, write):
    recipe = load(RECIPES / f"{name}.yaml", ["run.seed=7"])
    again = load(write(dump(recipe)))
    assert again == recipe and dump(again) == dump(recipe)


def test_scientific_notation_is_a_number_both_in_files_and_overrides(write):
    path = write(GRPO + "update: {optimizer: {lr: 1e-6}}\n")
    assert load(path).update.optimizer.lr == 1e-6
    assert load(path, ["update.optimizer.lr=3e-4"]).update.optimizer.lr == 3e-4


def test_overrides_are_yaml_values(write):
    overrides = ["task.limits={turns: 3}", "run.evaluation.every=null", "task.options.deep.a=yes"]
    recipe = load(write(GRPO), overrides)
    assert recipe.task.limits.turns == 3 and recipe.run.evaluation.every is None
    assert recipe.task.options == {"deep": {"a": "yes"}}


def test_unknown_key_names_path_line_and_nearest_name(write):
    error = refused(write(GRPO + "update:\n  optimizer:\n    lrr: 1\n"))
    assert "update.optimizer.lrr" in error.what and error.where.endswith("r.yaml:6")
    assert error.fix == "did you mean update.optimizer.lr?"


def test_unknown_key_in_the_wrong_section_points_to_the_right_one(write):
    assert refused(write(GRPO), "clip_low=0.1").fix == "did you mean update.clip_low?"


def test_unknown_method_names_the_nearest(write):
    error = refused(write("method: grpoo\n"))
    assert "grpoo" in error.what and error.fix == "did you mean grpo?"
    assert error.where.endswith("r.yaml:1")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("update.optimizer.lr=fast", "a number"),
        ("update.optimizer.lr='3e-4'", "a number"),
        ("data.groups=8.5", "a whole number"),
        ("data.groups=true", "a whole number"),
        ("data.groups=0", "greater than 0"),
        ("update=3", "a section"),
        ("name=3", "text"),
        ("update.optimizer.lr=.nan", "finite"),
        ("update.optimizer.lr=.inf", "finite"),
        ("data.regime=offline", "'fixed', 'iterative' or 'online'"),
        ("critic=3", "a section"),
    ],
)
def test_wrong_type_names_the_key_and_what_is_expected(write, override, expected):
    error = refused(write(GRPO), override)
    assert error.what.startswith(override.split("=")[0] + ":") and expected in error.what
    assert override in error.where


def test_every_mistake_is_listed(write):
    text = str(refused(write(GRPO), "data.groups=x", "nmae=a"))
    assert "data.groups" in text and "nmae" in text and "did you mean name?" in text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [\n", 2),
        ("method: grpo\nmethod: sft\n", 2),
        ("a: 1\nb: !!python/name:os.system x\n", 2),
    ],
)
def test_broken_yaml_names_the_line(write, text, line):
    error = refused(write(text))
    assert "YAML" in error.what and error.where.endswith(f"r.yaml:{line}")


@pytest.mark.parametrize("text", ["", "- a\n", "just text\n", "7\n"])
def test_a_file_that_is_no_mapping_is_refused(write, text):
    assert "mapping" in refused(write(text)).what


def test_a_missing_file_is_refused(tmp_path):
    assert "no such recipe" in refused(tmp_path / "nothing.yaml").what


@pytest.mark.parametrize("override", ["x", "=3", "a..b=1", "update.clip_low.x=1"])
def test_a_malformed_override_is_refused(write, override):
    error = refused(write(GRPO + "update: {clip_low: 0.1}\n"), override)
    assert error.where and error.what


STAGED = """
name: path
stages:
  - {name: one, recipe: a.yaml, gate: {success: 0.25}}
  - name: two
    recipe: {method: grpo, policy: {model: previous}, budget: {episodes: 8}}
"""
SFT = "method: sft\nbudget: {episodes: 64}\n"


def test_staged_path_loads_files_gates_and_addressed_overrides(write):
    write(SFT, "a.yaml")
    path = write(STAGED)
    staged = load(path, ["run.seed=5", "stages.two.data.groups=4"])
    assert isinstance(staged, Staged) and [s.name for s in staged.stages] == ["one", "two"]
    assert [s.recipe.run.seed for s in staged.stages] == [5, 5]
    assert [s.recipe.data.groups for s in staged.stages] == [32, 4]
    assert staged.stages[0].gate.success == 0.25 and staged.stages[0].gate.split == "selection"
    assert staged.stages[1].recipe.policy.model == "previous" and staged.stages[1].gate is None
    assert load(write(dump(staged), "again.yaml")) == staged


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stages: []\n", "at least one"),
        ("stages: [{name: x}]\n", "names its recipe"),
        ("stages: [{name: x, recipe: a.yaml}, {name: x, recipe: a.yaml}]\n", "one name"),
        ("stages: [{recipe: b.yaml}]\n", "no such recipe"),
        ("stages: [{recipe: a.yaml, gaet: {}}]\n", "gaet"),
        ("stages: [{recipe: a.yaml, gate: {success: 2}}]\n", "success"),
        ("stages: [{recipe: a.yaml, gate: {split: hidden, success: 1}}]\n", "split"),
        ("stages: [{recipe: a.yaml, name: ../up}]\n", "cannot name"),
        ("stages: [a.yaml]\nmethod: sft\n", "method"),
        ("stages: [{recipe: a.yaml, overrides: {policy: {model: previous}}}]\n", "first stage"),
    ],
)
def test_a_broken_staged_path_is_refused(write, text, said):
    write(SFT, "a.yaml")
    assert said in refused(write(text)).what


def test_an_override_for_no_stage_is_refused(write):
    write(SFT, "a.yaml")
    error = refused(write(STAGED), "stages.three.run.seed=1")
    assert "one, two" in error.fix


def test_previous_outside_a_path_is_refused(write):
    assert "no stage before" in refused(write(GRPO), "policy.model=previous").what


def test_shipped_staged_recipe_loads():
    staged = load(RECIPES / "calculator.yaml")
    assert [s.recipe.method for s in staged.stages] == ["sft", "grpo"]
    assert staged.stages[0].gate is not None


def test_every_field_is_documented():
    def undocumented(kind, prefix=""):
        for name, field in kind.model_fields.items():
            below = field.annotation
            if hasattr(below, "model_fields"):
                yield from undocumented(below, f"{prefix}{name}.")
            elif not field.description:
                yield prefix + name

    assert list(undocumented(Recipe)) == []


def test_recipes_load_without_torch():
    code = (
        "import sys; from hexad.recipe.load import load; from hexad.recipe.dump import dump;"
        f"dump(load({str(RECIPES / 'calculator.yaml')!r})); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
