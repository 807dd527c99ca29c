"""The command in this process on a recipe of two batches of four short episodes."""

import contextlib
import io
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from hexad.cli import main as entry
from hexad.policy.load import load_policy

RECIPE = """
name: tiny
method: grpo
task:
  environment: calculator
  limits: {turns: 2, turn_tokens: 6, context_tokens: 160}
policy: {model: "builtin:tiny"}
feedback: {mapping: "dense:DenseMapping"}
data: {groups: 2, group_size: 2, retries: 0}
update:
  minibatches: 1
  optimizer: {lr: 1e-4}
budget: {episodes: 8}
run:
  seed: 3
  evaluation: {every: null, final: none}
  checkpoints: {every: 1, keep: 2}
system: {engine_rows: 4, threads: 1}
"""


def write_recipe(folder: Path) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(RECIPE)
    return path


def hexad(*words) -> tuple[int, str]:
    """Exit code and everything that was printed."""
    shown = io.StringIO()
    with (
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(shown),
        pytest.raises(SystemExit) as caught,
    ):
        entry.main([str(word) for word in words])
    return caught.value.code, shown.getvalue()


def train(run: Path, *words) -> tuple[int, str]:
    """``hexad train`` with the recipe beside the run folder."""
    return hexad("train", write_recipe(run.parent), *words, "--run", run)


def weights(run: Path, step: int = 2) -> bytes:
    """The bytes of a checkpoint's policy."""
    return (run / "checkpoints" / f"step_{step}" / "policy" / "model.safetensors").read_bytes()


def save_model(folder: Path, change) -> Path:
    """The built-in model in ``folder``, its weights changed by ``change``."""
    load_policy("builtin:tiny", seed=0).save(folder)
    path = folder / "model.safetensors"
    tensors = {name: value.clone() for name, value in load_file(path).items()}
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


sys.path.append(str(Path(__file__).parent.parent / "environments"))
