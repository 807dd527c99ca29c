"""Worked numbers of algorithms.md 7 and field case O12, then what must hold for any numbers."""

import math

import pytest
import torch

from hexad.update import preference
from hexad.update.preference import beyond, decayed, dpo, ipo, kto, mismatch, scores, simpo


def one(value):
    return torch.tensor([value], dtype=torch.float64)


def test_the_worked_example():
    """log pi -10 and -14, log ref -11 and -13; 5 and 4 tokens."""
    summed, mean = one(2.0), one(1 / 5 + 1 / 4)
    assert float(dpo(summed, beta=0.1)) == pytest.approx(0.59814, abs=5e-6)
    assert float(dpo(mean, beta=0.1)) == pytest.approx(0.67090, abs=5e-6)
    assert float(ipo(mean, beta=0.1)) == pytest.approx(20.7025)
    assert float(ipo(summed, beta=0.1)) == pytest.approx(9.0)
    assert float(simpo(one(-10 / 5 + 14 / 4), beta=2.0, gamma=1.0)) == pytest.approx(
        0.12693, abs=5e-6
    )
    score, good = torch.tensor([1.0, -1.0]).double(), torch.tensor([True, False])
    assert kto(score, good, torch.tensor(0.2), beta=0.1).tolist() == pytest.approx(
        [0.48001, 0.47004], abs=5e-6
    )


def test_the_gradient_of_dpo_has_the_published_scale():
    margin = one(2.0).requires_grad_()
    (gradient,) = torch.autograd.grad(dpo(margin, beta=0.1).sum(), margin)
    assert float(gradient) == pytest.approx(-0.045017, abs=5e-7)


def test_bradley_terry_is_of_differences_alone():
    """ln 2 at 0; log(1 + e^-2), log(1 + e); far out it is the margin, and finite."""
    margin = torch.tensor([0.0, 2.0, -1.0, -800.0], dtype=torch.float64, requires_grad=True)
    found = preference.bradley_terry(margin)
    expected = [math.log(2), 0.12692801104297263, 1.3132616875182228, 800.0]
    assert found.tolist() == pytest.approx(expected, rel=1e-12)
    found.sum().backward()
    assert margin.grad.tolist() == pytest.approx([-0.5, -0.11920292, -0.73105858, -1.0], abs=1e-8)


def test_label_smoothing_mixes_the_two_answers():
    """.9 of .598139 and .1 of .798139."""
    assert float(dpo(one(2.0), beta=0.1, smoothing=0.1)) == pytest.approx(0.618139, abs=1e-6)


def test_weights_of_kto_belong_to_their_own_side():
    score, good = torch.tensor([1.0, -1.0]).double(), torch.tensor([True, False])
    terms = kto(
        score, good, torch.tensor(0.2), beta=0.1, weight_desirable=2.0, weight_undesirable=3.0
    )
    assert terms.tolist() == pytest.approx([2 * 0.48001, 3 * 0.47004], abs=2e-5)


def test_field_case_o12_sums_action_tokens_alone():
    """Three and six action tokens; what stands in padding and observations is not handed in."""
    log = torch.tensor([0.2] * 3 + [-0.1] * 6, dtype=torch.float64)
    side = torch.tensor([0] * 3 + [1] * 6)
    found = scores(log, side, torch.ones(9), 2, "sum")
    assert found.tolist() == pytest.approx([0.6, -0.6])
    assert float(dpo(found[:1] - found[1:], beta=0.1)) == pytest.approx(0.634946, abs=5e-7)
    mean = scores(log, side, torch.ones(9), 2, "mean")
    assert float(dpo(mean[:1] - mean[1:], beta=0.1)) == pytest.approx(0.678260, abs=5e-7)


def test_length_moves_a_sum_and_not_a_mean():
    log, side = torch.full((15,), 0.1), torch.tensor([0] * 10 + [1] * 5)
    margins = [
        float(found[0] - found[1])
        for found in (scores(log, side, torch.ones(15), 2, how) for how in ("sum", "mean"))
    ]
    assert margins == pytest.approx([0.5, 0.0], abs=1e-7)


