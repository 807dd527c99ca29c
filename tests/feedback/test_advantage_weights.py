"""Weights of logged episodes by worked numbers."""

import math

import pytest

from hexad.feedback.advantage import weights

NAN = math.nan


def test_by_hand():
    found = weights([1.0, 0.0], ["a", "a"], beta=0.5, cap=20.0, baseline="group")
    assert found == pytest.approx([2.718281828, 0.367879441])  # exp(+-0.5 / 0.5)
    found = weights([1.0, 0.0], ["a", "b"], beta=0.5, cap=20.0, baseline="group")
    assert found == [1.0, 1.0]  # the only attempt at a task
    found = weights([1.0, 0.0], ["a", "b"], beta=0.25, cap=3.0, baseline="data")
    assert found == pytest.approx([3.0, 0.135335283])  # exp(2) is 7.39, capped; exp(-2)


def test_what_was_not_scored_is_in_no_mean():
    found = weights([1.0, NAN, 0.0], ["a"] * 3, beta=0.5, cap=20.0, baseline="group")
    assert math.isnan(found[1])
    assert [found[0], found[2]] == weights(
        [1.0, 0.0], ["a"] * 2, beta=0.5, cap=20.0, baseline="group"
    )
    assert math.isnan(weights([NAN], ["a"], beta=1.0, cap=2.0, baseline="data")[0])


def test_a_tiny_temperature_keeps_the_best_alone_and_does_not_overflow():
    found = weights([1.0, 0.0], ["a", "a"], beta=1e-9, cap=20.0, baseline="group")
    assert found == pytest.approx([20.0, 0.0])
