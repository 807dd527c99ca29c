import math

import pytest
import torch
from clockworld import at, tensor, ticking

from hexad.credit.gae import gae
from hexad.credit.vtrace import vtrace

NAN = math.nan


def logs(weights):
    return tensor(weights).log()


def close(values):
    return pytest.approx(values, abs=1e-9)


def three(*items):
    """Three decisions with an observation between the last two."""
    return ticking(["p00o1"], "t", *items)


VALUE = tensor([0.2, 0.3, NAN, 0.5, NAN])


def test_golden():
    c = three((1.0, 0))
    found = vtrace(c, VALUE, logs([0.5, 2, 1]), gamma=0.9)
    assert found.target.tolist() == close([0.505, 0.9, 1.0])
    assert found.advantage.tolist() == close([0.305, 0.6, 0.5])
    found = vtrace(c, VALUE, logs([1, 1, 1]), gamma=0.9)
    assert found.target.tolist() == close([0.81, 0.9, 1])
    assert found.advantage.tolist() == close([0.61, 0.6, 0.5])


def test_contract_golden():
    """rho = 1, r = (1, 2), V = 0, gamma 1: targets and advantages (3, 2)."""
    c = ticking(["p00"], "t", at(1, 1.0), at(2, 2.0))
    found = vtrace(c, tensor([0, 0, NAN]), logs([1, 1]), gamma=1.0)
    assert found.target.tolist() == close([3, 2])
    assert found.advantage.tolist() == close([3, 2])


def double_sum(c, value, weight, gamma, lam, bars):
    """The targets from the definition, term by term."""
    rho = [min(bars[0], w) for w in weight]
    trace = [lam * min(bars[1], w) for w in weight]
    targets = []
    for s in range(len(weight)):
        total, product, t = value[int(c.decision[s])], 1.0, s
        while True:
            ahead = int(c.successor[t])
            after = 0.0 if ahead == -1 else value[ahead]
            now = value[int(c.decision[t])]
            total += product * rho[t] * (float(c.reward[t]) + gamma * after - now)
            product *= gamma * trace[t]
            if bool(c.last[t]):
                break
            t += 1
        targets.append(total)
    return targets


@pytest.mark.parametrize("bars", [(1.0, 1.0), (2.0, 0.7), (10.0, 5.0), (0.5, 0.5)])
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.8), (0.0, 1.0), (0.9, 0.0)])
def test_equals_the_double_sum(bars, gamma, lam):
    generator = torch.Generator().manual_seed(3)
    rows, endings, owners = ["p00o10o", "p00", "p0oo2", "p3o3o"], "ctc", [0, 1, 2, 2]
    items = [at(2, 0.3), at(4, -0.2), (1.0, 1), at(14, 0.6, 2), (0.4, 2)]
    c = ticking(rows, endings, *items, owners=owners)
    value = torch.randn(len(c.step), generator=generator, dtype=torch.float64)
    weight = torch.rand(len(c.episode), generator=generator, dtype=torch.float64) * 3
    found = vtrace(c, value, weight.log(), gamma=gamma, lam=lam, bars=bars)
    v, w = value.tolist(), weight.tolist()
    targets = double_sum(c, v, w, gamma, lam, bars)
    assert found.target.tolist() == close(targets)
    for t in range(len(w)):  # the advantage, from these targets
        ahead = int(c.successor[t])
        after = 0.0 if ahead == -1 else v[ahead]
        mixed = after if bool(c.last[t]) else lam * targets[t + 1] + (1 - lam) * after
        step = float(c.reward[t]) + gamma * mixed - v[int(c.decision[t])]
        assert float(found.advantage[t]) == close(min(bars[0], w[t]) * step)


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_equal_policies_give_gae(lam):
    c = ticking(["p00o10o", "p00"], "ct", at(4, -0.2), (1.0, 1))
    value = torch.rand(len(c.step), generator=torch.Generator().manual_seed(0))
    found = vtrace(c, value, torch.zeros(6, dtype=torch.float64), gamma=0.9, lam=lam)
    expected = gae(c, value, gamma=0.9, policy=lam, critic=lam)
    assert found.target.tolist() == close(expected.target.tolist())
    assert found.advantage.tolist() == close(expected.advantage.tolist())


def test_rho_bar_moves_the_fixed_point_and_c_bar_does_not():
    """One decision, two actions under mu: the mean target stands still at the value of pi_rho."""
    mu, pi, reward = tensor([0.9, 0.1]), tensor([0.5, 0.5]), [1.0, 0.0]
    for bar, expected in ((1.0, 0.8333333333), (2.0, 0.7142857143), (10.0, 0.5)):
        kept = torch.minimum(bar * mu, pi)
        truth = float((kept / kept.sum())[0])
        assert truth == close(expected)
        c = ticking(["p0", "p0"], "tt", (reward[0], 0), (reward[1], 1))
        for c_bar in (0.1, bar):
            found = vtrace(
                c, tensor([truth, NAN] * 2), (pi / mu).log(), gamma=1.0, bars=(bar, c_bar)
            )
            assert float(mu @ found.target) == close(truth)


def test_extreme_ratios_stay_finite_and_junk_is_refused():
    c = three((1.0, 0))
    for far in (50.0, -50.0, 1e4):
        found = vtrace(c, VALUE, tensor([far] * 3), gamma=1.0, bars=(1e9, 1.0))
        assert torch.isfinite(found.target).all()
    near = vtrace(c, VALUE, tensor([20.0] * 3), gamma=1.0, bars=(1e99, 1.0))
    far = vtrace(c, VALUE, tensor([50.0] * 3), gamma=1.0, bars=(1e99, 1.0))
    assert torch.equal(near.target, far.target)
    for bad in (NAN, math.inf, -math.inf):
        with pytest.raises(ValueError, match="log-ratio"):
            vtrace(c, VALUE, tensor([0, bad, 0]), gamma=1.0)
    with pytest.raises(ValueError, match="one a step"):
        vtrace(c, VALUE, tensor([0.0] * 5), gamma=1.0)
    with pytest.raises(ValueError, match="float64"):
        vtrace(c, VALUE, torch.zeros(3), gamma=1.0)
    for bars in ((1.0, 2.0), (0.0, 0.0), (NAN, 1.0)):
        with pytest.raises(ValueError, match="rho_bar"):
            vtrace(c, VALUE, tensor([0.0] * 3), gamma=1.0, bars=bars)
    with pytest.raises(ValueError, match="final state"):
        vtrace(ticking(["p0"], "c"), tensor([0, 0]), tensor([0.0]), gamma=1.0)
    with pytest.raises(ValueError, match="lam"):
        vtrace(c, VALUE, tensor([0.0] * 3), gamma=1.0, lam=1.5)


def test_the_ratio_is_frozen():
    log = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    found = vtrace(three((1.0, 0)), VALUE, log, gamma=1.0)
    assert not found.target.requires_grad
    assert not found.advantage.requires_grad
