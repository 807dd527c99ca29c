import math

import pytest
import torch

from hexad.update import ratio, surrogate

MASK = torch.tensor([True])


def logs(*probabilities):
    return [torch.tensor([math.log(p)], dtype=torch.float64) for p in probabilities]


def test_golden_ratios_and_their_factorisation():
    mu, old, theta = logs(0.25, 0.5, 0.6)
    update = ratio.update(current=theta, old=old, mask=MASK)
    engine = ratio.engine(sampled=old, behaviour=mu, mask=MASK)
    direct = ratio.direct(current=theta, behaviour=mu, mask=MASK)
    values = [float(ratio.ratio(log)) for log in (update, engine, direct)]
    assert values == pytest.approx([1.2, 2.0, 2.4])


def test_five_roles_make_five_different_ratios():
    mu, sampled, old, theta = logs(0.2, 0.3, 0.5, 0.6)
    found = {
        "update": ratio.update(current=theta, old=old, mask=MASK),
        "engine": ratio.engine(sampled=sampled, behaviour=mu, mask=MASK),
        "staleness": ratio.staleness(old=old, sampled=sampled, mask=MASK),
        "proximal": ratio.proximal(old=old, behaviour=mu, mask=MASK),
        "direct": ratio.direct(current=theta, behaviour=mu, mask=MASK),
    }
    expected = {"update": 1.2, "engine": 1.5, "staleness": 5 / 3, "proximal": 2.5, "direct": 3.0}
    assert {name: float(log.exp()) for name, log in found.items()} == pytest.approx(expected)


def test_roles_cannot_be_swapped_by_position():
    with pytest.raises(TypeError):
        ratio.update(*logs(0.5, 0.6), MASK)


def test_only_the_moving_role_carries_a_gradient():
    current = torch.tensor([-1.0], requires_grad=True)
    old = torch.tensor([-1.5], requires_grad=True)
    ratio.update(current=current, old=old, mask=MASK).sum().backward()
    assert current.grad.item() == 1.0
    assert old.grad is None


def test_masked_positions_are_inert_whatever_they_hold():
    current = torch.tensor([-1.0, math.nan, -math.inf, -3.0], requires_grad=True)
    old = torch.tensor([-1.2, -2.0, math.nan, math.inf])
    mask = torch.tensor([True, False, False, False])
    log = ratio.update(current=current, old=old, mask=mask)
    assert log.tolist() == [pytest.approx(0.2), 0.0, 0.0, 0.0]
    surrogate.clip(log, torch.tensor([1.0, 0.0, 0.0, 0.0]), 0.2, 0.2).sum().backward()
    assert torch.isfinite(current.grad).all()
    assert current.grad[1:].tolist() == [0.0, 0.0, 0.0]


def test_half_precision_is_widened_before_subtracting():
    a, b = torch.tensor([-8.0]).bfloat16(), torch.tensor([-8.03125], dtype=torch.float32)
    assert ratio.log_ratio(a, b, MASK).dtype == torch.float32
    assert ratio.log_ratio(a, b, MASK).item() == 0.03125


@pytest.mark.parametrize("extreme", [50.0, -50.0, 1e4, -1e4])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_extreme_ratios_stay_finite(extreme, advantage):
    log = torch.tensor([extreme], requires_grad=True)
    for loss in (
        surrogate.plain(log, torch.tensor([advantage])),
        surrogate.clip(log, torch.tensor([advantage]), 0.2, 0.28),
        ratio.k3(log),
    ):
        (gradient,) = torch.autograd.grad(loss.sum(), log)
        assert torch.isfinite(loss).all() and torch.isfinite(gradient).all()


def test_the_clamp_starts_at_twenty():
    log = torch.tensor([19.9, 20.1, -20.1], dtype=torch.float64)
    assert ratio.ratio(log).log().tolist() == pytest.approx([19.9, 20.0, -20.0])


def test_k3_estimates_the_kl_of_a_categorical():
    old, new = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.4, 0.4, 0.2]).double()
    estimate = (old * ratio.k3((new / old).log())).sum()
    assert float(estimate) == pytest.approx(float((old * (old / new).log()).sum()))
    assert float(ratio.k3(torch.zeros(1))) == 0.0
