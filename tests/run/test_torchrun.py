"""The command under torchrun: one voice, one message when any process fails, the same weights."""

import os
import subprocess
import sys

import pytest
from safetensors.torch import load_file
from short_run import HERE
from tiny import write_recipe

FAIL = """
import os, signal, sys
from hexad.learner.learner import Learner

real, calls = Learner.update, []

def update(self, *args, **kwargs):
    calls.append(1)
    if len(calls) == 2 and os.environ["RANK"] == "1":
        if sys.argv[1] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ZeroDivisionError("rank 1 is broken")
    return real(self, *args, **kwargs)

Learner.update = update
from hexad.cli.main import main
main(sys.argv[2:])
"""


def torchrun(folder, *words):
    paths = os.pathsep.join([str(folder), str(HERE), str(HERE.parent / "environments")])
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*launcher, "--nproc-per-node", "2", "-m", "--", *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
        cwd=folder,
        check=False,
    )


def ours(done):
    """What the command itself wrote to stderr, before torchrun's own report."""
    return done.stderr.split("\nW")[0].split("\nE")[0]


def test_two_ranks_draw_one_run(tmp_path, finished):
    done = torchrun(tmp_path, "hexad", "train", write_recipe(tmp_path), "--run", "run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("tiny batch 1") == 1 and done.stdout.count("hexad diagnose") == 1
    one = load_file(finished / "checkpoints/step_2/policy/model.safetensors")
    two = load_file(tmp_path / "run/checkpoints/step_2/policy/model.safetensors")
    assert all(float((one[name] - two[name]).abs().max()) < 1e-5 for name in one)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_failure_of_one_rank_ends_all_with_one_message(tmp_path, how):
    (tmp_path / "onerank.py").write_text(FAIL)
    done = torchrun(tmp_path, "onerank", how, "train", write_recipe(tmp_path), "--run", "run")
    assert done.returncode != 0
    if how == "raise":
        assert ours(done).count("failed:") == 1 and "rank 1 is broken" in ours(done)
    else:  # torchrun may end rank 0 before it finds out; its own report names the signal
        assert ours(done).count("failed:") == ours(done).count("another rank ended") <= 1
        assert "Signal 9" in done.stderr
    assert (tmp_path / "run" / "checkpoints" / "step_1" / "manifest.json").exists()


def test_what_rank_0_refuses_is_told_once_and_before_the_others_lose_it(tmp_path):
    bad = ("task.environment=bad_environment:BadFamily", "task.options={where: reset}")
    recipe = write_recipe(tmp_path)
    done = torchrun(tmp_path, "hexad", "train", recipe, *bad, "--run", "run")
    assert ours(done).count("failed:") == 1 and "4 of 4 episodes faulted" in ours(done)
    done = torchrun(tmp_path, "hexad", "train", recipe, "data.group=1", "--json")
    assert done.stdout.count('{"error"') == 1 and "data.groups" in done.stdout
