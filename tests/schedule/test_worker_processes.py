"""Workers in real processes: what crosses, who dies, and that nobody outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import worker_kit as kit
from worker_kit import Talk, orders, plans, published, recipe

from hexad.contract.arrow import from_ipc
from hexad.rollout.collect import collect
from hexad.schedule.frame import Frame
from hexad.schedule.messages import Failed, Finished, Loaded, Ready
from hexad.schedule.processes import Processes


@pytest.fixture
def backend(tmp_path):
    """Makes process backends in a run folder, and closes them."""
    made = []

    def make(**changes):
        made.append(Processes(recipe(**changes), tmp_path / "run"))
        return made[-1]

    yield make
    for each in made:
        each.close(1.0)


def test_processes_play_take_weights_and_stop(tmp_path):
    made = recipe(task__environment="worker_environments:TalkingFamily")
    workers = Processes(made, tmp_path / "run")
    talk = Talk(workers)
    readies = [talk.begin(slot, made) for slot in (0, 1)]
    assert [ready.pid for ready in readies] == [workers.pid(0), workers.pid(1)]
    workers.send(1, orders(made, 7)[0])
    for version in (0, 1):
        if version:
            workers.send(0, published(made, 1, scale=1.5))
        workers.send(0, orders(made, version)[0])
        _, body = talk.wait(0, Finished)
        world = kit.world(made, version, scale=1.5 if version else 1.0)
        assert kit.same(from_ipc(body)[0], collect(plans(made, version), world)[0])
    talk.wait(0, Loaded)
    assert talk.wait(1, Finished)[0].episode_id == "v0-7-0"
    said = workers.said(0)
    assert "a word on the standard output" in said and "nothing to read" in said
    began = time.monotonic()
    workers.close()
    assert time.monotonic() - began < 5 and not workers.alive(0)
    assert kit.threads("from-", "to-", "end-of-") == []
    assert not any(kit.running(ready.pid) for ready in readies)


def test_a_killed_worker_is_told_once_with_its_children_gone_and_its_slot_starts_again(
    backend, tmp_path, monkeypatch
):
    monkeypatch.setenv("HEXAD_TEST_PIDS", str(tmp_path))
    made = recipe(task__environment="worker_environments:SpawningFamily")
    workers = backend(task__environment="worker_environments:SpawningFamily")
    talk = Talk(workers)
    talk.begin(0, made)
    workers.send(0, orders(made, 1)[0])
    child = kit.until(tmp_path / "child")
    assert kit.running(child)
    workers.kill(0)
    talk.wait(0, None)
    assert not workers.alive(0) and kit.gone(child)
    workers.send(0, orders(made, 2)[0])  # to nobody, which is no error
    workers.start(0)
    pid = talk.wait(0, Ready)[0].pid
    assert workers.alive(0) and talk.heard == [] and workers.silent(0) < 1.5
    _freeze(workers, talk, pid)


def _freeze(workers, talk, pid):
    """Once frozen, the worker falls silent, holds nobody up, and is ended in time."""
    kit.stop_process(pid)
    for _ in range(40):  # far more than a pipe holds
        workers.send(0, Frame({"kind": "play"}, b"x" * 10**6))
    time.sleep(2.0)
    talk.collect()
    assert workers.alive(0) and workers.silent(0) > 1.5
    began = time.monotonic()
    workers.close(2.0)
    assert time.monotonic() - began < 3.0 and kit.gone(pid, 0.5)


def test_a_user_error_in_a_worker_is_the_users_and_ends_it(backend):
    workers = backend(task__environment="no_such_module:Family")
    talk = Talk(workers)
    workers.start(0)
    failed, _ = talk.wait(0, Failed)
    talk.wait(0, None)
    assert (failed.error, failed.where) == ("user", "task.environment")
    assert "no_such_module" in failed.message


def test_a_worker_that_cannot_even_begin_is_told_with_what_it_said(backend, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/ls")
    workers = backend()
    workers.start(0)
    Talk(workers).wait(0, None)
    assert "hexad.schedule.worker_process" in workers.said(0) and not workers.alive(0)


def test_workers_stop_in_time_while_tools_hang(backend):
    made = recipe(task__environment="worker_environments:HangingFamily", system__engine_rows=8)
    workers = backend(task__environment="worker_environments:HangingFamily", system__engine_rows=8)
    talk = Talk(workers)
    pid = talk.begin(0, made).pid
    for order in orders(made, 1, members=8):
        workers.send(0, order)
    while not talk.beats or talk.beats[-1][1].live < 8:
        talk.collect()
    assert talk.beats[-1][1].loop_seconds < 1.0
    began = time.monotonic()
    workers.close(5.0)
    assert time.monotonic() - began < 5.0 and kit.gone(pid, 0.5)


def test_a_worker_dies_with_its_parent(tmp_path):
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); import worker_kit as kit\n"
        "from pathlib import Path\n"
        "from hexad.schedule.processes import Processes\n"
        "made = kit.recipe(task__environment='worker_environments:HangingFamily')\n"
        "workers = Processes(made, Path(sys.argv[2]))\n"
        "ready = kit.Talk(workers).begin(0, made)\n"
        "workers.send(0, kit.orders(made, 1)[0])\n"
        "print(ready.pid, flush=True); time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    worker = int(parent.stdout.readline())
    assert kit.running(worker)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert kit.gone(worker, 5.0)


def test_junk_from_a_worker_ends_it_and_says_so(backend, monkeypatch, tmp_path):
    program = tmp_path / "junk.sh"
    program.write_text("#!/bin/sh\necho this is no frame\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    workers = backend()
    workers.start(0)
    Talk(workers).wait(0, None)
    assert "junk where a frame should begin" in workers.said(0)


def test_a_worker_whose_pipe_is_held_open_by_others_is_told_gone(backend, monkeypatch, tmp_path):
    program = tmp_path / "leave.sh"
    inner = f"echo $$ > {tmp_path}/child; exec sleep 600"
    wait = f"while [ ! -s {tmp_path}/child ]; do sleep 0.01; done"
    program.write_text(f"#!/bin/sh\nsetsid sh -c '{inner}' &\n{wait}\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    workers = backend()
    workers.start(0)
    began = time.monotonic()
    Talk(workers).wait(0, None, seconds=10.0)
    os.kill(kit.until(tmp_path / "child"), signal.SIGKILL)
    assert time.monotonic() - began > 1.0  # it was given time to say more
