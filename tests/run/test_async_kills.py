"""Real kills of workers and of the learner: what was committed stays, what was lost is counted."""

import signal
import time

import pytest
from async_run import ended, finish, left_behind, require_sound, rows, start, write_recipe

pytestmark = pytest.mark.timeout(900)


def test_a_worker_that_dies_in_the_log_again_and_again_costs_no_episode(tmp_path):
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    said = finish(start(recipe, run, HEXAD_CRASH_AT="log:mid-entry:25"))
    require_sound(run)
    ledger, metrics = rows(run, "ledger.jsonl"), rows(run, "metrics.jsonl")
    assert ledger[-1]["killed"]["episodes"] == 0
    assert sum(row["schedule/workers_lost"] for row in metrics) >= 1, said


def test_the_learner_dies_and_all_since_its_checkpoint_is_counted_as_lost(tmp_path):
    """The only checkpoint is that of the start: three batches of four are lost, and more."""
    killed = die_and_resume(tmp_path, "loop:after-update:3", **{"every: 1,": "every: 4,"})
    assert killed["episodes"] >= 12 and killed["sampled_tokens"] >= 12


def test_the_learner_dies_before_a_checkpoint_has_its_name(tmp_path):
    die_and_resume(tmp_path, "checkpoint:before-rename:3")


def die_and_resume(tmp_path, point, **changes):
    """What a run that was killed at ``point`` and resumed counts as lost."""
    recipe, run = write_recipe(tmp_path, **changes), tmp_path / "run"
    process = start(recipe, run, HEXAD_CRASH_AT=point)
    output = ended(process)
    assert process.returncode == -signal.SIGKILL, output
    deadline = time.monotonic() + 10
    while left_behind(run) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_behind(run) == []
    finish(start(recipe, run))
    require_sound(run)
    return rows(run, "ledger.jsonl")[-1]["killed"]
