"""What the logs of episodes are worth at a kill: nothing is forgotten, nothing counted twice."""

import numpy as np
from scripted_workers import ScriptedWorkers, scripted_episode
from source_bench import Bench, orders, recipe

from hexad.contract.events import EpisodeDone, EpisodeLeft
from hexad.policy.engine import Completion, Stop
from hexad.rollout.entries import Sampled
from hexad.rollout.log import EpisodeLog
from hexad.schedule.flights import kept
from hexad.schedule.messages import Lost, Paused
from hexad.schedule.wal import Wal, path


def log(folder, name, *turns):
    """A log of turns of so many tokens, on disk where a folder is given; its bytes."""
    if folder is not None:
        folder.mkdir(exist_ok=True)
    made = EpisodeLog.create(None if folder is None else path(folder, name))
    for count in turns:
        ids, none = np.arange(count, dtype=np.int32), np.zeros(count, np.int32)
        made.append(Sampled(Completion(ids, none.astype(np.float32), none, Stop.TOKEN, None), 0.1))
    made.close()
    return made.data()


def unsaved(folder, state, stored):
    """Episodes and tokens on disk that a resume from ``state`` throws away."""
    return Wal(folder).beyond(kept(state), stored)


def silent(play, versions, rng):
    """Nobody ever answers."""


def begun(folder, **more):
    """A source whose four episodes are all under way."""
    made = Bench(recipe(groups=2, max_lag=1), ScriptedWorkers(silent), folder, **more)
    made.publish()
    made.source._start()
    return made


def test_what_a_resume_throws_away_is_counted_by_episode_and_token(tmp_path):
    folder = tmp_path / "wal"
    made = begun(folder)
    log(folder, "v0-0-0", 3)
    state = made.source.state()
    log(folder, "v0-0-0", 3, 4)  # four tokens more since
    log(folder, "v0-1-0", 2)  # in flight, and had sampled nothing at the checkpoint
    log(folder, "v1-9-0", 5, 6)  # begun since: a whole episode
    log(folder, "v1-8-0", 100)  # begun since, and in the store: counted there
    assert unsaved(folder, state, ["v1-8-0"]) == (1, 4 + 2 + 11)


def test_the_log_of_a_consumed_episode_outlives_the_batch_until_that_is_stored(tmp_path):
    folder = tmp_path / "wal"
    made = Bench(recipe(groups=2, max_lag=0), ScriptedWorkers(), folder)
    for name in ("v0-0-0", "v0-1-0"):
        log(folder, name, 5)
    made.publish()
    before = made.source.state()
    made.source.next(0)
    # Killed before the batch is in the store, both are lost; afterwards the store counts them.
    assert unsaved(folder, before, []) == (2, 10)
    assert unsaved(folder, before, ["v0-0-0", "v0-1-0"]) == (0, 0)
    made.version = 1
    made.publish()  # no batch need follow: the logs of what was decided do not outlive the run
    assert Wal(folder).tokens() == {}


def test_the_log_of_a_lost_episode_stays_until_a_checkpoint_knows_of_the_loss(tmp_path):
    def first_is_lost(play, versions, rng):
        if play.index == 0:
            return Lost(episode_id=play.episode_id, lost=3, reason="it lasts").frame()
        return scripted_episode(play, versions, rng)

    folder = tmp_path / "wal"
    made = Bench(recipe(groups=2, max_lag=0), ScriptedWorkers(first_is_lost), folder)
    made.publish()
    before = made.source.state()
    log(folder, "v0-0-0", 3)
    for _ in range(2):
        made.batch()
    assert unsaved(folder, before, []) == (1, 3)
    assert unsaved(folder, made.source.state(), []) == (0, 0)
    made.batch()
    assert Wal(folder).tokens() == {}


def test_a_checkpoint_that_is_never_finished_costs_no_log(tmp_path):
    """A queued episode is in the new checkpoint; the one before it still needs the log."""
    folder = tmp_path / "wal"
    made = Bench(recipe(groups=2, max_lag=1), ScriptedWorkers(), folder)
    made.publish()
    before = made.source.state()
    made.batch()
    queued = [e.episode_id for group in made.source._groups.all for e in group.members]
    if not queued:
        made.source._hear(0.0)
        queued = [e.episode_id for group in made.source._groups.all for e in group.members]
    assert queued
    for name in queued:
        log(folder, name, 7)
    after = made.source.state()
    assert unsaved(folder, before, [])[1] == 7 * len(queued)
    assert unsaved(folder, after, []) == (0, 0)


