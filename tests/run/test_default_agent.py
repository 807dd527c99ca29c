"""What `make train` runs, in short form; the whole of it behind the marker."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"


def hexad(*words: str, timeout: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hexad", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def staged(folder: Path, gate: float) -> Path:
    """The shipped path with three batches a stage and another gate."""
    short = "{episodes: 24}"
    body = f"""
name: path
stages:
  - name: sft
    recipe: {RECIPES / "calculator-sft.yaml"}
    gate: {{split: selection, success: {gate}}}
    overrides:
      data: {{groups: 8}}
      budget: {short}
      run: {{evaluation: {{tasks: 10, every: 3}}}}
  - name: grpo
    recipe: {RECIPES / "calculator-grpo.yaml"}
    overrides:
      policy: {{model: previous}}
      data: {{groups: 2, group_size: 4}}
      budget: {short}
      run: {{evaluation: {{tasks: 10, every: 3}}}}
"""
    path = folder / "path.yaml"
    path.write_text(body)
    return path


def test_a_staged_path_runs_reports_and_can_be_evaluated(tmp_path):
    run = tmp_path / "run"
    small = "task.hidden.count=12"
    done = hexad(
        "train", str(staged(tmp_path, 0.0)), small, "--run", str(run), "--json", timeout=240
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["reason"].startswith("budget episodes is used up")
    assert (run / "curve.png").stat().st_size > 10_000
    for stage in ("sft", "grpo"):
        assert (run / stage / "checkpoints" / "step_3" / "policy" / "model.safetensors").exists()
        splits = [json.loads(line)["split"] for line in open(run / stage / "evaluation.jsonl")]
        assert splits.count("hidden") == 2 and "selection" in splits
    assert any((run / "grpo" / "episodes").glob("part-*.parquet"))

    asked = hexad("evaluate", str(run), "--split", "gate", "--tasks", "6", "--json", timeout=120)
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["episodes"] == 6


def test_a_gate_that_is_not_passed_ends_the_path_with_the_measured_success(tmp_path):
    run = tmp_path / "run"
    words = (str(staged(tmp_path, 0.9)), "task.hidden.count=4", "--run", str(run))
    done = hexad("train", *words, timeout=240)
    assert done.returncode == 2
    assert "did not pass its gate" in done.stderr and "0.9 is asked" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (run / "grpo").exists()


@pytest.mark.long
def test_the_default_agent_learns(tmp_path):
    run = tmp_path / "run"
    done = hexad("train", str(RECIPES / "calculator.yaml"), "--run", str(run), timeout=1500)
    assert done.returncode == 0, done.stderr

    def hidden(stage: str) -> list[float]:
        rows = [json.loads(line) for line in open(run / stage / "evaluation.jsonl")]
        return [row["success"] for row in rows if row["split"] == "hidden"]

    assert 0.25 <= hidden("sft")[-1] <= 0.65
    assert hidden("grpo")[-1] >= 0.9
