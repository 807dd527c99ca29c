"""Wall-clock, utilisation and staleness together, by hand."""

import pytest

from hexad.evidence.utilisation import lines, utilisation


def row(tokens, rollout, update, lag, count, busy):
    return {
        "tokens/action": tokens,
        "time/rollout": rollout,
        "time/update": update,
        "time/evaluation": 50.0,
        "time/queue_age/mean": 9.0,
        "schedule/lag/mean": lag,
        "schedule/lag/count": count,
        "schedule/lag/max": lag + 1,
        "time/worker_busy/mean": busy,
    }


def test_the_three_numbers_by_hand():
    found = utilisation([row(300, 1.0, 3.0, 1.0, 10, 0.5), row(500, 1.0, 3.0, 2.0, 30, 1.0)])
    assert found["tokens_per_second"] == pytest.approx(100.0)  # 800 tokens in 8 seconds
    assert found["learner"] == pytest.approx(0.75)
    assert found["workers"] == pytest.approx(0.75)
    assert found["lag_mean"] == pytest.approx(1.75)  # (10 * 1 + 30 * 2) / 40
    assert found["lag_max"] == 3.0
    assert lines(found)["lag mean, max"] == "1.75, 3"


def test_a_synchronous_run_claims_none():
    assert utilisation([{"time/rollout": 1.0, "tokens/action": 5}]) is None
    assert utilisation([]) is None
