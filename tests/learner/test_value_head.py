import math

import pytest
import torch

from hexad.contract.faults import ContractViolation
from hexad.learner.value_head import HLGauss, Regression


def column(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_regression_is_half_the_squared_error():
    raw = column(0.5, -1.0)[:, None]
    assert Regression().value(raw).tolist() == [0.5, -1.0]
    assert Regression().loss(raw, column(1.0, 1.0), column(0.0, 0.0)).tolist() == [0.125, 2.0]


def test_value_clipping_is_the_pessimistic_bound():
    """held 0, clip .2, target 1: V .5 counts as .2, so 1/2 .8^2; V -.5 is already worse, 1/2 1.5^2;
    target 0, V .5: the clipped value .2 would be better, so 1/2 .5^2."""
    raw = column(0.5, -0.5, 0.5)[:, None].requires_grad_()
    loss = Regression(clip=0.2).loss(raw, column(1.0, 1.0, 0.0), column(0.0, 0.0, 0.0))
    assert loss.tolist() == pytest.approx([0.32, 1.125, 0.125])
    loss.sum().backward()
    assert raw.grad[:, 0].tolist() == pytest.approx([0.0, -1.5, 0.5])


@pytest.mark.parametrize("target", [0.0, 0.013, 0.5, 0.77, 1.0])
def test_a_histogram_keeps_its_mean_at_the_border_too(target):
    head = HLGauss(0.0, 1.0)
    mass = head.histogram(column(target))
    assert float(mass.sum()) == pytest.approx(1.0)
    assert float(head.value(mass.log())[0]) == pytest.approx(target, abs=2e-3)


def test_the_unpadded_support_would_be_biased_by_the_documented_amount():
    """algorithms.md 1.5: 51 bins on exactly [0, 1], sigma .75 of a bin: .0135 for y = 0."""
    edges = torch.linspace(0, 1, 52, dtype=torch.float64)
    mass = torch.erf(edges / (0.75 / 51 * math.sqrt(2))).diff()
    assert float((mass / mass.sum() * (edges[1:] + edges[:-1]) / 2).sum()) == pytest.approx(
        0.0135, abs=5e-5
    )


def test_cross_entropy_is_least_at_the_target_and_equals_the_sum():
    head, target = HLGauss(0.0, 1.0, bins=11, sigma=0.75), column(0.3)
    best = head.histogram(target).clamp_min(1e-300).log()
    other = torch.zeros(1, 11, dtype=torch.float64)
    assert float(head.loss(other, target, target)) == pytest.approx(math.log(11))
    entropy = -float((head.histogram(target) * best).sum())
    assert float(head.loss(best, target, target)) == pytest.approx(entropy)
    assert entropy < math.log(11)


def test_the_gradient_is_softmax_minus_histogram():
    head, target = HLGauss(-1.0, 1.0, bins=21), column(-0.4, 0.9)
    raw = torch.randn(2, 21, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    raw.requires_grad_()
    head.loss(raw, target, target).sum().backward()
    torch.testing.assert_close(raw.grad, raw.detach().softmax(-1) - head.histogram(target))


def test_a_target_outside_the_support_is_refused():
    with pytest.raises(ContractViolation, match=r"critic\.support"):
        HLGauss(0.0, 1.0).histogram(column(0.5, 1.5))


@pytest.mark.parametrize("bad", [(1.0, 0.0, 51, 0.75), (0.0, 1.0, 5, 0.75), (0.0, 1.0, 51, 0.0)])
def test_impossible_histograms_are_refused(bad):
    with pytest.raises(ValueError, match="no histogram"):
        HLGauss(*bad)
