from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hexad.environments.latency import Latency
from hexad.evidence.barrier import Path, Profile, Streaming, Turn
from hexad.evidence.forecast import Machine, Schedule
from hexad.evidence.simulate import simulate

AMPLE = Machine(cores=64, workers=1, rows=64)
ONE = Path(0.0, (Turn(10, 2.0),))
"""1 s of decoding by itself at 0.1 s a step, 2 s of waiting."""


def profile(*groups, step=0.1, row=0.0, learner=1.0, cores=1):
    return Profile(groups, step, row, learner, cores)


def forecast(given, machine=AMPLE, seed=0, **schedule):
    made = simulate(given, machine, Schedule(**{"group_size": 1, **schedule}), seed)
    assert made.planned == made.trained + made.stale + made.pending
    plan = Schedule(**{"group_size": 1, **schedule})
    assert 0 < sum(made.lags.values()) <= made.trained
    assert plan.warmup > 0 or sum(made.lags.values()) == made.trained
    assert all(0 <= lag <= schedule.get("max_lag", 0) for lag in made.lags)
    return made


def test_synchronous_time_is_rollout_plus_learner():
    found = forecast(profile((ONE,)), groups=1)
    assert found.batch_seconds == pytest.approx(4.0)  # 1 + 2 + 1
    assert found.learner_use == pytest.approx(0.25) and found.rollout_use == pytest.approx(0.25)
    assert found.lags == {0: 16} and found.stale == 0
    assert found.accepted_per_second == pytest.approx(0.25)
    slower = forecast(profile((ONE,), learner=2.0), groups=1)
    assert slower.learner_use == pytest.approx(0.4) and slower.rollout_use == pytest.approx(0.2)


def test_a_lag_of_one_lets_two_batches_overlap():
    """Two episodes are in flight; each takes 3 s and a learner second: two batches every 4 s."""
    found = forecast(profile((ONE,)), groups=1, max_lag=1, batches=30)
    assert found.batch_seconds == pytest.approx(2.0, rel=0.03)
    assert found.lags == {1: 28}


def test_the_lag_is_that_of_the_first_token():
    """Weights are published between the turns; the second one is sampled by newer ones."""
    path = Path(0.0, (Turn(1, 5.0), Turn(1, 0.0)))
    assert forecast(profile((path,)), groups=1, max_lag=1, batches=10).lags == {1: 8}


def test_the_learner_is_the_limit_when_rollouts_are_ahead():
    found = forecast(profile((ONE,)), groups=1, max_lag=8, batches=60)
    assert found.batch_seconds == pytest.approx(1.0, rel=0.01)
    assert found.learner_use == pytest.approx(1.0, rel=0.01)
    assert found.lags == {8: 51}  # whoever may run ahead as far as the limit does


def test_rows_that_decode_together_cost_one_step_and_their_own_share():
    pair = profile((ONE,), step=0.1, row=0.05)
    # 10 steps of 0.1 + 2 x 0.05 s, 2 s of waiting, 1 s of learning.
    assert forecast(pair, groups=2).batch_seconds == pytest.approx(5.0)
    one_row = forecast(pair, Machine(64, 1, 1), groups=2)
    assert one_row.batch_seconds == pytest.approx(2 * (1.5 + 2.0) + 1.0)
    apart = forecast(pair, Machine(64, 2, 64), groups=2)
    assert apart.batch_seconds == pytest.approx(1.5 + 2.0 + 1.0)


def test_workers_and_learner_share_the_cores():
    given = profile((ONE,))
    assert forecast(given, Machine(64, 2, 1), groups=2).batch_seconds == pytest.approx(4.0)
    # 2 s of decoding on one core; the last to finish still waits 2 s.
    shared = forecast(given, Machine(1, 2, 1), groups=2)
    assert shared.batch_seconds == pytest.approx(5.0)
    busy = forecast(given, Machine(1, 1, 64), groups=1, max_lag=8, batches=80)
    assert busy.batch_seconds == pytest.approx(2.0, rel=0.3)  # decode may be shared, never less
    assert busy.learner_use + busy.rollout_use <= 1.0 + 1e-6
    ahead = {"groups": 1, "max_lag": 8, "batches": 60}
    one_core = forecast(profile((ONE,), learner=2.0), Machine(2, 2, 64), **ahead)
    both = forecast(profile((ONE,), learner=2.0, cores=2), Machine(2, 2, 64), **ahead)
    assert one_core.batch_seconds == pytest.approx(2.0, rel=0.05)
    assert both.batch_seconds > 2.1
    two = profile((ONE,), learner=2.0, cores=2)
    assert forecast(two, Machine(2, 1, 1), groups=1).batch_seconds == pytest.approx(5.0)


def test_a_batch_waits_for_its_slowest_and_ticks_wait_at_every_turn():
    first = Path(0.0, (Turn(0, 1.0), Turn(0, 3.0)))
    second = Path(0.0, (Turn(0, 3.0), Turn(0, 1.0)))
    given = profile((first, second), step=0.0, learner=0.5)
    batch = {"groups": 1, "group_size": 2}
    assert forecast(given, **batch).batch_seconds == pytest.approx(4.5)
    assert forecast(given, ticks=True, **batch).batch_seconds == pytest.approx(6.5)
    late = profile((first, Path(2.0, (Turn(0, 1.0),))), step=0.0, learner=0.5)
    # The reset of 2 s holds the first tick too: 2 + 1, then the second turn of the first alone: 3.
    assert forecast(late, ticks=True, **batch).batch_seconds == pytest.approx(6.5)


