"""Worker and learner both die, again and again: what was committed stays, what was lost is counted.

At lag limit 0 with one worker the run must be the synchronous one, bit for bit; beyond it, its
books balance.
"""

import os
import random
import signal
import time

import pytest
from async_run import MARK, ended, finish, left_behind, require_sound, start, write_recipe
from short_run import rows
from tiny import hexad

from hexad.contract.store import Store
from hexad.learner import checkpoint
from hexad.learner.learner import Learner
from hexad.schedule.wal import SUFFIX

POINTS = ("loop:after-store:2", "loop:after-publish:2", None)
"""Where the learner dies, by draw: in its second batch, or at a random moment."""
SYNCHRONOUS = ("timing.mode=synchronous", "timing.max_lag=null", "timing.workers=null")

pytestmark = pytest.mark.timeout(900)


def wait(what, process, seconds=600.0):
    """Until ``what()``, or the process has ended."""
    deadline = time.monotonic() + seconds
    while not what() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def playing(run, since):
    """Whether a worker has written more of an episode than its beginning."""
    for path in (run / "wal").glob(f"*{SUFFIX}"):
        try:
            seen = path.stat()
        except FileNotFoundError:
            continue
        if seen.st_mtime > since and seen.st_size > 3000:
            return True
    return False


def kill_both(recipe, run, draw):
    """Start or resume the run and kill a worker that plays, then the learner."""
    rng, point, begun = random.Random(draw), POINTS[draw % len(POINTS)], time.time()
    process = start(recipe, run, **({"HEXAD_CRASH_AT": point} if point else {}))
    wait(lambda: playing(run, begun), process)
    time.sleep(rng.uniform(0.0, 0.2))
    workers = [pid for pid in left_behind(run) if pid != process.pid]
    if workers:
        os.kill(rng.choice(workers), signal.SIGKILL)
    if point is None:
        time.sleep(rng.uniform(0.0, 3.0))
        process.kill()
    output = ended(process)
    assert process.returncode == -signal.SIGKILL, output
    deadline = time.monotonic() + 10
    while left_behind(run) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left_behind(run) == []
    return bool(workers)


def facts(run):
    """What must be equal, by name."""
    found = checkpoint.newest(run)
    state = found.path / "state"
    return {
        "weights": (found.policy / "model.safetensors").read_bytes(),
        "optimiser": (state / "learner.safetensors").read_bytes(),
        "episodes": [
            (e.episode_id, e.segments, e.ending, e.rewards, e.verdict, e.provenance)
            for e in Store(run / "episodes").read()
        ],
    }


def test_three_double_kills_and_ctrl_c_change_nothing(tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path, **{"max_lag: 1": "max_lag: 0"})
    run, whole = tmp_path / "run", tmp_path / "whole"
    code, text = hexad("train", recipe, *SYNCHRONOUS, "--run", whole)
    assert code == 0, text
    assert all([kill_both(recipe, run, draw) for draw in range(3)])
    monkeypatch.setenv(MARK, str(run))
    with monkeypatch.context() as patched:
        inner = Learner.update

        def pressed(self, *args):
            os.kill(os.getpid(), signal.SIGINT)
            return inner(self, *args)

        patched.setattr(Learner, "update", pressed)
        code, text = hexad("train", recipe, "--run", run, "--resume")
    assert code == 130 and "--resume" in text, text
    code, text = hexad("train", recipe, "--run", run, "--resume")
    assert code == 0, text
    monkeypatch.delenv(MARK)
    require_sound(run)
    for name, value in facts(whole).items():
        assert facts(run)[name] == value, name
    ours, theirs = rows(run / "metrics.jsonl"), rows(whole / "metrics.jsonl")
    assert len(ours) == 6
    for row, expected in zip(ours, theirs, strict=True):  # sums are in order of arrival
        assert {key: row[key] for key in expected} == pytest.approx(expected, rel=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("chain", range(7))
def test_twenty_double_kills_keep_the_books(tmp_path, chain):
    """Three in each of seven runs: every lag, one worker or two, with and without forks."""
    changes = {"max_lag: 1": f"max_lag: {chain % 3}", "{count: 1": f"{{count: {1 + chain % 2}"}
    if chain % 4 < 2:
        family = "worker_environments:UnforkableFamily"
        changes["environment: calculator"] = f'environment: "{family}"'
    recipe, run = write_recipe(tmp_path, **changes), tmp_path / "run"
    killed = [kill_both(recipe, run, draw) for draw in range(3 * chain, 3 * chain + 3)]
    finish(start(recipe, run))
    require_sound(run)
    assert any(killed)
