import pytest

from hexad.evidence.barrier import Path, Profile, Turn, barrier, quantiles
from hexad.evidence.forecast import Machine, Schedule, floor_seconds


def test_a_group_is_ready_with_its_slowest_and_the_others_idle():
    found = barrier([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]])
    assert found.ready == (3.0, 4.0)
    assert found.idle == (3.0, 0.0)  # 3 x 3 - 6, 3 x 4 - 12
    assert found.idle_share == pytest.approx(3 / 21)
    assert barrier([[2.0]]).idle == (0.0,) and barrier([[0.0]]).idle_share == 0.0
    for nothing in ([], [[1.0], []]):
        with pytest.raises(ValueError, match="at least one"):
            barrier(nothing)


def test_quantiles_lie_between_order_statistics():
    found = quantiles([float(i) for i in range(1, 102)])
    assert found == {"mean": 51.0, "p50": 51.0, "p95": 96.0, "p99": 100.0, "max": 101.0}
    assert quantiles([]) == {}


def test_an_episode_takes_its_waits_and_its_steps_in_company():
    profile = Profile((), 0.1, 0.05, 1.0)
    path = Path(0.5, (Turn(10, 2.0), Turn(4, 1.0)))
    assert profile.step(3) == pytest.approx(0.25)
    assert (path.tokens, path.waits) == (14, 3.5)
    assert profile.seconds(path, 3) == pytest.approx(3.5 + 14 * 0.25)


@pytest.mark.parametrize(
    ("machine", "lag", "seconds"),
    [
        # 8 episodes of 10 tokens and 6 s. In company of 4 a token costs (0.1 + 0.4)/4 = 0.125 s.
        (Machine(cores=1, workers=1, rows=4), 0, 13.0),  # decode 10 + learner 3, on one core
        (Machine(cores=2, workers=1, rows=4), 0, 12.0),  # waits 48 s by 4 rows
        (Machine(cores=9, workers=8, rows=100), 1, 3.0),  # the learner alone, waits by 16
    ],
)
def test_the_floor_is_the_scarcest_of_cores_learner_and_rows(machine, lag, seconds):
    profile = Profile(((Path(1.0, (Turn(10, 5.0),)),),), 0.1, 0.1, 3.0)
    schedule = Schedule(groups=4, group_size=2, max_lag=lag)
    assert floor_seconds(profile, machine, schedule) == pytest.approx(seconds)
