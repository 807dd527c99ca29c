"""``hexad check`` on a tiny recipe: a real batch, one document, nothing of a run left behind."""

import contextlib
import io
import json
from pathlib import Path

import pytest

from hexad.cli import main as entry
from hexad.cli.advise_evidence import _profile
from hexad.evidence import profiles
from hexad.evidence.qualify import agreement
from hexad.recipe.load import load
from hexad.schedule.trial import streamed

RECIPE = """
method: grpo
task:
  limits: {turns: 2, turn_tokens: 6, context_tokens: 160}
  latency: {kind: constant, mean: 0.02, at: both}
data: {groups: 4, group_size: 3}
budget: {episodes: 12}
update: {minibatches: 2}
run: {evaluation: {every: null, final: none}}
system: {engine_rows: 16, threads: 1}
"""


def hexad(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        with pytest.raises(SystemExit) as caught:
            entry.main([str(word) for word in words])
    return caught.value.code, out.getvalue(), err.getvalue()


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE)
    return path


def test_a_small_batch_is_measured_and_forecast_and_only_the_profile_is_written(recipe, tmp_path):
    words = ("--workers", 2, "--cluster-workers", 24)
    code, out, err = hexad("check", recipe, "run.seed=3", *words, "--json")
    assert code == 0, err
    found = json.loads(out)
    measured, here = found["measured"], found["here"]
    judges = {purpose: row["card"]["name"] for purpose, row in found["verifiers"].items()}
    assert judges == {"training": "answer", "evaluation": "left_to_right"}
    qualified = found["qualification"]
    assert qualified["cases"] == dict.fromkeys(
        ("demonstration", "other", "both", "wrapped"), 32
    ) | {"policy": 12}
    assert qualified["agreement"]["share"] == 1.0 and qualified["undetermined"] == 0
    assert qualified["repeats"] == {"episodes": 8, "differ": 0}
    assert (measured["groups"], measured["episodes"], measured["faulted"]) == (4, 12, 0)
    assert measured["learner_seconds"] > 0 and measured["step_seconds"] >= 0
    assert min(measured["streaming"].values()) >= 0 < measured["streaming"]["arrival_seconds"]
    assert measured["profile"]["latency"]["mean"] == 0.02
    assert measured["signal"] == 0.0 and sum(measured["groups_by_verdict"].values()) == 4
    paths = [path for group in measured["profile"]["groups"] for path in group]
    waits = [turn["wait"] for path in paths for turn in path["turns"] if turn["wait"]]
    waits += [path["reset"] for path in paths]
    assert len(waits) >= 12 and all(0.02 <= wait < 0.5 for wait in waits)
    names = ["synchronous", "without ticks", *(f"max_lag {lag}" for lag in (1, 2, 4, 8))]
    assert list(here["schedules"]) == names and here["machine"]["workers"] == 2
    assert here["schedules"]["synchronous"]["speedup"] == 1.0
    for row in (*here["schedules"].values(), *found["cluster"]["schedules"].values()):
        assert row["planned"] == row["trained"] + row["stale"] + row["pending"]
        # Groups are drawn with replacement, and a few can be lighter than the mean of all.
        assert row["batch_seconds"] >= row["floor_seconds"] * 0.95
    assert found["cluster"]["batch"] == {"groups": 8, "group_size": 3}
    assert found["episode"]["spans"] and found["key"] == profiles.key(load(recipe))
    written = [p for p in Path("runs").rglob("*") if p.is_file()]
    assert written == [Path(found["written"])] == [Path("runs/checks") / f"{found['key']}.json"]
    kept = json.loads(written[0].read_text())
    assert kept == {k: v for k, v in found.items() if k != "written"}


def test_the_learner_is_scaled_from_the_small_batch_to_the_recipes_own(recipe, monkeypatch):
    monkeypatch.setattr("hexad.preflight.EPISODES", 6)
    code, out, err = hexad("check", recipe, "--cluster-workers", 6, "--json")
    assert code == 0, err
    measured = json.loads(out)["measured"]
    assert (measured["groups"], measured["episodes"]) == (2, 6)
    phases = [measured["phases"][name] for name in ("score", "update", "publish")]
    spent = min(sum(phase[clock] for phase in phases) for clock in ("wall", "cpu"))
    assert measured["profile"]["learner_seconds"] == pytest.approx(spent * 4 / 2)
    assert measured["learner_seconds"] == pytest.approx(spent)


def test_people_get_tables_and_a_folder_of_their_choice(recipe, tmp_path):
    said = [{"role": "user", "content": "1+2"}, {"role": "assistant", "content": "3"}]
    labels = [{"messages": said, "data": {"answer": answer}, "success": True} for answer in (3, 4)]
    (tmp_path / "labels.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in labels))
    words = ("--out", tmp_path / "mine", "--labels", tmp_path / "labels.jsonl")
    code, out, err = hexad("check", recipe, "--cluster-workers", 6, *words)
    assert code == 0, err
    kept = json.loads((tmp_path / "mine" / "check.json").read_text())["qualification"]["labelled"]
    assert (kept["share"], kept["judged"]) == (0.5, 2) and "labelled: refused" in out
    for title in ("Episode", "Measured: 12 episodes", "Forecast for this machine", "a cluster"):
        assert title in out
    assert (tmp_path / "mine" / "check.json").exists() and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("method: sft\nbudget: {episodes: 8}\n", "samples nothing"),
        (
            "stages:\n- recipe: {method: grpo, name: one, budget: {episodes: 8}}\n",
            "stage by stage: one",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_with_a_way_out(recipe, text, says):
    recipe.write_text(text)
    code, _, err = hexad("check", recipe)
    assert code == 2 and says in err and "fix:" in err


def test_an_environment_that_only_fails_ends_the_check_as_it_ends_training(recipe):
    code, _, err = hexad("check", recipe, "task.chaos={crash: 1.0}", "data.retries=0")
    assert code == 1 and "EnvironmentFault x 12" in err


def test_a_trial_begins_again_where_the_tasks_end(recipe, tmp_path):
    """Four groups of one need 13 episodes in all, and there are four tasks."""
    words = ["method=reinforce", "data.group_size=1", "task.train.count=4", "task.latency=null"]
    costs = streamed(load(recipe, words), tmp_path / "wal")
    assert min(costs.step_seconds, costs.row_seconds) >= 0 < costs.arrival_seconds
    assert len(list((tmp_path / "wal").iterdir())) == 13


def test_a_recipe_of_rounds_has_its_verifier_measured_and_no_barrier(recipe, tmp_path):
    words = ("method=rejection", "data.rounds.tasks=8", "data.group_size=4", "update.minibatches=1")
    code, out, err = hexad("check", recipe, *words, "task.latency=null", "budget.episodes=null",
                           "budget.train_tokens=1000", "--json")  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    assert found["qualification"]["agreement"]["share"] == 1.0
    assert found["qualification"]["cases"]["policy"] == 64 and "measured" not in found
    assert found["episode"]["spans"] and Path(found["written"]).exists()
    given = load(recipe, [*words, "budget.episodes=null", "budget.train_tokens=1000",
                          "task.latency=null"])  # fmt: skip
    heard = _profile(found, "check")
    assert heard.profile is None and heard.qualified[0].agreement.right > 0
    digest = found["verifiers"]["training"]["digest"]
    assert agreement(given, tmp_path / "none", digest) == 1.0
