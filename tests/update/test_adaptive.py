import math

import pytest

from hexad.update.adaptive import AdaptiveCoefficient


def test_the_published_move_to_first_order():
    """algorithms.md 6.18: .2 -> .201024 for KL .15, target .1, 256 of 10000 episodes."""
    beta = AdaptiveCoefficient(0.2, target=0.1, horizon=10_000)
    beta.update(0.15, 256)
    assert beta.coefficient == pytest.approx(0.2 * math.exp(0.2 * 0.0256), rel=1e-12)
    assert beta.coefficient == pytest.approx(0.201024, abs=5e-6)


def test_small_errors_are_not_bounded():
    beta = AdaptiveCoefficient(1.0, target=0.1, horizon=100)
    beta.update(0.11, 100)
    assert beta.coefficient == pytest.approx(math.exp(0.1))


@pytest.mark.parametrize(("divergence", "sign"), [(9.0, 1), (0.0, -1), (-5.0, -1)])
def test_the_bound_holds_on_both_sides(divergence, sign):
    beta = AdaptiveCoefficient(0.5, target=1.0, horizon=10)
    beta.update(divergence, 10)
    assert beta.coefficient == pytest.approx(0.5 * math.exp(0.2 * sign))


def test_on_target_it_rests():
    beta = AdaptiveCoefficient(0.3, target=0.02, horizon=7)
    beta.update(0.02, 1000)
    assert beta.coefficient == 0.3


def test_two_batches_move_as_far_as_one_of_both():
    one, two = (AdaptiveCoefficient(0.3, target=0.1, horizon=50) for _ in range(2))
    one.update(0.12, 30)
    two.update(0.12, 10)
    two.update(0.12, 20)
    assert one.coefficient == pytest.approx(two.coefficient)


def test_a_resumed_coefficient_continues():
    first = AdaptiveCoefficient(0.3, target=0.1, horizon=50)
    first.update(0.15, 20)
    second = AdaptiveCoefficient(0.3, target=0.1, horizon=50)
    second.restore(first.state())
    for coefficient in (first, second):
        coefficient.update(0.05, 20)
    assert first.state() == second.state()


@pytest.mark.parametrize("numbers", [(0.0, 0.1, 1.0), (0.2, 0.0, 1.0), (0.2, 0.1, 0.0)])
def test_meaningless_numbers_are_refused(numbers):
    coefficient, target, horizon = numbers
    with pytest.raises(ValueError):
        AdaptiveCoefficient(coefficient, target=target, horizon=horizon)


@pytest.mark.parametrize("divergence", [math.nan, math.inf])
def test_an_unmeasured_divergence_moves_nothing(divergence):
    beta = AdaptiveCoefficient(0.2, target=0.1, horizon=10)
    with pytest.raises(ValueError):
        beta.update(divergence, 10)
    assert beta.coefficient == 0.2
