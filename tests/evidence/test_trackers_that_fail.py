"""A tracker that raises, hangs or dies: training goes on, and it is said and counted.

The library is a stand-in for trackio with the signatures of trackio 0.43.0.
"""

import json
import os
import time
from pathlib import Path

import pytest
from made_run import stage
from plain_episode import build

from hexad.contract.events import Published, Timed
from hexad.evidence.folder import claim
from hexad.evidence.ledger import Ledger
from hexad.evidence.trackers import watch
from hexad.evidence.trackers.watch import Trackers
from hexad.recipe.load import load

RECIPE = load(Path(__file__).parents[2] / "recipes" / "calculator-grpo.yaml")
LIBRARY = """
import json, os, time

def note(*what):
    with open(os.environ["TRACKIO_NOTES"], "a") as file:
        file.write(json.dumps(what) + "\\n")

class Run:
    def log(self, metrics: dict, step: int | None = None):
        if os.environ["TRACKIO_FAULT"] == "die":
            os._exit(3)
        note("log", metrics, step)

    def finish(self):
        note("finish")

def init(project, name=None, group=None, space_id=None, server_url=None, dataset_id=None,
         bucket_id=None, config=None, resume="never", settings=None, private=None, embed=True,
         auto_log_gpu=None, gpu_log_interval=10.0, auto_log_cpu=None, cpu_log_interval=10.0,
         webhook_url=None, webhook_min_level=None):
    fault = os.environ["TRACKIO_FAULT"]
    if fault == "raise":
        raise ConnectionError("nobody answers")
    if fault == "hang":
        time.sleep(600)
    note("init", project, name, group, config["method"], resume, auto_log_gpu, auto_log_cpu, embed)
    return Run()
"""


@pytest.fixture
def follow(tmp_path, monkeypatch):
    """Track a made-up run by the stand-in, which has a fault; what was said, and what it did."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "trackio.py").write_text(LIBRARY)
    paths = os.pathsep.join([str(tmp_path / "lib"), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", paths)
    monkeypatch.setenv("TRACKIO_NOTES", str(tmp_path / "notes"))
    folder = tmp_path / "path" / "stage"

    def track(fault, look=lambda trackers, said: None, *, resume=False):
        said = []
        monkeypatch.setenv("TRACKIO_FAULT", fault)
        trackers = Trackers(["trackio"], tmp_path / "path", said.append)
        claim(folder, RECIPE, resume=resume)
        ledger = Ledger(folder)
        trackers.stage("calculator", RECIPE, ledger)
        trackers(Timed(0, "rollout", 0.1))
        if not resume:
            stage(folder, build, batches=2, start=0.4, end=0.6)
        look(trackers, said)
        (done,) = trackers.finish()
        return said, done

    return track


def notes(tmp_path):
    path = tmp_path / "notes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def until_said(trackers, said):
    """Tell of batches until something is said."""
    deadline = time.monotonic() + 30
    while not said:
        trackers(Published(1, "weights"))
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_trackio_gets_one_run_under_a_name_of_its_own(follow, tmp_path):
    _, done = follow("")
    (_, project, name, group, method, resume, *quiet), *logged = notes(tmp_path)
    assert (project, group, method, resume) == ("hexad", "path", "grpo", "never")
    assert name.startswith("path/stage-") and name == done["known"]["id"]
    assert quiet == [False, False, False]
    steps = [what[2] for what in logged if what[0] == "log"]
    assert steps == [0, 0, 0, 1, 2, 2] and logged[-1] == ["finish"]
    assert logged[0][1]["hidden/success"] == 0.4 and "policy/loss" not in logged[0][1]
    assert logged[-2][1]["summary/funnel/updates"] == 4
    _, done = follow("", resume=True)
    (*_, again, _, _, how, _, _, _), last = notes(tmp_path)[len(logged) + 1 :]
    assert (again, how, last, done["failures"]) == (name, "must", ["finish"], 0)


def test_a_library_that_raises_is_said_once_and_its_rows_are_told_on_a_resume(follow, tmp_path):
    said, done = follow("raise", until_said)
    assert [line for line in said if "does not follow" in line] == [
        "trackio does not follow, training goes on: ConnectionError: nobody answers"
    ]
    assert done["failures"] >= 1 and done["missed"] == done["rows"] + 5 == 5
    assert "5 not; " in said[-1] and notes(tmp_path) == []
    _, done = follow("", resume=True)
    assert (done["rows"], done["missed"]) == (5, 0) and len(notes(tmp_path)) == 8


def test_a_library_that_hangs_is_killed_in_the_end(follow, tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "PATIENCE", 1.5)
    started = time.monotonic()
    said, done = follow("hang")
    assert time.monotonic() - started < 20 and "ended with code -9" in said[-1]
    assert done["rows"] == 0


def test_a_library_that_ends_its_process_ends_nothing_else(follow):
    said, done = follow("die", until_said)
    assert "its process ended with code 3" in said[0] and "trackio.log" in said[0]
    assert len(said) == 2 and done["rows"] == 0


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    said = []
    claim(tmp_path / "run", RECIPE, resume=False)
    (tmp_path / "run" / "trackers").write_text("in the way")
    trackers = Trackers(["tensorboard"], tmp_path / "run", said.append)
    trackers.stage("calculator", RECIPE, Ledger(tmp_path / "run"))
    trackers(Timed(0, "rollout", 0.1))
    assert "tensorboard does not follow" in said[0] and trackers.finish() == []
