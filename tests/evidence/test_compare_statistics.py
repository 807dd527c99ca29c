"""Numbers first (algorithms.md 10, hand-computed ones), then what must not matter."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from hexad.evidence.attempts import pass_at_k, pass_hat_k, score_of
from hexad.evidence.crossed import (
    Variance,
    bootstrap,
    interquartile_mean,
    interval,
    probability_of_improvement,
    seeds_needed,
)
from hexad.evidence.crossed import test as crossed_test
from hexad.evidence.verdict import BETTER, OPEN, SAME, WORSE, holm, judge


def column(*values):
    return np.array(values)[:, None]


# -- attempts ------------------------------------------------------------------------------------


def test_pass_at_k_and_pass_hat_k_golden():
    assert pass_at_k(10, 3, 5) == pytest.approx(0.916667, abs=1e-6)
    assert pass_hat_k(10, 8, 3) == pytest.approx(56 / 120)
    assert pass_at_k(4, 0, 4) == 0.0 and pass_at_k(4, 1, 4) == 1.0
    assert pass_hat_k(4, 3, 4) == 0.0 and pass_hat_k(4, 4, 4) == 1.0


@pytest.mark.parametrize(("formula", "truth"), [(pass_at_k, 1 - 0.7**5), (pass_hat_k, 0.3**5)])
def test_both_are_unbiased(formula, truth):
    mean = sum(binom.pmf(c, 10, 0.3) * formula(10, c, 5) for c in range(11))
    assert mean == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize("counts", [(3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(ValueError):
        pass_at_k(*counts)
    with pytest.raises(ValueError):
        pass_hat_k(*counts)


def test_a_metric_names_its_score_and_the_attempts_it_needs():
    assert score_of("success")[0](4, 1) == 0.25 and score_of("success")[1] == 1
    assert score_of("pass@2")[0](4, 1) == 0.5 and score_of("pass^2")[0](4, 2) == pytest.approx(
        1 / 6
    )
    assert score_of("pass^12")[1] == 12
    for wrong in ("pass@0", "pass@", "reward", "success "):
        with pytest.raises(ValueError):
            score_of(wrong)


# -- aggregates ------------------------------------------------------------------------------------


def test_interquartile_mean_golden():
    assert interquartile_mean(column(0, 0.1, 0.4, 0.5, 0.6, 0.7, 0.9, 1)) == pytest.approx(0.55)
    assert interquartile_mean(column(0.1, 0.5, 0.9)) == pytest.approx(0.5)


def test_probability_of_improvement_golden():
    mine, base = column(0.5, 0.6, 0.7), column(0.4, 0.6, 0.65)
    assert probability_of_improvement(mine, base) == pytest.approx(0.6111, abs=1e-4)
    assert probability_of_improvement(base, mine) == pytest.approx(1 - 0.6111, abs=1e-4)
    assert probability_of_improvement(mine, mine) == 0.5
    both = np.hstack([mine, base])
    assert probability_of_improvement(both, np.hstack([base, base])) == pytest.approx(
        0.5556, abs=1e-4
    )


def test_holm_golden_and_order():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.03, 0.01, 0.04]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([0.02]) == [0.02] and holm([]) == []


# -- the crossed bootstrap -------------------------------------------------------------------------


def test_the_bootstrap_resamples_rows():
    found = bootstrap(np.array([[0.0, 0.0], [1.0, 1.0]]))
    shares = [float((found == value).mean()) for value in (0.0, 0.5, 1.0)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.02) and sum(shares) == 1.0
    assert interval(found) == (0.0, 1.0)


def test_the_bootstrap_resamples_columns():
    found = bootstrap(np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]))
    assert sorted(set(found.tolist())) == pytest.approx([0.0, 0.5, 1.0])


def test_the_bootstraps_variance_is_that_of_both_resamplings():
    """Rows and columns additive: the sum of both bootstraps' variances."""
    rows, columns = np.array([0.1, 0.4, 0.9, 0.2]), np.array([0.0, 0.5, 0.2, 0.7, 0.3])
    scores = rows[:, None] + columns[None, :]
    truth = rows.var() / len(rows) + columns.var() / len(columns)
    found = bootstrap(scores, draws=40_000)
    assert found.var() == pytest.approx(truth, rel=0.03)
    assert found.mean() == pytest.approx(scores.mean(), abs=0.005)


def test_swapped_arms_mirror_the_interval():
    scores = np.random.default_rng(1).normal(0.1, 1, (3, 20))
    low, high = interval(bootstrap(scores))
    assert interval(bootstrap(-scores)) == pytest.approx((-high, -low), abs=1e-12)


def test_a_permutation_of_tasks_or_seeds_moves_an_interval_within_its_noise_only():
    rng = np.random.default_rng(2)
    scores = rng.normal(0.0, 1, (5, 40))
    low, high = interval(bootstrap(scores))
    for other in (scores[:, rng.permutation(40)], scores[rng.permutation(5)]):
        assert interval(bootstrap(other)) == pytest.approx((low, high), abs=0.03)
        for key in ("mean", "seeds", "tasks"):
            expected = getattr(Variance.of(scores), key)
            assert getattr(Variance.of(other), key) == pytest.approx(expected)


