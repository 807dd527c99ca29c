"""Many scripted episodes through queue and governor: none is lost, and memory stays flat."""

import os
from collections import Counter

import pytest
from scripted_workers import ScriptedWorkers
from source_bench import Bench, any_fate, recipe

from hexad.contract.events import EpisodeDone, EpisodeLost
from hexad.contract.lag import lag
from hexad.schedule.pulse import resident


@pytest.fixture(autouse=True)
def uncopied(monkeypatch):
    """Episodes cross as a ticket for the object: their encoding is tested elsewhere, and slow."""
    shelf = {}

    def leave(episodes):
        (episode,) = episodes
        ticket = f"{episode.episode_id} {len(shelf)}".encode()
        shelf[ticket] = episode
        return ticket

    monkeypatch.setattr("scripted_workers.to_ipc", leave)
    monkeypatch.setattr("hexad.schedule.crew.from_ipc", lambda ticket: [shelf.pop(ticket)])


EPISODES = int(os.environ.get("HEXAD_LONG_EPISODES", "100000"))


class Tally:
    """Counts events instead of keeping them."""

    def __init__(self):
        self.done, self.lost = 0, 0

    def append(self, event):
        self.done += isinstance(event, EpisodeDone)
        self.lost += isinstance(event, EpisodeLost)


def streamed(folder, episodes, *, max_lag, seed=0, batch=20):
    """Train until ``episodes`` are decided; yields the bench and harvest of every batch."""
    plan = recipe(
        groups=batch // 2, size=2, max_lag=max_lag, workers=3, restarts=99, fault_limit=1.0
    )
    feedback = plan.feedback.model_copy(update={"unscored_limit": 1.0})
    dies = {(slot, seed % 7 + 5) for slot in range(3)}
    backend = ScriptedWorkers(
        any_fate, seed=seed, delay=lambda play, rng: rng.randrange(1, 9), dies=dies, shuffle=True
    )
    made = Bench(plan.model_copy(update={"feedback": feedback}), backend, folder)
    made.events = Tally()
    made.publish()
    decided = 0
    while decided < episodes:
        harvest = made.batch()
        made.lineage.pop(made.version - max_lag - 3, None)
        backend.sent.clear()
        decided += len(harvest.sampled)
        yield made, harvest


@pytest.mark.parametrize("max_lag", range(17))
def test_nothing_is_lost_at_any_lag_limit(tmp_path, max_lag):
    """600 episodes at each of 17 limits."""
    fates, ids = Counter(), Counter()
    for made, harvest in streamed(tmp_path, 600, max_lag=max_lag, seed=max_lag):
        out = {e.episode_id for e, _ in harvest.dropped}
        for episode in harvest.episodes:
            age = lag(episode, made.version - 1)
            assert age is None or 0 <= age <= max_lag
        fates["trained"] += sum(e.episode_id not in out for e in harvest.episodes)
        fates.update(reason for _, reason in harvest.dropped)
        ids.update(e.episode_id for e in harvest.sampled)
        governor = made.source._governor
        ahead = (max_lag + 1) * governor.batch
        assert governor.in_flight + governor.queued <= ahead
        assert governor.in_flight + governor.queued + governor.trained <= (
            made.version * governor.batch + ahead
        )
    assert set(ids.values()) == {1} and sum(fates.values()) == len(ids) >= 600
    assert governor.exits.total() == len(ids) and governor.trained == fates["trained"]
    pending = {o.index for o in (f.order for f in made.source._flights.values())}
    pending |= {group.index for group in made.source._groups.all}
    settled = {int(name.split("-")[1]) for name in ids}
    assert settled | pending == set(range(made.source._cursor))
    waiting = sum(len(g.episodes) for g in made.source._groups.all)
    assert made.events.done + len(made.source._news) == len(ids) + waiting
    assert {"environment_fault", "unscored"} <= fates.keys()


def growth(folder, episodes):
    """Bytes by which memory grew from a fifth of ``episodes`` to all of them."""
    seen, early = 0, None
    for _, harvest in streamed(folder, episodes, max_lag=4, batch=100):
        seen += len(harvest.sampled)
        if early is None and seen >= episodes // 5:
            early = resident()
    return resident() - early


def test_memory_is_flat(tmp_path):
    assert growth(tmp_path, 5_000) < 8 << 20


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_memory_is_flat_over_a_long_run(tmp_path):
    assert growth(tmp_path, EPISODES) < 8 << 20
