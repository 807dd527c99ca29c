"""The source over real worker processes: stale caches, a slow learner, a stall, a last death."""

import os
import signal
import time
from types import SimpleNamespace

import pytest
import torch
import worker_kit as kit
from source_bench import Bench

from hexad.contract.events import Stalled
from hexad.contract.faults import WorkersLost
from hexad.rollout.build import policy_of
from hexad.schedule import processes
from hexad.schedule.backend import Inbox
from hexad.schedule.processes import Processes
from hexad.schedule.weights import unpack

pytestmark = pytest.mark.timeout(900)


def recipe(max_lag=2, count=None, workers=None, **changes):
    usual = {
        "task__limits__turn_tokens": 40,
        "task__train__count": count,
        "data__groups": 2,
        "data__group_size": 2,
        "system__engine_rows": 3,
        "timing__mode": "asynchronous",
        "timing__max_lag": max_lag,
        "timing__workers": workers or {},
    }
    return kit.recipe(**usual | changes)


def weights(plan, version):
    """Every version has weights of its own, and its distribution shows it."""
    return unpack(kit.published(plan, version, scale=1.0 + version / 10).body)


def bench(plan, folder):
    backend = Processes(plan, folder)
    made = Bench(
        plan, backend, folder / "wal", 0, kit.world(plan), lambda: weights(plan, made.version)
    )
    return made, backend


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    """Four batches with weights taken in flight and an inbox of one frame that fills up."""
    plan, inboxes = recipe(timing__refresh="in_flight", count=8), []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(processes, "Inbox", lambda: inboxes.append(Inbox(room=1)) or inboxes[-1])
        made, backend = bench(plan, tmp_path_factory.mktemp("run"))
    try:
        harvests = [made.batch() for _ in range(2)]
        line = inboxes[0]._lines[0]
        deadline = time.monotonic() + kit.PATIENCE
        while not line.waits:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        harvests += [made.batch() for _ in range(2)]
        pid = backend.pid(0)
        yield SimpleNamespace(plan=plan, made=made, harvests=harvests, pid=pid)
    finally:
        made.source.close()


def test_a_full_queue_holds_the_worker_up_and_nobody_else(streamed):
    assert streamed.made.source._crew.restarts == 0
    done = [e.episode_id for h in streamed.harvests for e in h.sampled]
    assert len(done) == len(set(done)) == 16 and streamed.harvests[-1].exhausted
    assert kit.running(streamed.pid)
    governor = streamed.made.source._governor
    assert governor.in_flight == governor.queued == 0 and governor.dispatched == 16


@torch.no_grad()
def test_o15_every_token_has_the_probability_that_its_own_weights_give_it_afresh(streamed):
    """Prompts are cached before each publish and read after it; episodes are cut by it."""
    policy, mixed = policy_of(streamed.plan), 0
    for version in range(4):
        policy.model.load_state_dict(weights(streamed.plan, version))
        for harvest in streamed.harvests:
            for episode in harvest.episodes:
                (part,) = episode.segments
                mine = torch.tensor(part.action & (part.version == version))
                mixed += len({v for v, _ in episode.provenance.versions}) > 1
                if not mine.any():
                    continue
                ids = torch.tensor(part.ids, dtype=torch.long)
                fresh = policy.model(ids[None]).logits[0].double().log_softmax(-1)
                said = fresh[:-1].gather(1, ids[1:, None])[:, 0][mine[1:]]
                behaviour = torch.tensor(part.logprob).double()[mine]
                assert (said - behaviour).abs().max() < 1e-4, (episode.episode_id, version)
    assert mixed > 0 and {
        v for h in streamed.harvests for e in h.episodes for v, _ in e.provenance.versions
    } >= {0, 1}


class Deadly(list):
    """Events; when the source says that it waits for a worker that plays, the worker is killed."""

    def append(self, event):
        super().append(event)
        if isinstance(event, Stalled) and "3 live" in event.text:
            os.kill(self.backend.pid(0), signal.SIGKILL)


def test_a_stall_names_who_waits_for_whom_and_the_last_death_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("hexad.schedule.asynchronous.STALL_SECONDS", 1.0)
    slow = "worker_environments:SlowFamily"
    made, backend = bench(
        recipe(max_lag=0, workers={"restarts": 0}, task__environment=slow), tmp_path
    )
    made.publish()
    made.events = Deadly(made.events)
    made.events.backend = backend
    with pytest.raises(WorkersLost, match=r"worker 0 is gone .* 0 were replaced already\n.*fix:"):
        made.batch()
    stalls = [event.text for event in made.of(Stalled)]
    assert "worker 0 is starting" in stalls[0]
    assert stalls[-1].startswith(
        "batch 0 waits for 4 episodes of 2 groups, 0 groups are whole; "
        "worker 0: 4 episodes, 3 live, 1 not begun, heard"
    )
    began = time.monotonic()
    made.source.close()
    assert time.monotonic() - began < 5.0 and kit.gone(backend.pid(0), 0.5)