def test_ticks_admit_the_next_episode_when_one_ends():
    short, long = Path(0.0, (Turn(0, 1.0),)), Path(0.0, (Turn(0, 1.0), Turn(0, 1.0)))
    given = profile((long, short, short), step=0.0, learner=0.5)
    machine = Machine(64, 1, 2)
    made = forecast(given, machine, groups=1, group_size=3, ticks=True)
    # Two rows: the third episode takes the place of the second in the second tick.
    assert made.batch_seconds == pytest.approx(2.5)


def tailed(groups, size, seed=1):
    rng = np.random.default_rng(seed)
    waits = 0.2 / 3 * rng.random((groups, size, 3)) ** (-1 / 1.2)
    return tuple(
        tuple(Path(0.0, tuple(Turn(8, float(w)) for w in member)) for member in group)
        for group in waits
    )


def test_heavy_tails_are_streamed_past_the_barrier_within_the_lag_limit():
    given = Profile(tailed(40, 4), 0.001, 0.0001, 0.5)
    machine, batch = Machine(16, 4, 64), {"groups": 8, "group_size": 4, "batches": 40}
    seconds = [
        forecast(given, machine, max_lag=lag, **batch).batch_seconds for lag in (0, 1, 2, 4, 8)
    ]
    assert all(later <= earlier * 1.02 for earlier, later in pairwise(seconds))
    assert seconds[-1] == pytest.approx(0.5, rel=0.02) and seconds[0] > 1.2


def test_a_straggler_beyond_the_limit_is_stale_and_counted_not_trained():
    quick, slow = Path(0.0, (Turn(1, 0.0),)), Path(0.0, (Turn(1, 60.0),))
    given = profile((quick,), (slow,), step=0.01, learner=1.0)
    found = forecast(given, groups=4, max_lag=2, batches=120)
    assert found.stale > 0 and 0 < found.stale_share < 0.5
    late = Path(59.0, (Turn(1, 0.0),))  # begins when the slow one is nearly done: it is fresh
    pairs = profile((late, slow), *[(quick, quick)] * 40, step=0.01, learner=1.0)
    # Nobody learns from one member alone: the group goes with its straggler.
    plan = {"groups": 4, "group_size": 2, "max_lag": 2, "batches": 120}
    made = [forecast(pairs, seed=seed, **plan) for seed in range(6)]
    assert sum(one.stale for one in made) > 6
    assert all(one.trained % 2 == 0 == one.stale % 2 for one in made)


def test_a_group_keeps_its_members_while_two_are_fresh():
    """The quick members began a turn later, when their reset was over, and are fresh."""
    slow, fresh = Path(0.0, (Turn(1, 50.0),)), Path(49.0, (Turn(1, 0.0),))
    quick = Path(0.0, (Turn(1, 0.0),))
    given = profile((slow, fresh, fresh), (quick,) * 3, step=0.01, learner=1.0)
    found = forecast(given, groups=2, group_size=3, max_lag=2, batches=200)
    assert found.stale > 0 and found.trained % 3 != 0


def test_equal_arguments_give_an_equal_forecast_and_seeds_differ():
    given = Profile(tailed(10, 2), 0.001, 0.0001, 0.1)
    machine, batch = Machine(4, 2, 16), {"groups": 4, "group_size": 2, "max_lag": 2}
    assert forecast(given, machine, 3, **batch) == forecast(given, machine, 3, **batch)
    assert forecast(given, machine, 3, **batch) != forecast(given, machine, 4, **batch)


def test_a_group_that_lost_members_to_faults_is_filled_from_the_others():
    given = profile((ONE,), step=0.1)
    assert forecast(given, groups=1, group_size=3).trained == 48


def test_a_run_that_is_all_warmup_is_refused():
    with pytest.raises(ValueError, match="warm-up"):
        simulate(profile((ONE,)), AMPLE, Schedule(1, 1, max_lag=8, batches=9))


def test_a_declared_latency_is_drawn_afresh_and_the_rest_of_a_wait_is_kept():
    """Pareto waits of which one mild draw was measured; 0.5 s of each call were the tool's own."""
    latency = Latency("pareto", 1.0, alpha=1.5, cap=50.0)
    mild = Path(0.0, (Turn(0, 0.5 + 0.4, drawn=0.4),))
    given = Profile(((mild,),), 0.0, 0.0, 0.1, latency=latency)
    plan = {"groups": 1, "group_size": 64, "batches": 64}
    found = forecast(given, **plan)
    # The largest of 64 draws, E = xm 64^(2/3) Gamma(1/3) = 1/3 x 16 x 2.679 without the cap.
    assert found.batch_seconds == pytest.approx(0.6 + 14.3, rel=0.25)
    constant = Profile(((mild,),), 0.0, 0.0, 0.1, latency=Latency("constant", 2.0))
    assert forecast(constant, **plan).batch_seconds == pytest.approx(0.5 + 2.0 + 0.1)
    assert forecast(replace(given, latency=None), **plan).batch_seconds == pytest.approx(1.0)
    late = Profile(((Path(0.7, (), drawn=0.4),),), 0.0, 0.0, 0.1, latency=Latency("constant", 2.0))
    assert forecast(late, groups=1).batch_seconds == pytest.approx(0.3 + 2.0 + 0.1)


def test_a_worker_that_streams_has_costs_of_its_own():
    given = profile((ONE,), step=0.1, learner=1.0)
    costs = replace(given, streaming=Streaming(0.3, 0.01, 0.25))
    streamed = costs.streamed(4)
    assert (streamed.step(2), streamed.learner_seconds) == pytest.approx((0.32, 2.0))
    assert given.streamed(4) is given
    assert forecast(streamed, groups=4).batch_seconds == pytest.approx(10 * 0.34 + 2.0 + 2.0)
