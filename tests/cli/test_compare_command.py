"""``hexad compare`` from outside: a real study of two tiny runs, and finished runs."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from hexad.cli import main as entry
from hexad.recipe.dump import write
from hexad.recipe.study import plan

sys.path.append(str(Path(__file__).parent.parent / "evidence"))
from compare_world import arm, outcomes

RECIPE = """
method: grpo
task:
  limits: {turns: 2, turn_tokens: 6, context_tokens: 160}
  selection: {count: 4}
  hidden: {count: 4}
policy: {model: "builtin:tiny"}
data: {groups: 2, group_size: 2, retries: 0}
update: {optimizer: {schedule: constant}}
budget: {episodes: 99}
run: {evaluation: {tasks: 4}, checkpoints: {every: 1}}
system: {engine_rows: 4, threads: 1}
"""
STUDY = """
name: tiny
recipe: tiny.yaml
grid: {update.clip_high: [0.3]}
budget: {episodes: 8}
seeds: [1]
margin: 0.05
attempts: 2
points: 2
"""


@pytest.fixture
def hexad(capsys):
    """Exit code, stdout and stderr of the command in this process."""

    def call(*words):
        with pytest.raises(SystemExit) as caught:
            entry.main([str(word) for word in words])
        streams = capsys.readouterr()
        return caught.value.code, streams.out, streams.err

    return call


@pytest.fixture
def study(tmp_path):
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path / "study.yaml"


def test_a_study_trains_resumes_and_ends_in_a_table(hexad, study, tmp_path):
    out, first = tmp_path / "out", tmp_path / "first.yaml"
    study.write_text(STUDY + "falsify: {random: {}}\n")
    run = out / "base-1"
    write(plan(study).arms[0].recipe(seed=1), first)
    assert hexad("train", first, "--run", run)[0] == 0
    shutil.rmtree(run / "checkpoints" / "step_2")  # as a kill after the first batch leaves it
    before = (run / "metrics.jsonl").read_text().splitlines()

    code, text, err = hexad("compare", study, "--out", out, "--json")
    found = json.loads(text)
    assert code == 0, err
    after = (run / "metrics.jsonl").read_text().splitlines()
    assert after[0] == before[0] and len(after) == 2 and after[1] != before[1]
    assert [arm["name"] for arm in found["arms"]] == ["base", "update.clip_high=0.3", "random"]
    assert found["arms"][1]["axes"] == {"update": ["update.clip_high"]}
    assert found["contrasts"][0]["verdict"] == "not enough data"
    assert found["hidden_uses"] == 3 and found["arms"][0]["peak_memory"] > 2**26
    assert [row["spent"] for row in found["curve"]] == [0, 0, 0, 4, 4, 8, 8]
    assert set(found["arms"][0]["passes"]) == {"pass@1", "pass^1", "pass@2", "pass^2"}
    states = {row["item"]: row["state"] for row in found["manifest"]}
    for item in ("start checkpoint", "hardware", "pass@k"):
        assert states[item] == "fixed", item
    fresh = found["arms"][2]
    assert (fresh["updates"], fresh["spent"]["episodes"], fresh["value"]) == (0, 0, 0.0)
    assert "random was not trained: it spent nothing of the budget" in found["notes"]
    assert json.loads((out / "comparison.json").read_text()) == found
    assert (out / "comparison.md").read_text().startswith("# tiny\n")


def test_a_dry_run_shows_arms_and_trains_nothing(hexad, study, tmp_path):
    code, text, err = hexad("compare", study, "--dry-run")
    assert code == 0 and err == "" and "2 arms x 1 seeds, each of 8 episodes" in text
    assert "sft: offered" in text and "synchronous: not available" in text
    code, text, _ = hexad("compare", study, "--dry-run", "--json")
    assert json.loads(text)["arms"][1]["axes"] == {"update": ["update.clip_high"]}
    assert {path.name for path in tmp_path.iterdir()} == {"tiny.yaml", "study.yaml"}


def test_finished_runs_are_compared(hexad, tmp_path):
    runs = [
        *arm(tmp_path / "plain", [outcomes(1, 0, 0, 0)] * 3),
        *arm(tmp_path / "fast", [outcomes(1, 1, 0, 0)] * 3, "update.optimizer.lr=1e-3"),
    ]
    code, text, err = hexad("compare", *runs, "--margin", "0.1", "--out", tmp_path / "kept")
    assert code == 0 and err == "" and "fast: not enough data: +25.0 points" in text
    assert (tmp_path / "kept" / "comparison.md").exists()
    code, text, _ = hexad("compare", *runs, "--metric", "selection/success", "--json")
    assert code == 0 and json.loads(text)["metric"]["split"] == "selection"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metric", "hidden/reward"], "no metric 'hidden/reward'"),
        (["--metric", "secret/success"], "no metric"),
        (["--dry-run"], "is for a study file"),
        (["--margin", "2"], "margin"),
    ],
)
def test_mistakes_are_the_users(hexad, tmp_path, words, said):
    runs = arm(tmp_path / "plain", [outcomes(1, 0)])
    code, out, err = hexad("compare", *runs, *runs, *words)
    assert code == 2 and out == "" and said in err and "Traceback" not in err


def test_a_study_file_says_what_decides(hexad, study):
    code, _, err = hexad("compare", study, "--margin", "0.3")
    assert code == 2 and "fixed before the first run" in err


def test_no_such_file_or_run(hexad, tmp_path):
    code, _, err = hexad("compare", tmp_path / "none.yaml")
    assert code == 2 and "no such recipe file" in err
    (tmp_path / "empty").mkdir()
    code, _, err = hexad("compare", tmp_path / "empty", tmp_path / "empty")
    assert code == 2 and "holds no run" in err