def test_shares_weigh_sums_and_means():
    log, side = torch.tensor([1.0, 5.0, 2.0]), torch.tensor([0, 0, 1])
    share = torch.tensor([1.0, 0.25, 0.5])
    assert scores(log, side, share, 2, "sum").tolist() == pytest.approx([2.25, 1.0])
    assert scores(log, side, share, 2, "mean").tolist() == pytest.approx([1.8, 2.0])


def test_neutral_values_at_the_reference():
    zero = one(0.0)
    assert float(dpo(zero, beta=0.3, smoothing=0.2)) == pytest.approx(math.log(2), abs=1e-15)
    assert float(ipo(zero, beta=0.1)) == pytest.approx(25.0)
    for good in (True, False):
        assert float(kto(zero, torch.tensor([good]), torch.tensor(0.0), beta=0.1)) == 0.5


def test_the_mean_of_mismatched_scores_is_cut_at_zero_and_carries_no_gradient():
    high = torch.tensor([0.5, -0.1], requires_grad=True)
    assert float(mismatch(high)) == pytest.approx(0.2)
    assert not mismatch(high).requires_grad
    assert float(mismatch(-high)) == 0.0
    assert float(mismatch(high[:0])) == 0.0


@pytest.mark.parametrize("good", [True, False])
def test_no_gradient_of_kto_goes_through_the_baseline(good):
    z = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    score = one(1.0).requires_grad_()
    found = torch.autograd.grad(
        kto(score, torch.tensor([good]), z, beta=0.1).sum(), (score, z), allow_unused=True
    )
    assert found[1] is None
    assert (float(found[0]) < 0) == good


def test_ld_dpo_weighs_what_is_longer_than_the_other_side():
    """Sides of 4 and 2 tokens, and of 1 and 3, the tokens of two pairs interleaved."""
    side = torch.tensor([0, 0, 2, 0, 0, 1, 1, 3, 3, 3])
    pair = torch.tensor([0, 0, 1, 0, 0, 0, 0, 1, 1, 1])
    assert beyond(side, pair, 0.5).tolist() == [1, 1, 1, 0.5, 0.5, 1, 1, 1, 0.5, 0.5]
    assert beyond(side, pair, 1.0).tolist() == [1.0] * 10


@pytest.mark.parametrize(
    ("gamma", "expected"), [(0.7, [1.0, 0.5434, 0.2237]), (1.0, [1.0, 2 / 3, 1 / 3])]
)
def test_dmpo_weighs_turns_by_how_many_follow(gamma, expected):
    """Three turns on one side, one on the other, which DMPO leaves as DPO has it."""
    side, turn = torch.tensor([0, 0, 0, 0, 7]), torch.tensor([0, 1, 1, 2, 0])
    t0, t1, t2 = expected
    found = decayed(side, turn, gamma).tolist()
    assert found == pytest.approx([t0, t1, t1, t2, 1.0], abs=5e-5)


def leaves(name, log, numbers):
    """The loss of two pairs of two tokens a side, or of four episodes, from 8 log-ratios."""
    found = scores(log, torch.arange(8) // 2, torch.ones(8), 4, "sum")
    if name == "kto":
        return kto(found, torch.tensor([True, False] * 2), torch.tensor(0.1), **numbers).sum()
    return preference.LOSSES[name].function(found[::2] - found[1::2], **numbers).sum()


NUMBERS = {
    "dpo": {"beta": 0.3, "smoothing": 0.1},
    "ipo": {"beta": 0.2},
    "simpo": {"beta": 2.0, "gamma": 1.0},
    "kto": {"beta": 0.4, "weight_undesirable": 1.3},
}


@pytest.mark.parametrize("name", preference.LOSSES)
def test_gradients_are_those_of_finite_differences(name):
    torch.manual_seed(0)
    log = torch.randn(8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: leaves(name, x, NUMBERS[name]), (log,))


def test_extreme_margins_stay_finite():
    margin = torch.tensor([-1e6, 1e6], dtype=torch.float64, requires_grad=True)
    for terms in (dpo(margin, beta=1.0), simpo(margin, beta=1.0, gamma=0.0)):
        assert terms.tolist() == [1e6, 0.0]
        (gradient,) = torch.autograd.grad(terms.sum(), margin)
        assert gradient.tolist() == [-1.0, 0.0]
