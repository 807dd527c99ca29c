"""Every estimator's value and gradient, by enumeration of all actions (algorithms.md 9, O11)."""

import math

import pytest
import torch

from hexad.update import kl, ratio

PI, REF, MU = (0.6, 0.3, 0.1), (0.5, 0.3, 0.2), (0.4, 0.4, 0.2)
TRUE = [0.085346, -0.012023, -0.073323]
FORWARD = [0.1, 0.0, -0.1]


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


class World:
    """One state whose logits are ``log pi``, and x at each of its actions."""

    def __init__(self, pi, ref):
        self.logits = tensor(*pi).log().requires_grad_()
        self.current = self.logits.log_softmax(-1)
        self.mask = torch.ones(len(pi), dtype=torch.bool)
        self.x = ratio.anchored(current=self.current, reference=tensor(*ref).log(), mask=self.mask)

    def mean(self, sampling, terms):
        """Value and logit gradient of the expected loss; the sampling is no function of pi."""
        loss = (tensor(*sampling) * terms).sum()
        (gradient,) = torch.autograd.grad(loss, self.logits, allow_unused=True, retain_graph=True)
        return loss.item(), [0.0] * len(sampling) if gradient is None else gradient.tolist()

    def direct(self, mu):
        return ratio.direct(current=self.current, behaviour=tensor(*mu).log(), mask=self.mask)


def near(*values):
    return pytest.approx(list(values), abs=5.1e-7)


# -- on policy -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "gradient"),
    [
        ("k1", 0.040078, [0.0, 0.0, 0.0]),
        ("k2", 0.033995, TRUE),
        ("k3", 0.040078, FORWARD),
        ("k3_straight", 0.040078, TRUE),
    ],
)
def test_on_policy(name, value, gradient):
    world = World(PI, REF)
    found, slope = world.mean(PI, kl.ESTIMATORS[name](world.x))
    assert found == pytest.approx(value, abs=5.1e-7)
    assert slope == near(*gradient)


def test_the_expected_gradients_are_those_of_the_two_divergences():
    world = World(PI, REF)
    reverse = (world.current.exp() * world.x).sum()
    forward = (tensor(*REF) * -world.x).sum()
    assert reverse.item() == pytest.approx(0.040078, abs=5.1e-7)
    assert forward.item() == pytest.approx(0.047469, abs=5.1e-7)
    for loss, expected in ((reverse, TRUE), (forward, FORWARD)):
        (slope,) = torch.autograd.grad(loss, world.logits, retain_graph=True)
        assert slope.tolist() == near(*expected)


def test_the_variances():
    world, pi = World(PI, REF), tensor(*PI)
    for name, expected in (("k1", 0.0664), ("k3", 0.0080)):
        terms = kl.ESTIMATORS[name](world.x.detach())
        variance = (pi * terms**2).sum() - (pi * terms).sum() ** 2
        assert variance.item() == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("name", "value", "slope"),
    [
        ("k1", 0.223144, 0.0),
        ("k2", 0.2651, -0.346574),
        ("k3", 0.223144, -0.3),
        ("k3_straight", 0.223144, -0.346574),
    ],
)
def test_field_case_o11(name, value, slope):
    world = World((0.5, 0.5), (0.8, 0.2))
    found, gradient = world.mean((0.5, 0.5), kl.ESTIMATORS[name](world.x))
    assert found == pytest.approx(value, abs=5e-5)
    assert gradient == near(slope, -slope)


@pytest.mark.parametrize("name", ["k2", "k3", "k3_straight"])
def test_descent_comes_closer_to_the_reference(name):
    """O11: a step of .5 on the true gradient takes KL from .2231 to .1190."""
    world = World((0.5, 0.5), (0.8, 0.2))
    _, gradient = world.mean((0.5, 0.5), kl.ESTIMATORS[name](world.x))
    moved = (world.logits.detach() - 0.5 * tensor(*gradient)).log_softmax(-1)
    after = (moved.exp() * (moved - tensor(0.8, 0.2).log())).sum().item()
    assert after < 0.2231
    if name != "k3":
        assert after == pytest.approx(0.1190, abs=5e-5)


# -- off policy ------------------------------------------------------------------------------


def test_without_a_weight_both_are_biased():
    world = World(PI, REF)
    assert world.mean(MU, kl.k3(world.x))[0] == pytest.approx(0.067633, abs=5.1e-7)
    assert world.mean(MU, kl.k2(world.x))[1] == pytest.approx([0.1123, 0.0197, -0.1321], abs=5e-5)


@pytest.mark.parametrize(
    ("name", "graph", "value", "gradient"),
    [
        ("k1", True, 0.040078, TRUE),
        ("k1", False, 0.040078, [0.0, 0.0, 0.0]),
        ("k2", False, 0.033995, TRUE),
        ("k3", True, 0.040078, TRUE),
        ("k3", False, 0.040078, FORWARD),
        ("k3_straight", False, 0.040078, TRUE),
        (
            "k3_straight",
            True,
            0.040078,
            [2 * a - b for a, b in zip(TRUE, FORWARD, strict=True)],
        ),
    ],
)
def test_weighted(name, graph, value, gradient):
    world = World(PI, REF)
    terms = kl.weighted(kl.ESTIMATORS[name](world.x), world.direct(MU), graph=graph)
    found, slope = world.mean(MU, terms)
    assert found == pytest.approx(value, abs=5.1e-7)
    assert slope == pytest.approx(gradient, abs=1.6e-6)


