import math

import pytest
import torch

from hexad.update import ratio
from hexad.update.anchor import ewma, interpolated


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def ints(*values):
    return torch.tensor(values, dtype=torch.int64)


def old(version, anchor, current=-0.7, behaviour=-1.2):
    count = len(version)
    return interpolated(
        current=torch.full((count,), current, dtype=torch.float64),
        behaviour=torch.full((count,), behaviour, dtype=torch.float64),
        version=ints(*version),
        anchor=anchor,
        mask=torch.ones(count, dtype=torch.bool),
    ).tolist()


def test_a3po_worked_example():
    """algorithms.md 3.2: v_mu = 3, v_theta = 7, so the anchor is 6: alpha .75, log -.825."""
    assert old([3], 6) == pytest.approx([-0.825])


def test_data_of_the_anchor_has_old_equal_to_behaviour():
    """d = 1: alpha = 0, exactly; and the older the data, the closer to the learner."""
    found = old([6, 5, 4, 0], 6)
    assert found[0] == -1.2
    alphas = [(log + 1.2) / 0.5 for log in found]
    assert alphas == pytest.approx([0, 1 / 2, 2 / 3, 6 / 7])


def test_a_token_from_the_future_is_refused():
    with pytest.raises(ValueError, match="later version"):
        old([7], 6)


def test_masked_tokens_are_inert_and_no_gradient_flows():
    current = tensor(-0.7, math.nan).requires_grad_()
    behaviour = tensor(-1.2, math.nan)
    mask = torch.tensor([True, False])
    found = interpolated(
        current=current, behaviour=behaviour, version=ints(3, -1), anchor=6, mask=mask
    )
    assert found.tolist() == pytest.approx([-0.825, 0.0]) and not found.requires_grad
    future = interpolated(
        current=current, behaviour=behaviour, version=ints(3, 99), anchor=6, mask=mask
    )
    assert torch.equal(found, future)


def test_interpolation_keeps_the_direct_ratio_whole():
    """direct = update * proximal, whatever stands between."""
    mask = torch.tensor([True])
    now, mu = tensor(-0.7), tensor(-1.2)
    between = interpolated(current=now, behaviour=mu, version=ints(2), anchor=4, mask=mask)
    update = ratio.update(current=now, old=between, mask=mask)
    proximal = ratio.proximal(old=between, behaviour=mu, mask=mask)
    assert (update + proximal).item() == pytest.approx(0.5)
    assert proximal.item() == pytest.approx(2 / 3 * 0.5)


def test_ewma_worked_example():
    """algorithms.md 3.3: decay .9 of 0, 1, 2 gives 0, .5263, 1.0701."""
    average, total = tensor(0.0), 1.0
    seen = []
    for value in (1.0, 2.0):
        average, total = ewma(average, total, tensor(value), decay=0.9)
        seen.append(average.item())
    assert seen == pytest.approx([0.5263, 1.0701], abs=5e-5)


def test_ewma_is_the_weighted_mean_of_all():
    values = torch.randn(6, 3, dtype=torch.float64)
    average, total = values[0], 1.0
    for value in values[1:]:
        average, total = ewma(average, total, value, decay=0.7)
    weights = 0.7 ** torch.arange(5, -1, -1).double()
    assert torch.allclose(average, (weights[:, None] * values).sum(0) / weights.sum())
    assert total == pytest.approx(float(weights.sum()))


def test_ewma_without_decay_is_the_newest():
    assert ewma(tensor(5.0), 1.0, tensor(2.0), decay=0.0)[0].item() == 2.0
    for decay in (1.0, -0.1):
        with pytest.raises(ValueError):
            ewma(tensor(5.0), 1.0, tensor(2.0), decay=decay)
