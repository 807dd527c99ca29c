"""Multipliers by the worked numbers of algorithms.md 8.4."""

import math

import pytest

from hexad.credit.dual import Lagrangian, Pid


def pid(**changes):
    settings = {"limit": 25.0, "gains": (0.1, 0.01, 0.01), "smoothing": (0.95, 0.95), "delay": 10}
    return Pid(**(settings | {"initial": 0.001} | changes))


def test_a_lagrangian_step():
    assert Lagrangian(0.1, 0.05, initial=0.5).step(0.3) == pytest.approx(0.51)
    falling = Lagrangian(0.5, 1.0, initial=0.2)
    assert falling.step(0.1) == 0.0 and falling.multiplier == 0.0
    assert Lagrangian(0.0, 1.0, most=0.25).step(5.0) == 0.25


def test_the_pid_controller_of_omnisafe():
    made = pid()
    assert [made.step(c) for c in (35, 35, 20)] == pytest.approx(
        [0.1685, 0.332625, 0.261044], abs=1e-6
    )


def test_a_rise_is_measured_over_the_delay():
    """kd alone, no smoothing, delay 2: costs 1, 3, 3, 1 against those two steps earlier."""
    made = pid(gains=(0.0, 0.0, 1.0), smoothing=(0.0, 0.0), delay=2, initial=0.0)
    assert [made.step(c) for c in (1.0, 3.0, 3.0, 1.0)] == [1.0, 3.0, 2.0, 0.0]


@pytest.mark.parametrize("make", [pid, lambda: Lagrangian(1.0, 0.1)])
def test_a_restored_multiplier_goes_on(make):
    whole, first, second = make(), make(), make()
    for cost in (3.0, 40.0):
        whole.step(cost)
        first.step(cost)
    second.restore(first.state())
    assert second.multiplier == whole.multiplier
    assert [second.step(c) for c in (30.0, 2.0)] == [whole.step(c) for c in (30.0, 2.0)]


@pytest.mark.parametrize("make", [pid, lambda: Lagrangian(1.0, 0.1)])
def test_a_cost_is_a_number(make):
    with pytest.raises(ValueError, match="mean cost"):
        make().step(math.nan)
