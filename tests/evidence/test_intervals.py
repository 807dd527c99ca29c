import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexad.evidence.intervals import wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"), [(26, 30, 0.703, 0.947), (12, 200, 0.035, 0.102)]
)
def test_wilson_gives_the_reference_numbers(successes, n, low, high):
    assert wilson(successes, n) == pytest.approx((low, high), abs=5e-4)


def test_nothing_counted_has_no_interval():
    assert wilson(0, 0) is None


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_interval_holds_the_rate_and_mirrors(pair):
    successes, n = pair
    low, high = wilson(successes, n)
    assert 0.0 <= low <= successes / n <= high <= 1.0 and high - low > 0
    mirrored = wilson(n - successes, n)
    assert math.isclose(low, 1 - mirrored[1], abs_tol=1e-12)


def test_more_confidence_is_wider():
    assert wilson(5, 10, 0.99)[0] < wilson(5, 10, 0.95)[0] < wilson(5, 10, 0.5)[0]


@pytest.mark.parametrize(("successes", "n"), [(-1, 3), (4, 3), (0, -1)])
def test_impossible_counts_are_refused(successes, n):
    with pytest.raises(ValueError, match="proportion"):
        wilson(successes, n)
