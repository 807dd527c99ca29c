import pytest
import torch

from hexad.update import surrogate


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def clip_and_gradient(rho, advantage, low, high):
    log = tensor(*rho).log().requires_grad_()
    loss = surrogate.clip(log, tensor(*advantage), low, high)
    (gradient,) = torch.autograd.grad(loss.sum(), log)
    return (-loss).tolist(), gradient.tolist()


def test_ppo_golden_numbers():
    objective, gradient = clip_and_gradient([1.3, 0.7, 1.3, 0.7], [1, 1, -1, -1], 0.2, 0.2)
    assert objective == pytest.approx([1.2, 0.7, -1.3, -0.8])
    assert [g == 0 for g in gradient] == [True, False, False, True]
    assert gradient[1:3] == pytest.approx([-0.7, 1.3])


def test_unequal_bounds():
    """algorithms.md 6.1, epsilon .2 / .28."""
    objective, gradient = clip_and_gradient(
        [1.5, 0.5, 1.5, 0.5, 4.0, 1.25], [1, 1, -1, -1, -1, 1], 0.2, 0.28
    )
    assert objective == pytest.approx([1.28, 0.5, -1.5, -0.8, -4.0, 1.25])
    assert [g == 0 for g in gradient] == [True, False, False, True, False, False]


def test_sides_are_told_apart():
    below, above = surrogate.outside(tensor(0.79, 0.81, 1.27, 1.29).log(), 0.2, 0.28)
    assert below.tolist() == [True, False, False, False]
    assert above.tolist() == [False, False, False, True]


@pytest.mark.parametrize("name", ["plain", "clip"])
def test_on_policy_both_are_reinforce(name):
    """algorithms.md 11.1: at rho = 1 the gradient is -A grad log pi."""
    log, advantage = tensor(0, 0, 0).requires_grad_(), tensor(1.5, -0.5, 0.0)
    bounds = (0.2, 0.2) if name == "clip" else ()
    loss = getattr(surrogate, name)(log, advantage, *bounds)
    (gradient,) = torch.autograd.grad(loss.sum(), log)
    assert gradient.tolist() == [-1.5, 0.5, 0.0]
    assert (-loss).tolist() == [1.5, -0.5, 0.0]


@pytest.mark.parametrize("advantage", [1.3, -0.7, 0.0])
@pytest.mark.parametrize("rho", [0.5, 0.75, 0.9, 1.0, 1.15, 1.35, 3.0])
def test_gradients_agree_with_finite_differences(advantage, rho):
    log = tensor(rho).log().requires_grad_()
    weight = tensor(advantage)
    functions = (
        lambda x: surrogate.plain(x, weight),
        lambda x: surrogate.clip(x, weight, 0.2, 0.28),
        lambda x: surrogate.nll(x),
    )
    for function in functions:
        assert torch.autograd.gradcheck(function, (log,), eps=1e-6, atol=1e-8)


def test_the_advantage_carries_no_gradient():
    advantage = tensor(1.0).requires_grad_()
    loss = surrogate.plain(tensor(0.1).requires_grad_(), advantage)
    assert torch.autograd.grad(loss.sum(), advantage, allow_unused=True) == (None,)


def test_the_surrogate_is_pessimistic():
    log = torch.linspace(-1.5, 1.5, 61, dtype=torch.float64)
    for advantage in (torch.ones_like(log), -torch.ones_like(log)):
        clipped = surrogate.clip(log, advantage, 0.2, 0.28)
        assert (clipped >= surrogate.plain(log, advantage) - 1e-12).all()


def test_imitation_is_the_negative_log_probability():
    assert surrogate.nll(tensor(-0.5, -2.0)).tolist() == [0.5, 2.0]
