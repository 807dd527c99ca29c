"""Numbers and invariants of every surrogate but those of test_surrogate_golden.py."""

import math

import pytest
import torch

from hexad.update import ratio, surrogate
from hexad.update.gate import beyond, moved
from hexad.update.square import apart
from hexad.update.table import SURROGATES

NUMBERS = {
    "nll": {},
    "plain": {},
    "clip": {"low": 0.2, "high": 0.28},
    "clip, dual": {"low": 0.2, "high": 0.28, "dual": 3.0},
    "cispo": {"low": 1.0, "high": 4.0},
    "sapo": {"tau": 1.0, "tau_negative": 1.05},
    "dis": {"low": 0.3, "high": 5.0},
    "squared": {"tau": 0.5},
    "token_clip": {"low": 0.5, "high": 0.5, "tau": 0.1},
    "difference": {"low": 0.2, "high": 0.2},
}
"""One legal set of numbers each; the name before the comma is the surrogate's."""
RATIOS = [case for case in NUMBERS if case != "nll"]


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def entry(case):
    return SURROGATES[case.split(",")[0]]


def loss(case, log_ratio, current, advantage):
    tensors = {"log_ratio": log_ratio, "current": current, "advantage": advantage}
    return entry(case).loss(tensors, NUMBERS[case])


def coefficient(function, rho, *rest):
    """d loss / d log rho at each token of a loss that takes the log-ratio first."""
    log = tensor(*rho).log().requires_grad_()
    (gradient,) = torch.autograd.grad(function(log, *rest).sum(), log)
    return gradient.tolist()


def test_the_table_is_covered():
    assert {case.split(",")[0] for case in NUMBERS} == set(SURROGATES)


# -- numbers ---------------------------------------------------------------------------------


def test_dual_clip_table():
    """algorithms.md 6.1, last column."""
    rho, advantage = [1.5, 0.5, 1.5, 0.5, 4.0], tensor(1, 1, -1, -1, -1)
    value = surrogate.clip(tensor(*rho).log(), advantage, 0.2, 0.28, dual=3.0)
    assert (-value).tolist() == pytest.approx([1.28, 0.5, -1.5, -0.8, -3.0])
    gradient = coefficient(lambda x: surrogate.clip(x, advantage, 0.2, 0.28, dual=3.0), rho)
    assert gradient == pytest.approx([0.0, -0.5, 1.5, 0.0, 0.0])


def test_dual_clip_leaves_positive_advantages_alone():
    log = tensor(0.1, 5.0, 50.0).log()
    both = [surrogate.clip(log, tensor(2, 2, 2), 0.2, 0.28, dual=d) for d in (None, 1.01)]
    assert torch.equal(*both)


def test_cispo_weights():
    """algorithms.md 6.15: with cap 5, w = (.2, 1, 3, 9) weighs (.2, 1, 3, 5)."""
    log, current = tensor(0.2, 1, 3, 9).log(), tensor(-0.5, -1, -2, -3).requires_grad_()
    value = surrogate.cispo(log, current, tensor(1, -1, 1, -1), 1.0, 4.0)
    (gradient,) = torch.autograd.grad(value.sum(), current)
    assert gradient.tolist() == pytest.approx([-0.2, 1.0, -3.0, 5.0])
    assert value.tolist() == pytest.approx([0.1, -1.0, 6.0, -15.0])


def test_cispo_lower_bound():
    log, current = tensor(0.2, 0.9).log(), tensor(-1, -1).requires_grad_()
    value = surrogate.cispo(log, current, tensor(1, 1), 0.2, 0.2)
    (gradient,) = torch.autograd.grad(value.sum(), current)
    assert gradient.tolist() == pytest.approx([-0.8, -0.9])


def dis_case(through):
    """algorithms.md 1.5: pi, mu, A and the bounds of SAO's mathematics."""
    current = tensor(0.44, 0.26, 0.65, 0.24).log().requires_grad_()
    mask = torch.ones(4, dtype=torch.bool)
    log = ratio.direct(current=current, behaviour=tensor(0.4, 0.4, 0.1, 0.3).log(), mask=mask)
    value = surrogate.dis(log, current, tensor(1, 1, -1, 1), 0.3, 5.0, through=through)
    (gradient,) = torch.autograd.grad(value.sum(), current)
    return value, gradient.tolist()


def test_dis_worked_example():
    value, gradient = dis_case(through=False)
    assert gradient == pytest.approx([-1.10, 0, 0, -0.80])
    assert float(value.detach().sum()) == pytest.approx(2.0448, abs=5e-5)


