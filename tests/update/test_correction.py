import math

import pytest
import torch

from hexad.update import correction, ratio, surrogate
from hexad.update.reduce import Index, Reduction, coefficients
from hexad.update.table import CORRECTIONS
from hexad.update.unit import combine

GOLDEN = torch.tensor([0.2, 1.0, 3.0, 9.0], dtype=torch.float64).log()
"""algorithms.md 6.15, w."""
ONE, EVERY = torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.bool)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def ints(*values):
    return torch.tensor(values, dtype=torch.int64)


# -- numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "weights", "keep"),
    [
        (correction.tis(GOLDEN, 2.0), [0.2, 1, 2, 2], [1, 1, 1, 1]),
        (correction.tis(GOLDEN, math.inf), [0.2, 1, 3, 9], [1, 1, 1, 1]),
        (correction.icepop(GOLDEN, 0.5, 5.0), [0, 1, 3, 0], [0, 1, 1, 0]),
        (correction.mis(GOLDEN, 2.0), [0.2, 1, 0, 0], [1, 1, 0, 0]),
    ],
)
def test_token_rules(found, weights, keep):
    assert found.weight.tolist() == pytest.approx(weights)
    assert found.keep.int().tolist() == keep


def test_icepop_keeps_its_boundary():
    """contract.md 6.5: closed, where DIS is open. Powers of two are exact."""
    found = correction.icepop(tensor(0.5, 2.0, 0.49, 2.01).log(), 0.5, 2.0)
    assert found.weight.tolist() == [0.5, 2.0, 0.0, 0.0]


def test_mis_keeps_its_boundary():
    assert correction.mis(tensor(2.0).log(), 2.0).weight.item() == 2.0


def test_sequence_tis_caps_the_product():
    log, pairs = tensor(2.0, 2.0, 0.5, 3.0).log(), ints(4, 4, 1, 1)
    assert correction.sequence_tis(log, pairs, EVERY, 3.0).weight.tolist() == pytest.approx(
        [3.0, 3.0, 1.5, 1.5]
    )


def test_mis_of_a_sequence():
    log = combine(tensor(2.0, 2.0, 0.5, 3.0).log(), ints(4, 4, 1, 1), EVERY, "sum")
    assert correction.mis(log, 3.0).weight.tolist() == pytest.approx([0, 0, 1.5, 1.5])


def test_geometric_does_not_grow_with_length():
    log = torch.full((110,), math.log(1.1), dtype=torch.float64)
    units = torch.cat([torch.zeros(10), torch.ones(100)]).long()
    every = torch.ones(110, dtype=torch.bool)
    assert correction.geometric(log, units, every, 0.9, 1.2).weight.tolist() == [1.0] * 110
    assert not correction.geometric(log, units, every, 0.9, 1.09).keep.any()
    assert not correction.geometric(log, units, every, 1.11, 1.2).keep.any()


def test_geometric_is_closed():
    found = correction.geometric(tensor(2.0, 0.5, 1.0, 4.0).log(), ints(0, 1, 2, 3), EVERY, 0.5, 2)
    assert found.keep.tolist() == [True, True, True, False]


def test_k3_rejects_by_the_mean():
    """(w - 1) - log w at w = 3 is .901388 and at 1 it is 0: mean .450694."""
    log, pairs = tensor(3.0, 1.0, 1.0, 1.0).log(), ints(0, 0, 1, 1)
    assert correction.k3(log, pairs, EVERY, 0.4507).keep.tolist() == [True] * 4
    found = correction.k3(log, pairs, EVERY, 0.4506)
    assert found.keep.tolist() == [False, False, True, True]
    assert found.weight.tolist() == [0.0, 0.0, 1.0, 1.0]


def test_opsm_sign():
    """algorithms.md 6.15: old (-1, -1.2, -.8), new (-1.1, -1.5, -.9): mean .1667."""
    old, new = tensor(-1.0, -1.2, -0.8), tensor(-1.1, -1.5, -0.9)
    zeros, every = ints(0, 0, 0), torch.ones(3, dtype=torch.bool)

    def keeps(log, advantage, high):
        sign = torch.full((3,), advantage, dtype=torch.float64)
        return correction.opsm(log, sign, zeros, every, high).keep.tolist()

    assert keeps(new - old, -1.0, 0.16) == [False] * 3
    assert keeps(new - old, -1.0, 0.17) == [True] * 3
    assert keeps(new - old, 1.0, 0.16) == [True] * 3
    assert keeps(new - old, 0.0, 0.16) == [True] * 3
    assert keeps(old - new, -1.0, 0.16) == [True] * 3


@pytest.mark.parametrize(("advantage", "expected"), [(1.0, 1.4657), (-1.0, -1.6487)])
def test_decoupled_ppo(advantage, expected):
    """algorithms.md 3.1: log mu -1.2, log old -1.0, log pi -.7."""
    mask = torch.tensor([True])
    mu, old, pi = tensor(-1.2), tensor(-1.0), tensor(-0.7).requires_grad_()
    weight = correction.tis(ratio.proximal(old=old, behaviour=mu, mask=mask), math.inf).weight
    assert weight.item() == pytest.approx(1.2214, abs=5e-5)
    update = ratio.update(current=pi, old=old, mask=mask)
    loss = weight * surrogate.clip(update, tensor(advantage), 0.2, 0.2)
    assert -loss.item() == pytest.approx(expected, abs=5e-5)
    direct = ratio.direct(current=pi, behaviour=mu, mask=mask)
    ordinary = -surrogate.clip(direct, tensor(1.0), 0.2, 0.2)
    assert ordinary.item() == pytest.approx(1.2)


