import math

import pytest
import torch

from hexad.update.effective import rate_scale, share


def logs(*weights):
    return torch.tensor(weights, dtype=torch.float64).log()


def test_vcpo_worked_example():
    """algorithms.md 6.16: w = (1, 1, 1, 5) gives .5714 and a rate of .7559."""
    found = share(logs(1, 1, 1, 5))
    assert found == pytest.approx(0.5714, abs=5e-5)
    assert rate_scale(found, 1.0) == pytest.approx(0.7559, abs=5e-5)
    assert rate_scale(found, 1.0, "linear") == pytest.approx(0.5714, abs=5e-5)


def test_importance_sampling_golden():
    """contract.md 6.5: target (.8, .2) over (.5, .5): ESS 1.470588 of 2."""
    assert 2 * share(logs(1.6, 0.4)) == pytest.approx(1.470588, abs=5e-7)


def test_the_scale_is_capped_at_one():
    assert rate_scale(0.8, 0.55) == 1.0
    assert rate_scale(0.55, 0.55) == 1.0
    assert rate_scale(0.275, 0.55) == pytest.approx(math.sqrt(0.5))
    assert rate_scale(0.0, 1.0) == 0.0


def test_equal_weights_are_all_there_and_scale_does_not_matter():
    assert share(logs(3, 3, 3)) == pytest.approx(1.0)
    assert share(logs(1, 2, 7) + 900.0) == pytest.approx(share(logs(1, 2, 7)))
    assert share(logs(1, 2, 7) - 900.0) == pytest.approx(share(logs(1, 2, 7)))


def test_one_weight_that_has_run_away_is_seen():
    """Unclipped: log-weights of +-50 leave one sample of four."""
    assert share(torch.tensor([50.0, -50.0, 0.0, 1.0])) == pytest.approx(0.25)


def test_zero_weights():
    assert share(logs(0, 0)) == 0.0
    assert share(logs(0, 1)) == pytest.approx(0.5)


@pytest.mark.parametrize("bad", [[], [math.nan, 0.0], [math.inf, 0.0]])
def test_weights_that_are_no_numbers_are_refused(bad):
    with pytest.raises(ValueError):
        share(torch.tensor(bad))


@pytest.mark.parametrize("base", [0.0, -1.0, 1.5])
def test_a_meaningless_base_is_refused(base):
    with pytest.raises(ValueError):
        rate_scale(0.5, base)