def test_dis_through_the_weight():
    value, gradient = dis_case(through=True)
    assert gradient == pytest.approx([-0.1969, 0, 0, 0.3417], abs=5e-5)
    assert float(value.detach().sum()) == pytest.approx(2.0448, abs=5e-5)


@pytest.mark.parametrize(("through", "expected"), [(False, 0.488917), (True, 0.144546)])
def test_dis_is_unbiased_only_detached(through, expected):
    """algorithms.md 1.5: two actions, mu = (.5, .5), A = (1, -1), the gate wide open."""
    z = tensor(0.3).requires_grad_()
    current = torch.nn.functional.logsigmoid(torch.cat([z, -z]))
    mu = tensor(0.5, 0.5)
    log = current - mu.log()
    value = surrogate.dis(log, current, tensor(1, -1), 1.0, 1e9, through=through)
    (gradient,) = torch.autograd.grad((mu * value).sum(), z)
    assert -gradient.item() == pytest.approx(expected, abs=5e-7)


def test_dis_band_is_open():
    """contract.md 6.5; powers of two are exact, so the endpoints can be told."""
    rho = [0.7, 0.81, 1.0, 1.27, 1.4]
    assert sum(beyond(tensor(*rho).log(), 0.2, 0.28)).tolist() == [1, 0, 0, 0, 1]
    below, above = beyond(tensor(0.5, 2.0).log(), 0.5, 1.0)
    assert (below.tolist(), above.tolist()) == ([True, False], [False, True])
    value = surrogate.dis(tensor(0.5, 2.0).log(), tensor(-1, -1), tensor(1, 1), 0.5, 1.0)
    assert value.tolist() == [0.0, 0.0]


def test_dis_gates_whatever_the_sign():
    log, current = tensor(0.5, 7.0, 0.5, 7.0).log(), tensor(-1, -1, -1, -1)
    value = surrogate.dis(log, current, tensor(1, 1, -1, -1), 0.3, 5.0)
    assert value.abs().tolist() == [0.0] * 4


def test_the_difference_gate_is_of_probabilities():
    """algorithms.md 4.3: .01 -> .05 passes, .70 -> .95 is dropped; and the same downwards."""
    mu, new = tensor(0.01, 0.70, 0.95, 0.05, 0.95, 0.70), tensor(0.05, 0.95, 0.70, 0.01, 0.70, 0.95)
    advantage = tensor(1, 1, 1, -1, -1, -1)
    log = (new / mu).log()
    value = surrogate.difference(log, new.log(), advantage, 0.2, 0.2)
    kept = [5, 0, 0.70 / 0.95, -0.2, 0, -0.95 / 0.70]
    assert (-value).tolist() == pytest.approx(kept)
    below, above = moved(log, new.log(), 0.2, 0.2)
    assert below.tolist() == [False, False, True, False, True, False]
    assert above.tolist() == [False, True, False, False, False, True]


def test_the_difference_gate_has_two_sides():
    mu, new = tensor(0.5, 0.5), tensor(0.65, 0.35)
    value = surrogate.difference((new / mu).log(), new.log(), tensor(1, -1), 0.2, 0.1)
    assert value.tolist() == pytest.approx([0.0, 0.7], abs=1e-12)
    value = surrogate.difference((new / mu).log(), new.log(), tensor(1, -1), 0.1, 0.2)
    assert value.tolist() == pytest.approx([-1.3, 0.0], abs=1e-12)


def test_sapo_numbers():
    """algorithms.md 6.18."""
    value = surrogate.sapo(tensor(1.5, 1.5).log(), tensor(1, -1), 1.0, 1.05)
    assert (-value).tolist() == pytest.approx([2.490, -2.394], abs=5e-4)


@pytest.mark.parametrize(("tau", "where", "peak"), [(1.0, 2.06, 1.57), (2.0, 1.38, 1.20)])
def test_sapo_coefficient_is_not_monotone(tau, where, peak):
    """contract.md 2.9: rho sech^2(tau (rho - 1) / 2)."""
    rho = torch.linspace(0.05, 4, 400, dtype=torch.float64)
    found = -torch.tensor(
        coefficient(lambda x: surrogate.sapo(x, torch.ones_like(x), tau, 9.0), rho.tolist())
    )
    expected = rho / torch.cosh(tau * (rho - 1) / 2) ** 2
    assert torch.allclose(found.double(), expected)
    assert float(rho[found.argmax()]) == pytest.approx(where, abs=0.01)
    assert float(found.max()) == pytest.approx(peak, abs=0.005)