def test_a_gate_on_the_total_misses_what_cancels():
    """algorithms.md 3.3: engine .4066 and staleness 2.4596 multiply to 1."""
    log = tensor(math.log(0.4066), math.log(2.4596), math.log(0.4066) + math.log(2.4596))
    keep = correction.icepop(log, 0.5, 2.0).keep
    assert keep.tolist() == [False, False, True]


def test_missing_old_logits_factors():
    """algorithms.md 3.3: mu -1.00, sampled -1.10, current -.80."""
    mask = torch.tensor([True])
    mu, sampled, now = tensor(-1.0), tensor(-1.1), tensor(-0.8)
    logs = (
        ratio.engine(sampled=sampled, behaviour=mu, mask=mask),
        ratio.staleness(old=now, sampled=sampled, mask=mask),
        ratio.direct(current=now, behaviour=mu, mask=mask),
    )
    assert [log.exp().item() for log in logs] == pytest.approx([0.9048, 1.3499, 1.2214], abs=5e-5)


# -- invariants ------------------------------------------------------------------------------


def cases(log, advantage, units, counted):
    return {
        "tis": correction.tis(log, 2.0),
        "icepop": correction.icepop(log, 0.5, 5.0),
        "mis": correction.mis(log, 2.0),
        "sequence_tis": correction.sequence_tis(log, units, counted, 3.0),
        "geometric": correction.geometric(log, units, counted, 0.9, 1.1),
        "k3": correction.k3(log, units, counted, 0.01),
        "opsm": correction.opsm(log, advantage, units, counted, 0.1),
    }


def test_the_table_is_covered():
    assert set(cases(GOLDEN, -GOLDEN, ONE, EVERY)) == set(CORRECTIONS)


def test_the_same_policy_is_corrected_by_exactly_one():
    for name, found in cases(torch.zeros(4), -torch.ones(4), ONE, EVERY).items():
        assert found.weight.tolist() == [1.0] * 4, name
        assert found.keep.all(), name


def test_nothing_carries_a_gradient():
    log, advantage = GOLDEN.clone().requires_grad_(), tensor(1, -1, 1, -1).requires_grad_()
    for name, found in cases(log, advantage, ONE, EVERY).items():
        assert not found.weight.requires_grad, name


def test_dropped_is_weight_zero_and_extremes_are_finite():
    log = torch.tensor([50.0, -50.0, 1e4, -1e4])
    units = ints(0, 1, 2, 3)
    uncapped = correction.tis(log, math.inf).weight
    assert torch.isfinite(uncapped).all()
    for name, found in cases(log, -torch.ones(4), units, EVERY).items():
        assert torch.isfinite(found.weight).all(), name
        assert found.weight.dtype == torch.float32 and found.keep.dtype == torch.bool
        assert (found.weight[~found.keep] == 0).all(), name
        weighs = CORRECTIONS[name].weighs
        assert weighs or (found.weight[found.keep] == 1).all(), name


def test_unit_rules_ignore_tokens_that_are_no_decision():
    """Their junk changes no verdict, and the verdict holds at them too."""
    counted = torch.tensor([True, True, True, False])
    plain = torch.tensor([0.01, -0.01, 0.02, 0.0]).double()
    junk = torch.tensor([0.01, -0.01, 0.02, math.nan]).double()
    for name in ("sequence_tis", "geometric", "k3", "opsm"):
        clean, dirty = (cases(log, -torch.ones(4), ONE, counted)[name] for log in (plain, junk))
        assert torch.equal(clean.weight, dirty.weight), name
        assert clean.keep.unique().numel() == 1, name


def test_a_nan_that_counts_never_passes_as_a_weight():
    log = tensor(math.nan, 0.0, 0.0, 0.0)
    for name, found in cases(log, -torch.ones(4), ints(0, 1, 2, 3), EVERY).items():
        first = found.weight[0]
        assert first.isnan() if CORRECTIONS[name].weighs else first == 0, name
        assert found.weight[1:].tolist() == [1.0] * 3, name


def test_a_dropped_token_stays_in_the_denominator():
    """algorithms.md 11.6: of two tokens with term -1 one is dropped: -1/2, not -1."""
    found = correction.icepop(tensor(1.0, 9.0).log(), 0.5, 5.0)
    pair, weights = ints(0, 0), torch.ones(2)
    share = coefficients(Index(pair, pair, pair, pair, weights > 0, weights), Reduction("episode"))
    loss = (share * found.weight * surrogate.plain(tensor(0.0, 0.0), tensor(1.0, 1.0))).sum()
    assert loss.item() == pytest.approx(-0.5)


def test_micro_batches_of_whole_units_change_nothing():
    torch.manual_seed(2)
    log, advantage = 0.1 * torch.randn(40).double(), torch.randn(40).double()
    units, counted = torch.randint(0, 6, (40,)), torch.rand(40) < 0.8
    whole = cases(log, advantage, units, counted)
    for name in units.unique():
        part = units == name
        alone = cases(log[part], advantage[part], units[part], counted[part])
        for rule, found in alone.items():
            assert torch.allclose(found.weight, whole[rule].weight[part]), rule


@pytest.mark.parametrize(
    "call",
    [
        lambda: correction.tis(GOLDEN, 0.0),
        lambda: correction.mis(GOLDEN, -1.0),
        lambda: correction.icepop(GOLDEN, 2.0, 0.5),
        lambda: correction.icepop(GOLDEN, 2.0, 2.0),
        lambda: correction.geometric(GOLDEN, ONE, EVERY, 1.1, 0.9),
        lambda: correction.k3(GOLDEN, ONE, EVERY, 0.0),
        lambda: correction.opsm(GOLDEN, GOLDEN, ONE, EVERY, math.nan),
    ],
)
def test_meaningless_bounds_are_refused(call):
    with pytest.raises(ValueError):
        call()
