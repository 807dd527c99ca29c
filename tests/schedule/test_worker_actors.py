"""Workers as real Ray actors on a local cluster of one machine."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import worker_kit as kit
from worker_kit import Talk, orders, plans, published, recipe

from hexad.contract.arrow import from_ipc
from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.recipe.load import load
from hexad.rollout.collect import collect
from hexad.rollout.log import EpisodeLog
from hexad.run import compose
from hexad.schedule.messages import Failed, Finished, Loaded, Ready
from hexad.schedule.rays import Rays

SLOW = {
    "task__environment": "worker_environments:SometimesSlowFamily",
    "timing__workers": {"count": 3, "backend": "ray"},
}


RUN = """
name: actors
method: areal
task: {environment: calculator, limits: {turns: 2, turn_tokens: 48, context_tokens: 256}}
policy: {model: "builtin:tiny"}
data: {groups: 2, group_size: 2}
timing: {max_lag: 1, workers: {backend: ray, count: 1, restarts: 1}}
update: {minibatches: 1, optimizer: {lr: 1e-4}}
budget: {episodes: 8}
run: {evaluation: {every: null, final: none}, checkpoints: {every: null}}
system: {engine_rows: 2, threads: 1}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A backend that has started the cluster of this module."""
    backend = Rays(recipe(**SLOW), tmp_path_factory.mktemp("run"))
    yield backend
    backend.close()
    assert not sys.modules["ray"].is_initialized()
    assert kit.threads("from-", "to-") == []


def of_length(made, operations):
    """Number of the first train task with so many operations."""
    return next(i for i in range(50) if plans(made, i)[0].task.data["operations"] == operations)


def test_actors_play_take_weights_die_and_are_started_again(cluster):
    made, talk = recipe(**SLOW), Talk(cluster)
    pids = [talk.begin(slot, made).pid for slot in (0, 1)]
    assert len({*pids, os.getpid()}) == 3
    short, long = of_length(made, 1), of_length(made, 3)
    new = published(made, 1, scale=1.5)
    # Field case O15: the prompt is cached by the first weights, and read after the second came.
    seen, again = orders(made, short, members=2)
    for slot in (0, 1):
        cluster.send(slot, seen)
        talk.wait(slot, Finished)
        cluster.send(slot, new)
        cluster.send(slot, again)
    expected = collect(plans(made, short, members=2), kit.world(made, 1, scale=1.5))[1]
    for slot in (0, 1):
        talk.wait(slot, Loaded)
        assert kit.same(from_ipc(talk.wait(slot, Finished)[1])[0], expected)
        cluster.send(slot, orders(made, long)[0])
    while {slot for slot, beat in talk.beats if beat.live} != {0, 1}:
        talk.collect()
    os.kill(pids[0], signal.SIGKILL)
    talk.wait(0, None)
    assert not cluster.alive(0) and cluster.alive(1) and "died" in cluster.said(0)
    cluster.kill(1)
    talk.wait(1, None)
    assert kit.gone(pids[1])
    cluster.start(0)
    pid = talk.wait(0, Ready)[0].pid
    kit.stop_process(pid)
    time.sleep(2.0)
    talk.collect()
    assert cluster.alive(0) and cluster.silent(0) > 1.5
    cluster.kill(0)
    talk.wait(0, None, seconds=1.0)
    assert kit.gone(pid) and talk.heard == []


def test_a_users_error_in_an_actor_is_told_and_ends_it(cluster, tmp_path):
    other = Rays(recipe(task__environment="no_such_module:Family"), tmp_path)
    talk = Talk(other)
    other.start(0)
    failed, _ = talk.wait(0, Failed)
    talk.wait(0, None)
    assert (failed.error, failed.where) == ("user", "task.environment")
    other.close()
    assert sys.modules["ray"].is_initialized()  # it was not the one that started it


def test_the_cluster_that_ray_address_names_is_used_and_left_running(cluster, tmp_path):
    ray = sys.modules["ray"]
    script = (
        "import sys; from pathlib import Path; from hexad.recipe.axes import Recipe\n"
        "from hexad.schedule.rays import Rays; import ray\n"
        "backend = Rays(Recipe(), Path(sys.argv[1])); print(ray.nodes()[0]['NodeID'])\n"
        "backend.close()\n"
    )
    address = ray.get_runtime_context().gcs_address
    paths = os.pathsep.join(filter(None, sys.path))
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "RAY_ADDRESS": address, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    (node,) = ray.nodes()
    assert said.stdout.split() == [node["NodeID"]] and node["Alive"], said.stderr


def test_a_run_over_actors_loses_nothing_by_the_death_of_one_in_mid_episode(cluster, tmp_path):
    (tmp_path / "recipe.yaml").write_text(RUN)
    made, killed = load(tmp_path / "recipe.yaml", []), []

    def kill_in_mid_episode():
        """Asked while the source waits for episodes."""
        if killed or not (tmp_path / "wal").is_dir():
            return False
        (pid,) = {worker._pid for worker in loop.parts.source._supply.backend._workers.values()}
        flying = {f"{name}.arrows" for name in loop.parts.source._flights}
        logs = [p.read_bytes() for p in (tmp_path / "wal").iterdir() if p.name in flying]
        if any(EpisodeLog.read(log).sampled_tokens for log in logs):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        return False

    with compose(made, tmp_path, interrupted=kill_in_mid_episode) as loop:
        loop.run()
    assert len(killed) == 1 and kit.gone(killed[0])
    metrics, ledger = (
        [json.loads(line) for line in (tmp_path / name).open()]
        for name in ("metrics.jsonl", "ledger.jsonl")
    )
    assert sum(row["schedule/workers_lost"] for row in metrics) == 1 and len(metrics) == 2
    episodes = [e.episode_id for e in Store(tmp_path / "episodes").read()]
    assert len(episodes) == len(set(episodes)) == 8
    books = ledger[-1]["books"]
    assert books["generated"] == books["trained"] + books["lost"] + books["pending"] + sum(
        books["dropped"].values()
    )
    assert sys.modules["ray"].is_initialized()


def test_without_ray_the_user_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"hexad\[ray\]"):
        Rays(recipe(), tmp_path)