def test_a_log_that_was_handed_on_and_not_yet_begun_is_in_the_checkpoint(tmp_path):
    folder = tmp_path / "wal"
    made = begun(folder)
    whole = log(folder, "v0-0-0", 3)
    state = made.source.state()
    again = begun_again(tmp_path, state)  # the workers are still starting: nothing is on disk
    assert Wal(folder).tokens() == {}
    second = again.source.state()
    assert second["logs"] == whole and second["log_lengths"][0] == len(whole)


def begun_again(tmp_path, state):
    again = Bench(recipe(groups=2, max_lag=1), ScriptedWorkers(silent), tmp_path / "wal")
    again.publish()
    again.source.restore(state)
    again.source._start()
    return again


def test_a_worker_that_dies_before_it_begins_hands_its_log_on(tmp_path):
    folder = tmp_path / "wal"
    made = begun(folder)
    whole = log(folder, "v0-0-0", 3)
    again = begun_again(tmp_path, made.source.state())
    again.backend.kill(0)
    for _ in range(3):
        again.source._hear(0.0)
    sent = [frame for _, frame in again.backend.sent if frame.head.get("index") == 0]
    assert [frame.body for frame in sent] == [whole, whole]


def test_a_paused_episode_goes_on_from_its_log_after_a_resume(tmp_path):
    folder = tmp_path / "wal"
    whole = log(None, "v0-0-0", 3)

    def paused(play, versions, rng):
        return Paused(episode_id=play.episode_id, lost=2).frame(whole)

    made = Bench(recipe(groups=1, max_lag=0), ScriptedWorkers(paused), folder)
    made.publish()
    made.source._start()
    for _ in range(3):
        made.source._hear(0.0)
    state = made.source.state()
    assert state["logs"] == whole and state["flights"][0][1] == 2
    again = Bench(recipe(groups=1, max_lag=0), ScriptedWorkers(), folder)
    again.lineage[0] = "digest-0"
    again.source.restore(state)
    (episode,) = again.batch().episodes
    (order,) = [o for o in orders(again.backend) if o.index == 0]
    assert order.lost == 2 and order.lineage == {0: "digest-0"}
    assert episode.costs.lost_tokens == 2
    assert [e.episode.episode_id for e in again.of(EpisodeDone)] == ["v0-0-0"]


def test_a_log_of_weights_that_no_longer_exist_is_lost_and_its_episode_starts_afresh(tmp_path):
    first = begun(tmp_path / "wal")
    log(tmp_path / "wal", "v0-0-0", 3)  # sampled by version 0
    state = first.source.state()
    again = Bench(recipe(groups=2, max_lag=1), ScriptedWorkers(silent), tmp_path / "wal", version=1)
    again.source.restore(state)
    again.publish()  # its history knows version 1 alone
    again.source._start()
    (order,) = (o for o in orders(again.backend) if o.episode_id == "v0-0-0")
    assert (order.lost, order.lineage) == (3, {})
    bodies = [f.body for _, f in again.backend.sent if f.head.get("episode_id") == "v0-0-0"]
    assert bodies == [b""]


def test_what_is_under_way_when_the_run_ends_is_told_and_its_logs_go(tmp_path):
    folder = tmp_path / "wal"
    made = begun(folder)
    log(folder, "v0-0-0", 3, 4)
    log(folder, "v0-1-0", 5)
    made.source.finish()
    left = {event.episode_id: event.sampled_tokens for event in made.of(EpisodeLeft)}
    assert left == {"v0-0-0": 7, "v0-1-0": 5, "v0-2-0": 0, "v0-3-0": 0}
    assert made.backend.closed and sorted(file.name for file in folder.iterdir())
    state = made.source.state()
    assert state["flights"] == [] and state["governor"]["in_flight"] == 0
    made.source.close()
    assert list(folder.iterdir()) == []


def test_what_had_arrived_when_the_run_ends_is_booked(tmp_path):
    made = Bench(recipe(groups=2, max_lag=1), ScriptedWorkers(), tmp_path / "wal")
    made.batch()
    made.source._hear(0.0)
    known = {event.episode.episode_id for event in made.of(EpisodeDone)}
    made.source.finish()
    done = {event.episode.episode_id for event in made.of(EpisodeDone)}
    left = {event.episode_id for event in made.of(EpisodeLeft)}
    assert done > known and not done & left
    assert done | left == {order.episode_id for order in orders(made.backend)}
    waiting = made.source.state()["governor"]
    assert waiting["in_flight"] == 0 and waiting["queued"] == len(done) - 2
