"""The checkpoint of the best success on selection is kept, named and can be asked for."""

import json
import os

import pytest
from tiny import RECIPE, hexad

from hexad.evidence import journal, selection
from hexad.evidence.summary import summarize

SUCCESS = {0: 0.1, 1: 0.6, 2: 0.6, 3: 0.2, 4: 0.2}
"""Of every version on selection: version 1 is the best, and 2 no better."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("best")
    recipe = RECIPE.replace("episodes: 8", "episodes: 16").replace("keep: 2", "keep: 1")
    recipe = recipe.replace("{every: null, final: none}", "{every: 1, tasks: 2, final: none}")
    (folder / "r.yaml").write_text(recipe)
    append = journal.append

    def measured(path, row):
        if path.name == journal.EVALUATIONS:
            row = {**row, "success": SUCCESS[row["step"]]}
        append(path, row)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "append", measured)
        code, output = hexad("train", folder / "r.yaml", "--run", folder / "run", "--json")
    assert code == 0, output
    return folder / "run"


def asked(*words):
    code, output = hexad(*words, "--json")
    return code, json.loads(output.splitlines()[-1])


def test_the_best_is_not_pruned_and_the_newest_stays_the_default(run):
    assert sorted(os.listdir(run / "checkpoints")) == ["step_1", "step_4"]
    for which, step in (((), 4), (("--checkpoint", "last"), 4), (("--checkpoint", 1), 1)):
        code, row = asked("evaluate", run, "--split", "gate", "--tasks", 2, *which)
        assert (code, row["step"]) == (0, step), row
    code, row = asked("evaluate", run, "--split", "gate", "--tasks", 2, "--checkpoint", "best")
    assert (code, row["step"]) == (0, 1)
    gate = run.parent / "gate.yaml"
    gate.write_text("tasks: 2\nunscored: 0\n")
    code, row = asked("gate", run, gate, "--checkpoint", "best")
    assert (code, row["step"]) == (0, 1)


def test_what_is_not_there_is_refused(run):
    for which, said in ((2, "version 2 has no checkpoint"), ("worst", "no checkpoint 'worst'")):
        code, row = asked("evaluate", run, "--tasks", 2, "--checkpoint", which)
        assert code == 2 and said in row["error"]["what"], row
    assert "1, 4" in asked("evaluate", run, "--checkpoint", 2)[1]["error"]["fix"]


def test_the_summary_names_it(run):
    (stage,) = summarize(run)["stages"]
    assert stage["checkpoint"] == {"best": {"step": 1, "success": 0.6}}


def test_a_better_version_without_a_checkpoint_is_told(tmp_path):
    assert selection.told(tmp_path) is None and selection.best(tmp_path) is None
    for step, success, count in ((0, 0.2, 8), (3, 0.9, 8), (4, 0.5, 8), (4, 0.1, 8), (0, 1.0, 64)):
        row = {"split": "selection", "step": step, "success": success, "episodes": count}
        journal.append(tmp_path / journal.EVALUATIONS, row)
    for step in (0, 4):
        (tmp_path / "checkpoints" / f"step_{step}").mkdir(parents=True)
        (tmp_path / "checkpoints" / f"step_{step}" / "manifest.json").write_text("{}")
    found = selection.told(tmp_path)
    assert found["best"] == {"step": 4, "success": 0.5}
    assert found["unsaved"] == {"step": 3, "success": 0.9}
    said = selection.line(found)
    assert said == "50.0% at version 4, kept; version 3 reached 90.0% and has no checkpoint"
    assert selection.best(tmp_path, 3).step == 3 and selection.best(tmp_path, 2).step == 0
