"""DAgger from end to end, a resume in its second round, and its episodes as logged data."""

import json

import pytest
from short_run import rows
from tiny import hexad

from hexad.contract.store import Store
from hexad.evidence.folder import claim
from hexad.learner import checkpoint
from hexad.recipe.load import load
from hexad.run import train

RECIPE = """
name: visited
method: dagger
task:
  environment: calculator
  limits: {turns: 3, turn_tokens: 24, context_tokens: 320}
  selection: {count: 4}
policy: {model: "builtin:tiny"}
feedback: {mapping: "dense:DenseMapping"}
data: {groups: 2, rounds: {tasks: 3, passes: 1, rounds: 2}}
update: {optimizer: {lr: 4e-3}}
budget: {train_tokens: 100000}
run:
  seed: 3
  evaluation: {every: null, final: selection}
  checkpoints: {every: 1, keep: 2}
system: {engine_rows: 12, threads: 1}
"""
AWR = """
name: logged
method: awr
task:
  environment: calculator
  limits: {{turns: 3, turn_tokens: 24, context_tokens: 320}}
policy: {{model: "builtin:tiny"}}
data: {{origin: {}, groups: 3, advantage: {{beta: 0.1, cap: 3.0, baseline: data}}}}
update: {{optimizer: {{lr: 4e-3, schedule: constant}}}}
budget: {{episodes: 18}}
run: {{evaluation: {{every: null, final: none}}}}
system: {{threads: 1}}
"""


def logged(run, name):
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "recipe.yaml").write_text(RECIPE)
    code, output = hexad("train", folder / "recipe.yaml", "--run", folder / "run")
    assert code == 0, output
    return folder / "run", output + hexad("report", folder / "run")[1]


def test_rounds_are_played_labelled_and_aggregated(whole):
    run, output = whole
    metrics = logged(run, "metrics.jsonl")
    assert len(metrics) == 2 + 3  # 3 episodes, then 3 + 3, two a batch
    audits = logged(run, "pairs.jsonl")
    assert [row["episodes"] for row in audits] == [3, 3]
    books = logged(run, "ledger.jsonl")[-1]["books"]
    assert set(books["dropped"]) == {"unused"} and books["pending"] == 0
    assert books["supplied"] == books["trained"] > 0
    played = books["generated"] - books["auxiliary"]["evaluation"]
    assert played == books["dropped"]["unused"]
    assert len(Store(run / "episodes").read()) == 6
    assert "round 1: 3 episodes with" in output


def test_evaluations_show_how_imitation_errs(whole):
    run, output = whole
    first, last = (row["imitation"] for row in logged(run, "evaluation.jsonl"))
    assert first["token_loss"]["of"] == "expert"
    assert last["token_loss"]["mean"] < first["token_loss"]["mean"]
    assert last["first_error"][0]["at_risk"] == 4 and last["recovery"]["erred"] >= 1
    assert "held-out token loss" in output and "first error by turn" in output


def test_a_run_that_stops_in_its_second_round_goes_on_as_if_it_had_not(whole, tmp_path):
    path, run = tmp_path / "recipe.yaml", tmp_path / "run"
    path.write_text(RECIPE)
    claim(run, load(path), resume=False)
    asked = iter([False] * 3)
    train(load(path), run, interrupted=lambda: next(asked, True))
    assert len(logged(run, "metrics.jsonl")) == 3
    code, output = hexad("train", path, "--run", run, "--resume")
    assert code == 0, output
    for name in ("metrics.jsonl", "ledger.jsonl", "pairs.jsonl"):
        assert rows(run / name) == rows(whole[0] / name)
    ends = [checkpoint.newest(each).policy / "model.safetensors" for each in (run, whole[0])]
    assert ends[0].read_bytes() == ends[1].read_bytes()


def test_logged_episodes_are_imitated_by_their_scores(whole, tmp_path):
    path = tmp_path / "awr.yaml"
    path.write_text(AWR.format(whole[0] / "episodes"))
    code, output = hexad("train", path, "--run", tmp_path / "run")
    assert code == 0, output
    losses = [row["policy/loss"] for row in logged(tmp_path / "run", "metrics.jsonl")]
    assert len(losses) == 6 and sum(losses[4:]) < sum(losses[:2])  # a pass is two batches
