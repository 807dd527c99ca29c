"""A run killed at any moment and resumed is, bit for bit, the run that was never interrupted."""

import random
import signal
import time

import pytest
from short_run import facts, finish, start, write_recipe

NAMED = [
    "checkpoint:before-rename:2",
    "store:mid-part:3",
    "store:before-rename:4",
    "loop:after-update:4",
    "loop:after-store:5",
    "loop:after-publish:3",
    "rollout:episode:31",
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run, and the seconds it took."""
    folder = tmp_path_factory.mktemp("whole")
    started = time.monotonic()
    finish(start(write_recipe(folder), folder / "run"))
    return facts(folder / "run"), time.monotonic() - started


def assert_equal(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert left[name] == right[name], f"{name} differs"


def test_the_run_is_worth_resuming(whole):
    reference, _ = whole
    assert reference["step"] == 6
    assert len(reference["episodes"]) == 72
    losses = [row["policy/grad_norm"] for row in reference["metrics"]]
    assert len(losses) == 6 and all(norm > 0 for norm in losses)


def test_two_runs_with_one_seed_are_equal(whole, tmp_path):
    finish(start(write_recipe(tmp_path), tmp_path / "run"))
    assert_equal(facts(tmp_path / "run"), whole[0])


@pytest.mark.parametrize("point", NAMED)
def test_a_kill_at_a_named_point_changes_nothing(whole, tmp_path, point):
    recipe = write_recipe(tmp_path)
    killed = start(recipe, tmp_path / "run", HEXAD_CRASH_AT=point)
    killed.communicate(timeout=240)
    assert killed.returncode == -signal.SIGKILL
    finish(start(recipe, tmp_path / "run", "--resume"))
    assert_equal(facts(tmp_path / "run"), whole[0])


@pytest.mark.parametrize("draw", range(3))
def test_a_kill_at_a_random_moment_changes_nothing(whole, tmp_path, draw):
    reference, seconds = whole
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    killed = start(recipe, run)
    deadline = time.monotonic() + 240
    while not (run / "metrics.jsonl").exists() and killed.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(random.Random(draw).uniform(0.0, 0.25) * seconds)
    killed.kill()
    killed.communicate()
    finish(start(recipe, run, "--resume"))
    assert_equal(facts(run), reference)


def test_who_looks_on_changes_nothing_and_sees_every_step_once(whole, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    words = ("--track", "tensorboard")
    killed = start(recipe, run, *words, HEXAD_CRASH_AT="loop:after-publish:6")
    killed.communicate(timeout=240)
    assert killed.returncode == -signal.SIGKILL
    output = finish(start(recipe, run, "--resume", *words))
    assert_equal(facts(run), whole[0])
    assert "tensorboard: run tensorboard, " in output and "does not follow" not in output
    shown = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    told = {event.step: event.value for event in shown.Scalars("policy/grad_norm")}
    assert len(shown.Scalars("policy/grad_norm")) == len(told) == 6
    for row in whole[0]["metrics"]:
        assert told[row["step"]] == pytest.approx(row["policy/grad_norm"], rel=1e-6)
