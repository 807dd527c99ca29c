import math
from dataclasses import replace

import pytest
import torch

from hexad.contract.faults import ContractViolation
from hexad.update import surrogate
from hexad.update.entropy import entropy
from hexad.update.positive import positive
from hexad.update.reduce import Index


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_entropy_of_the_whole_vocabulary():
    """ln 4 when flat, 0 when certain, and .6, .3, .1 by hand."""
    rows = torch.stack(
        [tensor(0.25, 0.25, 0.25, 0.25), tensor(1, 0, 0, 0), tensor(0.6, 0.3, 0.1, 0)]
    )
    assert entropy(rows.log()).tolist() == pytest.approx([math.log(4), 0.0, 0.897946], abs=5e-7)


def masked_log_softmax(logits, support):
    return torch.where(support, logits, -torch.inf).log_softmax(-1)


def test_entropy_over_the_support_only():
    logits = tensor(1.0, 2.0, 0.0, 5.0).unsqueeze(0).requires_grad_()
    support = torch.tensor([[True, True, True, False]])
    found = entropy(masked_log_softmax(logits, support))
    alone = logits[:, :3].log_softmax(-1)
    assert found.item() == pytest.approx(-(alone.exp() * alone).sum().item())
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    p, log = alone.exp(), alone
    expected = (-p * (log + found)).detach()
    assert torch.allclose(gradient[:, :3], expected) and gradient[0, 3] == 0.0
    assert torch.isfinite(gradient).all()


def test_entropy_agrees_with_finite_differences():
    support = torch.tensor([[True, False, True], [True, True, True]])
    logits = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda z: entropy(masked_log_softmax(z, support)), (logits,), eps=1e-6, atol=1e-8
    )


def test_a_bonus_spreads_the_policy():
    logits = tensor(2.0, 0.0).unsqueeze(0).requires_grad_()
    (gradient,) = torch.autograd.grad(-entropy(logits.log_softmax(-1)).sum(), logits)
    assert gradient[0, 0] > 0 > gradient[0, 1]


@pytest.mark.parametrize("rows", [[[2.0, 1.0]], [[-1.0, -1.0]], [[math.nan, 0.0]]])
def test_rows_that_are_no_distribution_are_refused(rows):
    with pytest.raises(ContractViolation):
        entropy(torch.tensor(rows))


def index(episode, weight):
    ids = torch.tensor(episode)
    weights = torch.tensor(weight)
    return Index(ids, torch.zeros_like(ids), ids, torch.zeros_like(ids), weights > 0, weights)


def test_positive_examples_are_a_token_mean_over_the_correct():
    """Episodes 0 and 2 are correct: 1 + 2 tokens, one more is an observation."""
    place = index([0, 1, 1, 2, 2, 2], [1.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    correct = torch.tensor([True, False, False, True, True, True])
    share = positive(place, correct)
    assert share.tolist() == pytest.approx([1 / 3, 0, 0, 1 / 3, 0, 1 / 3])
    current = tensor(-1.0, -9.0, -9.0, -2.0, -9.0, -3.0)
    assert float((share * surrogate.nll(current)).sum()) == pytest.approx(2.0)


def test_no_correct_episode_gives_exactly_nothing():
    place = index([0, 1], [1.0, 0.0])
    assert positive(place, torch.tensor([False, False])).tolist() == [0.0, 0.0]
    assert positive(place, torch.tensor([False, True])).tolist() == [0.0, 0.0]


def test_faulted_tokens_and_tokens_without_weight_are_no_example():
    """A faulted episode keeps its weights but is not valid; a valid token may weigh nothing."""
    place = index([0, 1, 1], [1.0, 1.0, 1.0])
    place = replace(place, valid=torch.tensor([False, True, True]))
    every = torch.tensor([True, True, True])
    assert positive(place, every).tolist() == [0.0, 0.5, 0.5]
    assert positive(place, torch.tensor([True, False, False])).tolist() == [0.0] * 3
    weightless = replace(place, weight=torch.zeros(3))
    assert positive(weightless, every).tolist() == [0.0] * 3