def test_scores_without_entries_or_with_holes_are_refused():
    for wrong in (np.zeros((0, 3)), np.array([1.0]), np.array([[np.nan, 1.0]])):
        with pytest.raises(ValueError):
            bootstrap(wrong)
        with pytest.raises(ValueError):
            Variance.of(wrong)
    with pytest.raises(ValueError, match="two"):
        Variance.of(np.array([[1.0, 2.0]]))


# -- the crossed test ----------------------------------------------------------------------------


def test_variance_and_p_by_hand():
    """Row means .1 .3 .05, column means .2 .1: MS 0.035, .015 and rest .015, so no task term."""
    scores = np.array([[0.2, 0.0], [0.4, 0.2], [0.0, 0.1]])
    variance = Variance.of(scores)
    assert (variance.mean, variance.seeds) == pytest.approx((0.15, 0.035))
    assert variance.tasks == pytest.approx(0.0, abs=1e-12)
    result = crossed_test(variance, margin=0.5)
    assert result.error == pytest.approx(math.sqrt(0.035 / 6)) and result.freedom == pytest.approx(
        2
    )
    t = 0.15 / result.error  # with two degrees the distribution function is closed
    assert result.different == pytest.approx(1 - t / math.sqrt(t * t + 2))
    t = (0.5 - 0.15) / result.error
    assert result.within == pytest.approx(0.5 * (1 - t / math.sqrt(t * t + 2)))


def test_tasks_add_to_the_error_and_to_the_degrees_of_freedom():
    """Rows +-.1, columns 0, .3, .6: MS_seeds .06, MS_tasks .18, no rest."""
    scores = np.array([-0.1, 0.1])[:, None] + np.array([0.0, 0.3, 0.6])[None, :]
    variance = Variance.of(scores)
    assert (variance.seeds, variance.tasks) == pytest.approx((0.06, 0.18))
    assert variance.error(2) == pytest.approx(math.sqrt(0.24 / 6))
    assert variance.freedom(2) == pytest.approx((0.24 / 0.06) ** 2)
    assert variance.error(4) == pytest.approx(math.sqrt(0.06 / 12 + 0.18 / 6))


def test_without_variance_everything_is_certain():
    none = crossed_test(Variance.of(np.zeros((3, 4))), 0.02)
    assert (none.different, none.within) == (1.0, 0.0)
    sure = crossed_test(Variance.of(np.full((3, 4), 0.5)), 0.02)
    assert (sure.different, sure.within) == (0.0, 1.0)


@pytest.mark.parametrize("spread", [(0.1, 0.0, 0.3), (0.0, 0.3, 0.3), (0.05, 0.2, 0.2)])
def test_false_alarms_stay_near_the_level(spread):
    """Three seeds, forty tasks, no difference: seeds, tasks or the rest may vary."""
    rng = np.random.default_rng(3)
    alarms, worlds = 0, 500
    for _ in range(worlds):
        parts = (
            rng.normal(0, s, shape)
            for s, shape in zip(spread, ((3, 1), (1, 40), (3, 40)), strict=True)
        )
        alarms += crossed_test(Variance.of(sum(parts)), 0.1).different <= 0.05
    assert alarms / worlds < 0.075


def test_seeds_needed_golden():
    """One-sample t, two-sided .05, power .8: n = 10 at effect 1, 34 at .5, 199 at .2."""
    unit = Variance(0.0, 1.0, 0.0, (5, 1))
    assert [seeds_needed(unit, effect) for effect in (1.0, 0.5, 0.2)] == [10, 34, 199]
    assert seeds_needed(unit, 0.1) is None and seeds_needed(unit, 100.0) == 3
    assert seeds_needed(unit, 0.5, alpha=0.01) > 34


def test_no_number_of_seeds_replaces_tasks():
    few_tasks = Variance(0.0, 0.01, 4.0, (3, 10))
    assert seeds_needed(few_tasks, 0.1) is None
    assert seeds_needed(Variance(0.0, 0.0, 0.0, (3, 10)), 0.01) == 3


# -- verdicts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seeds", "span", "different", "within", "said"),
    [
        (3, (0.03, 0.09), 0.01, 0.9, BETTER),
        (3, (-0.09, -0.03), 0.01, 0.9, WORSE),
        (3, (-0.01, 0.01), 0.8, 0.01, SAME),
        (3, (0.001, 0.01), 0.01, 0.01, SAME),  # certain, and too small to matter
        (3, (0.03, 0.09), 0.06, 0.9, OPEN),  # the test does not agree
        (3, (-0.01, 0.09), 0.01, 0.9, OPEN),  # the interval does not agree
        (3, (-0.03, 0.01), 0.8, 0.01, OPEN),
        (3, (-0.01, 0.01), 0.8, 0.06, OPEN),
        (2, (0.03, 0.09), 0.0, 1.0, OPEN),
        (2, (0.0, 0.0), 1.0, 0.0, OPEN),
    ],
)
def test_the_verdict_needs_interval_test_and_three_seeds(seeds, span, different, within, said):
    assert judge(seeds, span, 0.02, different, within) == said
