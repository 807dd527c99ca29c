"""Short real runs of the command line, and what must be equal between two of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from hexad.contract.store import Store
from hexad.learner import checkpoint

HERE = Path(__file__).parent
RECIPE = """
name: short
method: grpo
task:
  environment: calculator
  limits: {turns: 3, turn_tokens: 8, context_tokens: 160}
policy: {model: "builtin:tiny"}
feedback: {mapping: "dense:DenseMapping"}
data: {groups: 3, group_size: 4}
update:
  minibatches: 2
  optimizer: {lr: 1e-4}
budget: {episodes: 72}
run:
  seed: 3
  evaluation: {every: 3, tasks: 6, final: none}
  checkpoints: {every: 2, keep: 2}
system: {engine_rows: 12, threads: 1}
"""


def write_recipe(folder: Path) -> Path:
    path = folder / "short.yaml"
    path.write_text(RECIPE)
    return path


def start(recipe: Path, run: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    """The real command in its own process."""
    code = "from hexad.cli.main import main; main()"
    outer = os.environ.get("PYTHONPATH", "")
    paths = os.pathsep.join([str(HERE), str(HERE.parent), outer])
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **environment}
    command = [sys.executable, "-c", code, "train", str(recipe), "--run", str(run), *words]
    return subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    """The output of a process that must succeed."""
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    return output


def rows(path: Path) -> list[dict[str, object]]:
    """Rows of a log without what the clock decides."""

    def timeless(row: dict[str, object]) -> dict[str, object]:
        kept = {k: v for k, v in row.items() if k not in ("time", "killed")}
        return {k: v for k, v in kept.items() if not k.startswith("time/")}

    return [timeless(json.loads(line)) for line in path.read_text().splitlines()]


def facts(run: Path) -> dict[str, object]:
    """Everything of a run that must repeat bit for bit."""
    found = checkpoint.newest(run)
    assert found is not None
    state = found.path / "state"
    tensors = {p.name: p.read_bytes() for p in sorted(state.glob("*.safetensors"))}
    episodes = [
        (e.episode_id, e.segments, e.ending, e.rewards, e.verdict, e.provenance, e.costs)
        for e in Store(run / "episodes").read()
    ]
    return {
        "step": found.step,
        "tensors": tensors,
        "learner": (state / "learner.json").read_bytes(),
        "source": (state / "source.json").read_bytes(),
        "policy": (found.policy / "model.safetensors").read_bytes(),
        "metrics": rows(run / "metrics.jsonl"),
        "evaluations": rows(run / "evaluation.jsonl"),
        "ledger": rows(run / "ledger.jsonl"),
        "episodes": episodes,
    }