def test_k2_with_its_weight_in_the_graph_is_the_gradient_of_its_own_value():
    world = World(PI, REF)
    _, slope = world.mean(MU, kl.weighted(kl.k2(world.x), world.direct(MU), graph=True))
    exact = (world.current.exp() * world.x.square() / 2).sum()
    (expected,) = torch.autograd.grad(exact, world.logits)
    assert slope == near(*expected.tolist())
    assert slope != pytest.approx(TRUE, abs=1e-3)


# -- in the reward ---------------------------------------------------------------------------


def test_k1_in_the_reward_has_the_true_gradient():
    """REINFORCE on minus the penalty, enumerated."""
    world = World(PI, REF)
    cost = kl.penalty(
        behaviour=world.current, reference=tensor(*REF).log(), mask=world.mask, coefficient=1.0
    )
    assert not cost.requires_grad
    _, slope = world.mean(PI, cost * world.current)
    assert slope == near(*TRUE)


def test_the_reward_sees_how_an_action_changes_later_states():
    """algorithms.md 9: step 2 costs 0 or .5; the true gradient is .125, in-loss 0."""
    z = tensor(0.0).requires_grad_()
    first = torch.nn.functional.logsigmoid(torch.cat([z, -z]))
    root = (1 + math.sqrt(1 - math.exp(-1))) / 2  # KL((.5, .5) || (root, 1 - root)) = .5
    second, mask = tensor(0.5, 0.5).log(), torch.tensor([True, True])
    later = kl.penalty(
        behaviour=second, reference=tensor(root, 1 - root).log(), mask=mask, coefficient=1.0
    ).mean()
    assert later.item() == pytest.approx(0.5)
    now = kl.penalty(behaviour=first, reference=tensor(0.5, 0.5).log(), mask=mask, coefficient=1.0)
    returns = now + torch.stack([later, torch.zeros(())])
    (slope,) = torch.autograd.grad((0.5 * returns * first).sum(), z, retain_graph=True)
    assert slope.item() == pytest.approx(0.125)
    x = ratio.anchored(current=first, reference=tensor(0.5, 0.5).log(), mask=mask)
    (slope,) = torch.autograd.grad((0.5 * kl.k2(x)).sum(), z)
    assert slope.item() == 0.0


def test_the_penalty_is_subtracted_and_masked():
    cost = kl.penalty(
        behaviour=tensor(-1.0, -2.0, math.nan),
        reference=tensor(-1.5, -1.0, -1.0),
        mask=torch.tensor([True, True, False]),
        coefficient=0.2,
    )
    assert cost.tolist() == pytest.approx([0.1, -0.2, 0.0])


# -- numerics --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", kl.ESTIMATORS)
@pytest.mark.parametrize("graph", [True, False])
def test_extremes_stay_finite_and_masked_positions_inert(name, graph):
    current = torch.tensor([-0.5, -50.5, math.nan], requires_grad=True)
    other = torch.tensor([-50.5, -0.5, -1.0])
    mask = torch.tensor([True, True, False])
    x = ratio.anchored(current=current, reference=other, mask=mask)
    direct = ratio.direct(current=current, behaviour=other, mask=mask)
    terms = kl.weighted(kl.ESTIMATORS[name](x), direct, graph=graph)
    (gradient,) = torch.autograd.grad(terms.sum(), current)
    assert torch.isfinite(terms).all() and torch.isfinite(gradient).all()
    assert terms[2] == 0.0 and gradient[2] == 0.0


@pytest.mark.parametrize("name", ["k2", "k3", "k3_straight"])
@pytest.mark.parametrize("x", [-1e4, -50.0, -19.0, -1.0, 0.0, 1.0, 19.0, 50.0, 1e4])
def test_no_penalty_ever_pushes_further_away(name, x):
    """d/dx has the sign of x, or is 0, also where an exponential would overflow."""
    at = torch.tensor([x], requires_grad=True)
    value = kl.ESTIMATORS[name](at)
    (slope,) = torch.autograd.grad(value.sum(), at)
    assert slope.item() * x >= 0.0
    assert 0.0 <= value.item() < math.inf and math.isfinite(slope.item())
    assert x in (0.0, -50.0, -1e4) or slope.item() != 0.0


def test_only_the_current_policy_moves():
    reference, behaviour = tensor(-1.0).requires_grad_(), tensor(-1.2).requires_grad_()
    current, mask = tensor(-0.8).requires_grad_(), torch.tensor([True])
    x = ratio.anchored(current=current, reference=reference, mask=mask)
    direct = ratio.direct(current=current, behaviour=behaviour, mask=mask)
    loss = kl.weighted(kl.k3(x), direct, graph=True).sum()
    found = torch.autograd.grad(loss, (current, reference, behaviour), allow_unused=True)
    assert found[0] is not None and found[1:] == (None, None)


@pytest.mark.parametrize("name", ["k1", "k2", "k3"])
def test_finite_differences(name):
    at = tensor(-3.0, -0.2, 0.0, 0.4, 5.0).requires_grad_()
    assert torch.autograd.gradcheck(kl.ESTIMATORS[name], (at,), eps=1e-6, atol=1e-7)
