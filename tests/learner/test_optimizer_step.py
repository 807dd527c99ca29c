import pytest
import torch
from torch import nn

from hexad.learner.optimizer import Stepper, learning_rate
from hexad.recipe.update_axis import OptimizerSpec


def spec(**options):
    return OptimizerSpec(**{"lr": 0.1, "clip_norm": None, "schedule": "constant", **options})


@pytest.mark.parametrize(
    ("schedule", "progress", "expected"),
    [
        ("constant", 0.7, 1.0),
        ("linear", 0.0, 1.0),
        ("linear", 0.5, 0.6),
        ("linear", 1.0, 0.2),
        ("cosine", 0.5, 0.6),
        ("cosine", 1.0, 0.2),
        ("linear", 1.5, 0.2),
    ],
)
def test_schedules_fall_to_the_floor(schedule, progress, expected):
    rate = learning_rate(spec(lr=1.0, schedule=schedule, floor=0.2), 100, progress)
    assert rate == pytest.approx(expected)


def test_warm_up_is_linear_in_optimiser_steps():
    rates = [learning_rate(spec(lr=1.0, warmup_steps=4), steps, 0.0) for steps in range(6)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def module(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Linear(3, 2).to(dtype)


def push(stepper, model, scale=1.0):
    stepper.zero()
    (scale * model(torch.ones(1, 3, dtype=model.weight.dtype))).sum().backward()
    norm = stepper.norm()
    stepper.step(norm, 0.0)
    return norm


def test_the_first_step_of_adam_by_hand():
    """Moments are corrected: the first step is lr * sign of the gradient."""
    model = module()
    before = model.weight.detach().clone()
    push(Stepper(model, spec(eps=1e-12)), model)
    assert torch.allclose(before - model.weight, torch.full_like(before, 0.1))


def test_decay_is_on_matrices_only():
    model = module()
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    stepper = Stepper(model, spec(weight_decay=0.5))
    stepper.zero()
    stepper.step(stepper.norm(), 0.0)
    assert torch.allclose(model.weight, weight * (1 - 0.1 * 0.5))
    assert torch.equal(model.bias, bias)


def test_clipping_scales_the_whole_gradient_to_the_limit():
    model = module()
    stepper = Stepper(model, spec(clip_norm=0.5))
    norm = push(stepper, model)
    assert float(norm) == pytest.approx(8**0.5)
    assert float(stepper.norm()) == pytest.approx(0.5)
    push(stepper, model, scale=0.01)
    assert float(stepper.norm()) == pytest.approx(0.01 * 8**0.5)


def test_sixteen_bit_weights_have_a_float32_master():
    """Steps far below the weights' resolution add up instead of vanishing."""
    model = module(torch.bfloat16)
    with torch.no_grad():
        model.weight.fill_(1.0)
    stepper = Stepper(model, spec(lr=1e-4))
    for _ in range(100):
        push(stepper, model)
    assert stepper.masters["weight"].dtype == torch.float32
    assert stepper.masters["weight"].mean().item() == pytest.approx(0.99, abs=1e-4)
    assert model.weight.float().mean().item() == pytest.approx(0.99, abs=0.004)
    assert model.weight.grad is None


def test_micro_batch_gradients_of_sixteen_bit_weights_add_in_float32():
    model = module(torch.bfloat16)
    stepper = Stepper(model, spec())
    stepper.zero()
    for scale in (256.0, 1.0):
        (scale * model.weight).sum().backward()
    assert stepper.masters["weight"].grad.unique().tolist() == [257.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_state_continues_bit_for_bit(dtype):
    straight, resumed = module(dtype), module(dtype)
    one, two = Stepper(straight, spec()), Stepper(resumed, spec())
    for _ in range(3):
        push(one, straight)
    saved = one.state()
    push(one, straight)
    two.restore(saved)
    push(two, resumed)
    assert torch.equal(straight.weight, resumed.weight)
    assert two.steps == one.steps == 4
    for key, value in one.state().items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(two.state()[key])), key


def test_a_fresh_state_restores_a_used_stepper():
    model = module()
    stepper = Stepper(model, spec())
    fresh = stepper.state()
    push(stepper, model)
    used = model.weight.detach().clone()
    stepper.restore(fresh)
    push(stepper, model)
    assert torch.equal(model.weight, used)