def test_squared_is_k1_5():
    """algorithms.md 4.1: r = (1, 0, 0, 1), tau = .5."""
    log, advantage = tensor(0.1, -0.2, 0.0, 0.3).requires_grad_(), tensor(0.5, -0.5, -0.5, 0.5)
    value = surrogate.squared(log, advantage, 0.5)
    (gradient,) = torch.autograd.grad(value.sum(), log)
    assert (-gradient).tolist() == pytest.approx([0.45, -0.40, -0.50, 0.35])
    linear = 0.25 * log**2 - advantage * log
    assert (value - linear).tolist() == pytest.approx((advantage**2).tolist())


def test_squared_rests_where_the_policy_is_optimal():
    """At pi = old exp(A / tau) nothing pushes: log ratio = A / tau."""
    log = tensor(1.0, -2.0).requires_grad_()
    (gradient,) = torch.autograd.grad(surrogate.squared(log, 0.25 * log.detach(), 0.25).sum(), log)
    assert gradient.tolist() == [0.0, 0.0]


def test_token_clip_bounds_the_log_ratio():
    """algorithms.md 4.3: log-ratios (-1.2, -.3, .1, .9) within +-.5 keep (0, 1, 1, 0)."""
    log = tensor(-1.2, -0.3, 0.1, 0.9)
    below, above = apart(log, 0.5, 0.5)
    assert (~below & ~above).tolist() == [False, True, True, False]
    for sign in (1.0, -1.0):
        gradient = coefficient(
            lambda x, a=sign: surrogate.token_clip(x, tensor(a, a, a, a), 0.5, 0.5, 0.1),
            log.exp().tolist(),
        )
        pull = [0.2 * x for x in log.tolist()]
        push = [0.0, -sign * math.exp(-0.3), -sign * math.exp(0.1), 0.0]
        assert gradient == pytest.approx([a + b for a, b in zip(pull, push, strict=True)])
    value = surrogate.token_clip(tensor(0.9, 0.1), tensor(2, 2), 0.5, 0.5, 0.1)
    assert value.tolist() == pytest.approx([0.081 - 2 * math.exp(0.5), 0.001 - 2 * math.exp(0.1)])


def test_token_clip_sides():
    below, above = apart(tensor(-0.3, 0.3), 0.2, 0.4)
    assert (below.tolist(), above.tolist()) == ([True, False], [False, False])
    gradient = coefficient(
        lambda x: surrogate.token_clip(x, tensor(1, 1), 0.2, 0.4, 1e-9), [math.exp(-0.3), 1.35]
    )
    assert gradient == pytest.approx([0.0, -1.35], abs=1e-8)


# -- invariants ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", RATIOS)
def test_on_policy_every_surrogate_is_reinforce(case):
    """algorithms.md 11.1, through the logits of four sampled tokens."""
    torch.manual_seed(0)
    logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    current = logits.log_softmax(-1)[range(4), [0, 3, 3, 1]]
    advantage = tensor(1.5, -0.5, 0.0, -2.0)
    mask = torch.ones(4, dtype=torch.bool)
    log = ratio.update(current=current, old=current, mask=mask)
    (found,) = torch.autograd.grad(
        loss(case, log, current, advantage).sum(), logits, retain_graph=True
    )
    (reinforce,) = torch.autograd.grad((-advantage * current).sum(), logits)
    assert torch.allclose(found, reinforce, rtol=0, atol=1e-14)


