"""The shaped, gated and constrained recipes, two short batches each, from file to summary."""

import json
import shutil
from pathlib import Path

import pytest
from tiny import hexad

from hexad.environments.registry import family
from hexad.policy.load import load_policy

RECIPES = Path(__file__).parents[2] / "recipes"
SHORT = (
    "policy.model=builtin:tiny",
    "task.limits={turns: 2, turn_tokens: 24, context_tokens: 200}",
    "update.minibatches=1",
    "run.evaluation={every: null, final: none}",
    "run.checkpoints.every=1",
    "system={engine_rows: 16, threads: 1}",
)
PPO = ("data.groups=4", "critic.minibatches=1", "critic.pretrain=0", "budget.episodes=8")
GRPO = ("data={groups: 2, group_size: 4}", "budget.episodes=16")


@pytest.fixture(scope="module")
def grammar():
    """Turns are calls or answers, equally often: a new policy that acts."""
    syntax = load_policy("builtin:tiny", seed=0).chat(family("calculator").tools).syntax
    head = '{\\"name\\": \\"calculate\\", \\"arguments\\": {\\"a\\": '
    text = (
        f'start: <[{syntax.open_id}]> call <[{syntax.close_id}]> | "0" N\n'
        f'call: "{head}" N ", \\"op\\": \\"" OP "\\", \\"b\\": " N "}}}}"\n'
        "N: /[1-9]/\nOP: /[-+*]/\n"
    )
    return f"policy.sampling.grammar={json.dumps(text)}"


def train(name, run, *words):
    size = PPO if name == "shaped" else GRPO
    recipe = RECIPES / f"calculator-{name}.yaml"
    code, text = hexad("train", recipe, *SHORT, *size, *words, "--run", run)
    assert code == 0, text
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return rows, text + hexad("report", run)[1]


def timeless(row):
    return {key: value for key, value in row.items() if not key.startswith("time/")}


def test_a_shaped_run_says_how_its_signal_is_paid(tmp_path, grammar):
    rows, text = train("shaped", tmp_path / "run", grammar)
    assert len(rows) == 2
    said = " ".join(text.split())
    assert "process signal remaining, paid as a potential: the best policy stays the best" in said
    assert "reward/component/remaining" not in rows[0], "a potential is no component"
    words = ("--process", "remaining", "--high", "0.25", "--cell", "high-miss")
    code, text = hexad("audit", tmp_path / "run", *words)
    assert code == 0 and "remaining" in text and "independent miss" in text, text
    assert hexad("audit", tmp_path / "run", "--process", "remainder")[0] == 2


def test_a_progress_score_is_labelled_as_one(tmp_path, grammar):
    words = (grammar, "feedback.process.remaining.paid=increment", "feedback.costs={turn: 0.01}")
    rows, text = train("shaped", tmp_path / "run", *words)
    assert "a general progress score, no guarantee" in " ".join(text.split())
    assert rows[0]["reward/component/cost"] < 0 and "reward/component/remaining" in rows[0]


def test_a_gated_run_counts_what_was_tried(tmp_path, grammar):
    rows, text = train("gated", tmp_path / "run", grammar)
    tried = [row["conduct/violating"] for row in rows]
    assert max(tried) > 0, "a third of what a new policy calls is a product"
    assert rows[0]["conduct/gated"] == pytest.approx(rows[0]["conduct/violating"])
    assert "episodes with a violation" in text and "refused calls" in text
    assert "gate: an episode with a violation is paid 0" in " ".join(text.split())


@pytest.mark.parametrize("dual", ["rate", "pid"])
def test_a_multiplier_is_shown_and_survives_a_resume(tmp_path, dual, grammar):
    """Two batches of 8 episodes with at most 2 calls each, about half of what is said."""
    words = [grammar, "feedback.constraints.calls.limit=0.3"]
    if dual == "pid":
        words.append("feedback.constraints.calls={of: calls, limit: 0.3, pid: {}}")
    run, again = tmp_path / "run", tmp_path / "again"
    rows, text = train("constrained", run, *words)
    (cost, moved), (later, last) = (
        (row["constraint/calls/cost"], row["constraint/calls/multiplier"]) for row in rows
    )
    excess = cost - 0.3
    gain = 0.02 if dual == "rate" else 0.1 * 0.05 + 0.01
    drift = 0.0 if dual == "rate" else 0.01 * 0.05 * cost
    assert excess > 0 and moved == pytest.approx(gain * excess + drift)
    assert last != moved
    if dual == "rate":
        assert last == pytest.approx(max(0.0, moved + 0.02 * (later - 0.3)))
    assert f"{later:.3g} of 0.3, multiplier {last:.3g}" in " ".join(text.split())
    shutil.copytree(run, again)
    shutil.rmtree(again / "checkpoints" / "step_2")
    resumed, _ = train("constrained", again, *words, "--resume")
    assert [timeless(row) for row in resumed] == [timeless(row) for row in rows]
