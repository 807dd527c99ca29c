"""A preference run: its books hold every sample once, and a killed one is the whole one."""

import json
import signal

import pytest
from short_run import facts, finish, start

RECIPE = """
name: short
method: dpo
task:
  environment: calculator
  limits: {turns: 3, turn_tokens: 8, context_tokens: 160}
policy: {model: "builtin:tiny", sampling: {grammar: "start: /[0-9][0-9]?[0-9]?/"}}
feedback: {mapping: "dense:DenseMapping"}
data:
  groups: 3
  group_size: 4
  rounds: {tasks: 4, passes: 2, rounds: 2, reference: round_start}
  pairs: {rule: reward_gap, gap: 0.05, most: 2}
update:
  minibatches: 2
  optimizer: {lr: 1e-4}
budget: {train_tokens: 100000}
run:
  seed: 3
  evaluation: {every: 3, tasks: 6, final: none}
  checkpoints: {every: 2, keep: 2}
system: {engine_rows: 12, threads: 1}
"""


def write_recipe(folder):
    path = folder / "short.yaml"
    path.write_text(RECIPE)
    return path


def audits(run):
    return (run / "pairs.jsonl").read_text()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    output = finish(start(write_recipe(folder), folder / "run"))
    return folder / "run", output


def test_every_sample_is_booked_once_and_reused_samples_cost_no_rollout(whole):
    run, _ = whole
    last = json.loads((run / "ledger.jsonl").read_text().splitlines()[-1])
    books = last["books"]
    played = books["generated"] - books["auxiliary"]["evaluation"]
    assert played == books["trained"] + sum(books["dropped"].values())
    assert books["pending"] == 0 and set(books["dropped"]) == {"unused"}
    row = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["budget/episodes"] == 2 * 4 * 4
    assert row["budget/train_tokens"] == 2 * books["trained"]


def test_both_rounds_are_audited_on_the_screen_and_in_the_folder(whole):
    run, output = whole
    rows = [json.loads(line) for line in audits(run).splitlines()]
    assert [row["round"] for row in rows] == [0, 1]
    assert all(row["tasks"] == 4 and row["pairs"] > 0 for row in rows)
    assert output.count("round 0: ") == output.count("round 1: ") == 1


def test_every_round_begins_at_its_own_reference(whole):
    """Two steps a batch: the first at the reference, with loss ln 2; all later ones below it."""
    rows = [json.loads(line) for line in (whole[0] / "metrics.jsonl").read_text().splitlines()]
    begun = {json.loads(line)["step"] for line in audits(whole[0]).splitlines()}
    assert len(begun) == 2 and len(rows) > 2
    for row in rows:
        neutral = row["policy/loss/max"] == pytest.approx(0.693147, abs=1e-6)
        assert neutral == (row["step"] in begun)


@pytest.mark.parametrize(
    "point", ["loop:after-update:4", "loop:after-store:1", "rollout:episode:20"]
)
def test_a_kill_changes_nothing(whole, tmp_path, point):
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    killed = start(recipe, run, HEXAD_CRASH_AT=point)
    output, _ = killed.communicate(timeout=240)
    assert killed.returncode == -signal.SIGKILL, output
    finish(start(recipe, run, "--resume"))
    found, expected = facts(run), facts(whole[0])
    for name in expected:
        assert found[name] == expected[name], f"{name} differs"
    assert audits(run) == audits(whole[0])