@pytest.mark.parametrize("case", NUMBERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
def test_extreme_ratios_stay_finite(case, dtype, advantage):
    """Log-ratios of +-50 beside masked positions that hold NaN and infinities."""
    current = torch.tensor([-0.5, -50.5, math.nan, -math.inf], dtype=dtype, requires_grad=True)
    old = torch.tensor([-50.5, -0.5, -1.0, math.nan], dtype=dtype)
    mask = torch.tensor([True, True, False, False])
    log = ratio.update(current=current, old=old, mask=mask)
    weight = torch.tensor([advantage] * 2 + [0.0] * 2, dtype=dtype)
    terms = loss(case, log, ratio.masked(current, mask), weight)
    (gradient,) = torch.autograd.grad(terms.sum(), current)
    assert torch.isfinite(terms).all() and torch.isfinite(gradient).all()
    assert terms.dtype == dtype
    assert gradient[2:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("case", RATIOS)
def test_masked_positions_add_nothing(case):
    """NaN behind the mask changes neither the other terms nor adds to the sum."""
    terms = []
    for junk in (math.nan, -7.0):
        current, old = tensor(-1.0, junk), tensor(-1.2, junk)
        mask = torch.tensor([True, False])
        log = ratio.update(current=current, old=old, mask=mask)
        terms.append(loss(case, log, ratio.masked(current, mask), tensor(0.7, 0.0)))
    assert torch.equal(*terms)
    assert terms[0][1] == 0.0


@pytest.mark.parametrize("case", RATIOS)
def test_a_nan_that_counts_is_never_hidden(case):
    log, current = tensor(math.nan, 0.0), tensor(math.nan, -1.0)
    terms = loss(case, log, current, tensor(1.0, 1.0))
    assert terms.isnan().tolist() == [True, False]


@pytest.mark.parametrize("case", RATIOS)
@pytest.mark.parametrize("advantage", [1.3, -0.7])
@pytest.mark.parametrize("rho", [0.55, 0.75, 0.9, 1.0, 1.15, 1.35, 3.3])
def test_gradients_agree_with_finite_differences(case, advantage, rho):
    """With detached factors frozen at the point: they are weights, not functions of it."""
    log, current, weight = tensor(rho).log().requires_grad_(), tensor(-1.0), tensor(advantage)
    if "current" not in entry(case).inputs or case == "difference":
        frozen = (current, weight)
        assert torch.autograd.gradcheck(
            lambda x: loss(case, x, *frozen), (log,), eps=1e-6, atol=1e-8
        )
        return
    moving = tensor(-1.0).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: loss(case, log.detach(), x, weight), (moving,), eps=1e-6, atol=1e-8
    )
    value = loss(case, log, moving, weight)
    assert torch.autograd.grad(value.sum(), log, allow_unused=True) == (None,)


def test_dis_through_agrees_with_finite_differences():
    behaviour = tensor(-1.3, -0.9)
    assert torch.autograd.gradcheck(
        lambda x: surrogate.dis(x - behaviour, x, tensor(1, -1), 0.5, 1.0, through=True),
        (tensor(-1.0, -1.2).requires_grad_(),),
        eps=1e-6,
        atol=1e-8,
    )


@pytest.mark.parametrize("case", RATIOS)
def test_the_advantage_carries_no_gradient(case):
    advantage = tensor(1.0, -1.0).requires_grad_()
    log, current = tensor(0.1, -0.1).requires_grad_(), tensor(-1.0, -1.0).requires_grad_()
    value = loss(case, log, current, advantage)
    assert torch.autograd.grad(value.sum(), advantage, allow_unused=True) == (None,)


@pytest.mark.parametrize("case", RATIOS)
def test_idle_means_no_gradient_at_a_zero_advantage(case):
    current = tensor(-1.0, -2.0).requires_grad_()
    log = current - tensor(-1.4, -1.5)
    (gradient,) = torch.autograd.grad(loss(case, log, current, tensor(0, 0)).sum(), current)
    assert bool((gradient == 0).all()) == entry(case).idle


@pytest.mark.parametrize("case", [c for c in RATIOS if entry(c).sides])
def test_sides_are_where_the_gradient_may_stop(case):
    """Inside the bounds the coefficient is exactly plain's; a stopped token is outside them."""
    rho, stopped = torch.linspace(0.05, 8, 160, dtype=torch.float64), 0
    for sign in (1.0, -1.0):
        current = (0.1 * rho).log().requires_grad_()  # mu = .1
        log = current - math.log(0.1)
        weight = torch.full_like(rho, sign)
        (found,) = torch.autograd.grad(loss(case, log, current, weight).sum(), current)
        penalty = 0.2 * log.detach() if case == "token_clip" else 0.0
        tensors = {"log_ratio": log, "current": current, "advantage": weight}
        below, above = entry(case).outside(tensors, NUMBERS[case])
        changed = (found - penalty + sign * rho).abs() > 1e-9
        if "dual" not in case:
            assert not (changed & ~below & ~above).any()
        assert above.any() and not (below & above).any()
        stopped += int(changed.sum())
    assert stopped


@pytest.mark.parametrize(
    "call",
    [
        lambda x: surrogate.clip(x, x, 0.2, 0.2, dual=1.0),
        lambda x: surrogate.sapo(x, x, 0.0, 1.0),
        lambda x: surrogate.sapo(x, x, 1.0, -1.0),
        lambda x: surrogate.squared(x, x, 0.0),
        lambda x: surrogate.token_clip(x, x, 0.5, 0.5, -0.1),
        lambda x: surrogate.token_clip(x, x, -0.5, 0.5, 0.1),
        lambda x: surrogate.token_clip(x, x, 0.5, -0.1, 0.1),
    ],
)
def test_meaningless_numbers_are_refused(call):
    with pytest.raises(ValueError):
        call(tensor(0.0))
