"""Nothing waits for ever: a frozen worker, a learner that raises."""

import os
import signal
import time

import pytest
from async_run import MARK, finish, left_behind, require_sound, rows, start, write_recipe

from hexad.learner.learner import Learner
from hexad.recipe.load import load
from hexad.run import compose

pytestmark = pytest.mark.timeout(900)


def until(what, process, seconds=600.0):
    """Wait until ``what()`` holds while ``process`` runs."""
    deadline = time.monotonic() + seconds
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_frozen_worker_is_replaced_after_patience(tmp_path):
    recipe = write_recipe(tmp_path, **{"restarts: 20": "restarts: 20, patience: 15.0"})
    run = tmp_path / "run"
    process = start(recipe, run)
    until(lambda: len(rows(run, "metrics.jsonl")) >= 1, process)
    (worker,) = (pid for pid in left_behind(run) if pid != process.pid)
    os.kill(worker, signal.SIGSTOP)
    finish(process)
    require_sound(run)
    assert sum(row["schedule/workers_lost"] for row in rows(run, "metrics.jsonl")) >= 1


def test_a_learner_that_raises_leaves_no_worker(tmp_path, monkeypatch):
    def broken(self, *args):
        raise RuntimeError("the learner broke")

    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setenv(MARK, str(run))
    monkeypatch.setattr(Learner, "update", broken)
    with (
        pytest.raises(RuntimeError, match="the learner broke"),
        compose(load(write_recipe(tmp_path), []), run) as loop,
    ):
        try:
            loop.run()
        finally:
            assert left_behind(run)
            began = time.monotonic()
    assert time.monotonic() - began < 6.0 and left_behind(run) == []
