"""Resume rewinds everything to the checkpoint, counts what is lost, and a SIGKILL loses no more."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from test_checkpoint_write import Run

from builders import episode
from hexad.contract.crash import VARIABLE
from hexad.contract.faults import UserError
from hexad.learner import checkpoint

TESTS = Path(__file__).parent.parent
SCRIPT = """
import sys
sys.path[:0] = [{tests!r}, {here!r}]
from pathlib import Path
from hexad.learner import checkpoint
from test_checkpoint_write import Run
run = Run(Path({folder!r}))
if found := checkpoint.newest(run.folder):
    checkpoint.resume(found, run.registry, run.journal)
print("ready", flush=True)
while run.part.steps < {last}:
    run.step()
    if run.part.steps % 3 == 0:
        run.write()
"""


def start(folder, last, crash_at=None):
    text = SCRIPT.format(
        tests=str(TESTS), here=str(Path(__file__).parent), folder=str(folder), last=last
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if crash_at:
        environment[VARIABLE] = crash_at
    return subprocess.Popen(
        [sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def straight(tmp_path):
    """A run of nine steps that was never interrupted."""
    made = Run(tmp_path / "straight")
    made.folder.mkdir()
    for step in (3, 6, 9):
        made.to(step)
    return made


def resumed(folder):
    run = Run(folder)
    return run, checkpoint.resume(checkpoint.newest(folder), run.registry, run.journal)


def finished(folder):
    """The run in ``folder``, resumed in this process and taken to its ninth step."""
    run, _ = resumed(folder)
    while run.part.steps < 9:
        run.step()
        if run.part.steps % 3 == 0:
            run.write()
    return run


def same_run(left, right):
    assert left.part.steps == right.part.steps
    assert torch.equal(left.part.weight, right.part.weight)
    assert left.metrics.read_bytes() == right.metrics.read_bytes()
    assert left.store.read() == right.store.read()


def test_resume_rewinds_state_logs_and_store_and_counts_the_loss(tmp_path):
    run = Run(tmp_path)
    run.to(3)
    before = run.metrics.read_bytes()
    run.step()
    run.step()
    with open(run.metrics, "a") as file:
        file.write('{"torn')
    (tmp_path / "ledger.jsonl").write_text("{}\n")
    other, lost = resumed(tmp_path)
    assert (lost.episodes, lost.sampled_tokens) == (4, 20)
    assert lost.log_rows == {"metrics.jsonl": 3, "ledger.jsonl": 1}
    assert (other.part.steps, other.part.weight.tolist()) == (3, [3.0] * 4)
    assert run.metrics.read_bytes() == before
    assert (tmp_path / "ledger.jsonl").read_bytes() == b""
    assert run.store.last_step == 2 and run.store.count() == 6


def test_resume_at_the_checkpoint_loses_nothing(tmp_path):
    Run(tmp_path).to(3)
    _, lost = resumed(tmp_path)
    assert lost == checkpoint.Rewound(log_rows={"metrics.jsonl": 0, "ledger.jsonl": 0})


def test_resume_before_the_first_step_empties_the_store(tmp_path):
    run = Run(tmp_path)
    run.write()
    run.step()
    other, lost = resumed(tmp_path)
    assert lost.episodes == 2 and run.store.read() == [] and other.part.steps == 0
    other.step()


def test_log_shorter_than_recorded_is_named_and_nothing_changes(tmp_path):
    run = Run(tmp_path)
    run.to(3)
    run.step()
    data = run.metrics.read_bytes()
    run.metrics.write_bytes(data[:10])
    other = Run(tmp_path)
    with pytest.raises(UserError, match="the log has 10 bytes") as error:
        checkpoint.resume(checkpoint.newest(tmp_path), other.registry, other.journal)
    assert error.value.where == str(run.metrics)
    assert other.part.steps == 0 and run.store.last_step == 3
    run.metrics.unlink()
    with pytest.raises(UserError, match="the log has 0 bytes"):
        resumed(tmp_path)


def test_missing_episodes_are_named_and_nothing_changes(tmp_path):
    run = Run(tmp_path)
    for step in (3, 4):
        run.to(step)
    run.step()
    size = run.metrics.stat().st_size
    (tmp_path / "episodes" / "part-000003.parquet").unlink(missing_ok=True)
    for part in run.store.parts()[:1]:
        part.path.unlink()
    with pytest.raises(UserError, match=r"the store holds \d of the 8 episodes up to step 3"):
        resumed(tmp_path)
    assert run.metrics.stat().st_size == size


def test_torn_part_after_the_checkpoint_is_set_aside_and_reported(tmp_path):
    run = Run(tmp_path)
    run.to(3)
    run.step()
    path = tmp_path / "episodes" / "part-000003.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    other, lost = resumed(tmp_path)
    assert [p.name for p in lost.torn] == ["part-000003.parquet.torn"]
    other.step()
    assert run.store.count() == 8


def test_other_ranks_restore_without_touching_the_disk(tmp_path):
    run = Run(tmp_path)
    run.to(3)
    run.step()
    other = Run(tmp_path)
    checkpoint.resume(checkpoint.newest(tmp_path), other.registry, None)
    assert other.part.steps == 3 and run.store.last_step == 3


def test_state_that_does_not_fit_changes_nothing_on_disk(tmp_path):
    run = Run(tmp_path)
    run.to(3)
    run.step()
    other = Run(tmp_path)
    other.registry.register("critic", other.part)
    with pytest.raises(UserError, match="missing state: critic"):
        checkpoint.resume(checkpoint.newest(tmp_path), other.registry, other.journal)
    assert run.store.last_step == 3 and run.metrics.read_text().count("\n") == 4


@pytest.mark.parametrize(
    ("crash_at", "survives"),
    [
        ("checkpoint:before-rename:2", 3),
        ("checkpoint:before-rename", None),
        ("store:mid-part:8", 3),
        ("store:before-rename:8", 3),
        ("store:mid-part:9", 6),  # the merge after checkpoint 6
    ],
)
def test_sigkill_at_a_named_point_leaves_the_previous_state_whole(
    tmp_path, straight, crash_at, survives
):
    folder = tmp_path / "killed"
    folder.mkdir()
    died = start(folder, 9, crash_at)
    died.communicate()
    assert died.returncode == -signal.SIGKILL
    found = checkpoint.newest(folder)
    assert (found and found.step) == survives
    if crash_at.startswith("checkpoint"):
        skipped = checkpoint.scan(folder)[1]
        assert [item.path.name for item in skipped] == [f".tmp-step_{(survives or 0) + 3}"]
    if survives is None:
        # Nothing was ever committed by a checkpoint: the run begins anew in a new folder.
        return
    same_run(finished(folder), straight)
    assert not [n for n in os.listdir(folder / "checkpoints") if n.startswith(".")]


def test_sigkill_at_random_moments_leaves_the_same_run(tmp_path, straight):
    folder, moments = tmp_path / "killed", random.Random(4)
    folder.mkdir()
    Run(folder).write()
    kills = 0
    for _ in range(2):
        process = start(folder, 9)
        process.stdout.readline()
        time.sleep(moments.uniform(0.0, 0.15))
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills, "every process finished before it was killed: nothing was tested"
    same_run(finished(folder), straight)


def test_lost_work_counts_tokens_of_failed_attempts(tmp_path):
    from dataclasses import replace

    run = Run(tmp_path)
    run.write()
    made = episode()
    run.store.append(0, [replace(made, costs=replace(made.costs, lost_tokens=7))])
    _, lost = resumed(tmp_path)
    assert lost.sampled_tokens == 12
