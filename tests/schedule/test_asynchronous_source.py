"""The asynchronous source over scripted workers: bounds, gates, books, deaths and resume."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_workers import ScriptedWorkers, scripted_episode
from source_bench import Bench, any_fate, faulty, orders, recipe

import builders
from hexad.contract.events import EpisodeDone, TasksDrawn, WorkerReplaced, WorkersSeen
from hexad.contract.faults import ContractViolation, FaultRateExceeded, UserError, WorkersLost
from hexad.contract.lag import lag
from hexad.schedule.messages import Failed


@pytest.fixture
def bench(tmp_path):
    def make(plan, backend=None, **more):
        return Bench(plan, backend or ScriptedWorkers(), tmp_path / "wal", **more)

    return make


def test_episodes_run_ahead_by_the_lag_limit_and_no_further(bench):
    made = bench(recipe(groups=2, max_lag=1))
    made.batch()
    # (0 + 1 + 1) * 2 before the first batch, then two more for each batch that was trained
    assert [order.episode_id for order in orders(made.backend)][:4] == [
        "v0-0-0", "v0-1-0", "v0-2-0", "v0-3-0",
    ]  # fmt: skip
    assert len(orders(made.backend)) == 6
    made.batch()
    assert len(orders(made.backend)) == 8


def test_a_lag_limit_of_zero_never_samples_ahead(bench):
    made = bench(recipe(groups=3, max_lag=0))
    for version in range(4):
        harvest = made.batch()
        assert {lag(e, version) for e in harvest.episodes} == {0}
        ids = [f"v{version}-{3 * version + i}-0" for i in range(3)]
        assert [e.episode_id for e in harvest.episodes] == ids


def test_o18_a_buffer_is_resumed_and_nothing_is_drawn_twice(bench, tmp_path):
    first = bench(recipe(groups=2, max_lag=1))
    seen = [e.task_id for e in first.batch().episodes]
    state = first.source.state()
    again = Bench(recipe(groups=2, max_lag=1), ScriptedWorkers(), tmp_path / "wal", version=1)
    again.lineage.update(first.lineage)
    again.source.restore(state)
    for _ in range(3):
        seen += [e.task_id for e in again.batch().episodes]
    assert seen == [f"toy:{i}" for i in range(8)]


def test_groups_wait_for_all_their_members_and_enter_whole(bench):
    def slow(play, rng):
        return rng.randrange(1, 6)

    backend = ScriptedWorkers(delay=slow, shuffle=True)
    made = bench(recipe(groups=2, size=3, max_lag=3), backend)
    for _ in range(5):
        places = [(e.group_id, e.member) for e in made.batch().episodes]
        names = list(dict.fromkeys(name for name, _ in places))
        assert len(names) == 2 and places == [(name, m) for name in names for m in range(3)]


def stale_member(play, versions, rng):
    """Member 0 of every group was sampled by version 0; the others by the newest."""
    chosen = {0: versions[0]} if play.member == 0 else versions
    return scripted_episode(play, chosen, rng)


def test_o14_a_member_that_is_too_old_stays_in_the_baseline_with_weight_zero(bench):
    made = bench(recipe(groups=1, size=2, max_lag=0), ScriptedWorkers(stale_member))
    made.batch()
    harvest = made.batch()
    old, new = harvest.episodes
    assert old.scored and not any(s.weight.any() for s in old.segments)
    assert all(s.weight.any() for s in new.segments)
    assert [(e.episode_id, why) for e, why in harvest.dropped] == [
        (old.episode_id, "stale_version")
    ]
    assert made.source._governor.exits == {"trained": 3, "stale": 1}


@pytest.mark.parametrize("stale", ["drop", "requeue"])
def test_a_group_that_is_too_old_as_a_whole_leaves_and_its_task_as_declared(bench, stale):
    late = {"v0-1-0"}

    def held(play, rng):
        return 3 if play.episode_id in late else 1

    def answer(play, versions, rng):
        return scripted_episode(
            play, {0: versions[0]} if "v0-" in play.episode_id else versions, rng
        )

    made = bench(recipe(groups=1, max_lag=1, stale=stale), ScriptedWorkers(answer, delay=held))
    batches = [made.batch() for _ in range(5)]
    gone = [(e.task_id, why) for h in batches for e, why in h.dropped]
    names = [e.episode_id for h in batches for e in h.episodes]
    assert gone == [] or all(why == "stale_version" for _, why in gone)
    for version, harvest in enumerate(batches):
        assert all(lag(e, version) <= 1 for e in harvest.episodes)
    tried = Counter(order.index for order in orders(made.backend))
    dropped = {int(task.split(":")[1]) for task, _ in gone}
    assert dropped, "the script must make something stale"
    assert all(tried[i] == (2 if stale == "requeue" else 1) for i in dropped)
    assert len(names) == len(set(names)) == 5


def test_o16_a_fault_gives_its_slot_back_and_another_episode_takes_it(bench):
    made = bench(recipe(groups=4, max_lag=0, fault_limit=0.5), ScriptedWorkers(faulty(3)))
    harvests = [made.batch() for _ in range(3)]
    assert [len(h.episodes) for h in harvests] == [4, 4, 4]
    assert {why for h in harvests for _, why in h.dropped} == {"environment_fault"}
    done = [event.episode for event in made.of(EpisodeDone)]
    assert sum(e.faulted for e in done) == made.source._governor.exits["fault"]
    for harvest in harvests:  # the store gets all that was decided, once
        ids = [e.episode_id for e in harvest.sampled]
        assert len(ids) == len(set(ids)) == len(harvest.episodes) + len(harvest.dropped)


def test_too_many_faults_stop_the_run(bench):
    made = bench(recipe(groups=4, max_lag=0), ScriptedWorkers(faulty(2)))
    with pytest.raises(FaultRateExceeded):
        made.batch()


def test_a_dead_worker_is_replaced_and_its_episodes_are_played_again(bench):
    backend = ScriptedWorkers(dies={(0, 2)})
    made = bench(recipe(groups=4, max_lag=0), backend)
    harvest = made.batch()
    assert [e.task_id for e in harvest.episodes] == [f"toy:{i}" for i in range(4)]
    assert backend.starts == 2
    assert "worker 0 is gone" in made.of(WorkerReplaced)[0].text
    assert made.of(WorkersSeen)[0].lost == 1


def test_workers_that_keep_dying_stop_the_run_with_what_they_said(bench):
    backend = ScriptedWorkers(dies={(0, 1), (1, 1)})
    made = bench(recipe(groups=4, max_lag=0, workers=2, restarts=1), backend)
    with pytest.raises(WorkersLost, match="scripted worker"):
        made.batch()


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (Failed(error="user", message="no such model", where="policy.model", fix="x"), UserError),
        (Failed(error="bug", message="Traceback ..."), ContractViolation),
    ],
)
def test_a_worker_that_fails_stops_the_run_by_whose_fault_it_was(bench, frame, error):
    made = bench(recipe(), ScriptedWorkers(lambda play, versions, rng: frame.frame()))
    with pytest.raises(error):
        made.batch()


def test_a_worker_of_another_build_is_refused(bench):
    made = bench(recipe(), ScriptedWorkers(digests={"template": "another"}))
    with pytest.raises(UserError, match="template"):
        made.batch()


def test_an_orphan_is_dropped_as_such(bench):
    def answer(play, versions, rng):
        made = scripted_episode(play, versions, rng)
        if play.index % 2:
            return replace(made, provenance=builders.provenance(versions=((0, "elsewhere"),)))
        return made

    made = bench(recipe(groups=2, max_lag=0), ScriptedWorkers(answer))
    harvest = made.batch()
    assert {why for _, why in harvest.dropped} == {"orphan_version"}
    assert made.source._governor.exits["orphan"] == len(harvest.dropped) > 0


def test_an_episode_that_nobody_ordered_is_a_bug(bench):
    def answer(play, versions, rng):
        made = scripted_episode(play, versions, rng)
        return replace(made, episode_id="other") if play.index else made

    made = bench(recipe(), ScriptedWorkers(answer))
    with pytest.raises((ContractViolation, WorkersLost)):
        made.batch()


def test_data_ends_with_a_partial_batch(bench):
    made = bench(recipe(groups=2, count=5, max_lag=3))
    harvests = [made.batch() for _ in range(3)]
    assert [len(h.episodes) for h in harvests] == [2, 2, 1]
    assert [h.exhausted for h in harvests] == [False, False, True]
    assert sum(event.episodes for event in made.of(TasksDrawn)) == 5


def test_ctrl_c_ends_a_wait_and_loses_nothing(bench):
    never = ScriptedWorkers(
        lambda play, versions, rng: (
            None if play.index == 1 else scripted_episode(play, versions, rng)
        )
    )
    made = bench(recipe(groups=2, max_lag=0), never)
    made.asked = True
    harvest = made.batch()
    assert harvest.interrupted and harvest.episodes == ()
    state = made.source.state()
    again = bench(recipe(groups=2, max_lag=0), ScriptedWorkers())
    again.source.restore(state)
    assert [e.task_id for e in again.batch().episodes] == ["toy:0", "toy:1"]


def test_arrival_out_of_order_changes_no_batch(bench):
    """The same episodes, shuffled on the way, make the same batches where the set is the same."""
    plain = [bench(recipe(groups=4, max_lag=0)).batch() for _ in range(1)]
    mixed = bench(recipe(groups=4, max_lag=0), ScriptedWorkers(shuffle=True, seed=3)).batch()
    assert [e.episode_id for e in mixed.episodes] == [e.episode_id for e in plain[0].episodes]


def balance(made, harvests):
    """Every announced episode is decided once or waits; the governor says the same."""
    done = [event.episode.episode_id for event in made.of(EpisodeDone)]
    decided = [e.episode_id for h in harvests for e in h.sampled]
    assert len(done) == len(set(done)) and len(decided) == len(set(decided))
    governor = made.source._governor
    assert governor.exits.total() == len(decided) and set(decided) <= set(done)
    waiting = {e.episode_id for g in made.source._groups.all for e in g.members}
    assert waiting == set(done) - set(decided) | {e.episode_id for e in made.source._news}
    assert governor.queued == len(waiting) and governor.in_flight == len(made.source._flights)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 999),
    size=st.integers(1, 3),
    max_lag=st.integers(0, 4),
    workers=st.integers(1, 3),
    stale=st.sampled_from(["drop", "requeue"]),
)
def test_the_books_balance_under_random_fates_deaths_and_resumes(
    tmp_path_factory, seed, size, max_lag, workers, stale
):
    rng = random.Random(seed)
    plan = recipe(
        groups=3,
        size=size,
        max_lag=max_lag,
        workers=workers,
        restarts=99,
        fault_limit=1.0,
        stale=stale,
    )
    plan = plan.model_copy(
        update={"feedback": plan.feedback.model_copy(update={"unscored_limit": 1.0})}
    )
    wal = tmp_path_factory.mktemp("wal")

    def backend():
        dies = {(rng.randrange(workers), rng.randrange(1, 30)) for _ in range(3)}
        return ScriptedWorkers(
            any_fate, seed=seed, delay=lambda play, r: r.randrange(1, 9), dies=dies, shuffle=True
        )

    made, harvests = Bench(plan, backend(), wal), []
    for _ in range(6):
        harvest = made.batch()
        harvests.append(harvest)
        version = made.version - 1
        for episode in harvest.episodes:
            age = lag(episode, version)
            assert age is None or 0 <= age <= max_lag
        balance(made, harvests)
        if rng.random() < 0.3:
            state = made.source.state()
            again = Bench(plan, backend(), wal, version=made.version)
            again.lineage, again.events = dict(made.lineage), made.events
            again.source.restore(state)
            again.publish()
            made = again
            balance(made, harvests)


def test_a_task_is_consumed_once_unless_it_is_requeued(bench):
    made = bench(
        recipe(groups=3, max_lag=2, fault_limit=1.0), ScriptedWorkers(any_fate, shuffle=True)
    )
    made.source._recipe = made.plan
    for _ in range(5):
        made.batch()
    tried = Counter(order.episode_id for order in orders(made.backend))
    assert set(tried.values()) == {1}
