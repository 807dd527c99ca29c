import math

import pytest
import torch

from hexad.contract.faults import ContractViolation
from hexad.update import surrogate, unit
from hexad.update.reduce import Index, Reduction, coefficients

EVERY = torch.ones(4, dtype=torch.bool)
ONE = torch.zeros(4, dtype=torch.int64)
GSPO = (3e-4, 4e-4)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def ints(*values):
    return torch.tensor(values, dtype=torch.int64)


def index(turn, episode, weight=None):
    count = len(turn)
    weights = torch.ones(count) if weight is None else torch.tensor(weight)
    group = torch.zeros(count, dtype=torch.int64)
    return Index(ints(*episode), ints(*turn), ints(*episode), group, weights > 0, weights)


def gradient(loss, log, coefficient):
    return torch.autograd.grad((coefficient * loss).sum(), log)[0]


# -- numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["sequence", "token"])
def test_gspo_worked_example(form):
    """algorithms.md 6.6: s = 1.01511, clipped to 1.0004, though tokens lie on both sides of 1."""
    log = tensor(0.02, -0.01, 0.05, 0.0).requires_grad_()
    whole = unit.combine(log, ONE, EVERY, "mean", form)
    assert whole.exp().tolist() == pytest.approx([1.01511] * 4, abs=5e-6)
    loss = surrogate.clip(whole, tensor(1, 1, 1, 1), *GSPO)
    assert (-loss).tolist() == pytest.approx([1.0004] * 4)
    assert gradient(loss, log, tensor(1, 1, 1, 1)).tolist() == [0.0] * 4
    loss = surrogate.clip(whole, -tensor(1, 1, 1, 1), *GSPO)
    assert loss.tolist() == pytest.approx([1.01511] * 4, abs=5e-6)


@pytest.mark.parametrize("form", ["sequence", "token"])
def test_gspo_coefficient(form):
    """contract.md 2.9: s A / |y| at each token, once the reducer has averaged the episode."""
    log = tensor(0.02, -0.01, 0.05, 0.0).requires_grad_()
    whole = unit.combine(log, ONE, EVERY, "mean", form)
    share = coefficients(index([0, 0, 1, 1], [0, 0, 0, 0]), Reduction("episode"))
    found = gradient(surrogate.plain(whole, tensor(2, 2, 2, 2)), log, share)
    assert found.tolist() == pytest.approx([-2 * 1.015113 / 4] * 4, abs=1e-6)


def test_the_product_grows_with_length_and_the_mean_does_not():
    """algorithms.md 6.15: 1.1 a token gives 2.59 after 10 and 13781 after 100."""
    log = torch.full((110,), math.log(1.1), dtype=torch.float64)
    which = torch.cat([torch.zeros(10), torch.ones(100)]).long()
    every = torch.ones(110, dtype=torch.bool)
    product = unit.combine(log, which, every, "sum").exp()
    assert product[0].item() == pytest.approx(2.5937, abs=1e-4)
    assert product[-1].item() == pytest.approx(13780.6, abs=0.1)
    assert torch.allclose(unit.combine(log, which, every, "mean").exp(), torch.tensor(1.1).double())


def test_turns_of_different_episodes_are_different_units():
    found = unit.of(index([0, 0, 1, 0, 1, 1], [0, 0, 0, 1, 1, 1]), "turn")
    assert len(set(found.tolist())) == 4
    assert found[0] == found[1] and found[4] == found[5] and found[2] != found[4]
    assert unit.of(index([0, 1], [3, 3]), "episode").tolist() == [3, 3]


def test_a_turn_sums_its_own_tokens_only():
    log = tensor(0.1, 0.2, -0.4, 0.3)
    found = unit.combine(log, unit.of(index([0, 0, 1, 1], [0, 0, 0, 0]), "turn"), EVERY, "sum")
    assert found.tolist() == pytest.approx([0.3, 0.3, -0.1, -0.1])


# -- gradient --------------------------------------------------------------------------------


def test_forms_move_what_they_say():
    log = tensor(0.1, 0.2, -0.4, 0.3).requires_grad_()
    pairs = ints(7, 7, 2, 2)
    for how, scale in (("sum", 1.0), ("mean", 0.5)):
        whole = unit.combine(log, pairs, EVERY, how, "sequence")
        first = gradient(whole, log, tensor(1, 0, 0, 0)).tolist()
        assert first == pytest.approx([scale, scale, 0.0, 0.0])
        own = unit.combine(log, pairs, EVERY, how, "token")
        assert torch.allclose(own, whole)
        assert gradient(own, log, tensor(1, 0, 0, 0)).tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("denominator", ["response", "episode"])
@pytest.mark.parametrize(("how", "times"), [("mean", 1.0), ("sum", 3.0)])
def test_the_two_forms_agree_up_to_the_length_of_a_sum(denominator, how, times):
    log = tensor(0.1, 0.2, -0.4).requires_grad_()
    place, every = index([0, 0, 0], [0, 0, 0]), torch.ones(3, dtype=torch.bool)
    share = coefficients(place, Reduction(denominator))
    whole, own = (
        gradient(
            surrogate.plain(unit.combine(log, place.episode, every, how, form), -tensor(2, 2, 2)),
            log,
            share,
        )
        for form in ("sequence", "token")
    )
    assert torch.allclose(whole, times * own)


def test_on_policy_a_unit_is_reinforce():
    """Token form: of each token. Sequence form: of the unit's log-prob, as it is combined."""
    log, advantage = tensor(0, 0, 0, 0).requires_grad_(), tensor(2, 2, -1, -1)
    pairs = ints(0, 0, 1, 1)
    share = coefficients(index([0, 0, 1, 1], [0, 0, 0, 0]), Reduction("response"))
    for case, how, form, times in [
        ("clip", "mean", "token", 1.0),
        ("clip", "sum", "token", 1.0),
        ("clip", "mean", "sequence", 1.0),
        ("clip", "sum", "sequence", 2.0),
        ("plain", "sum", "sequence", 2.0),
    ]:
        bounds = GSPO if case == "clip" else ()
        whole = unit.combine(log, pairs, EVERY, how, form)
        found = gradient(getattr(surrogate, case)(whole, advantage, *bounds), log, share)
        assert torch.allclose(found, -times * share * advantage), (case, how, form)


def test_finite_differences():
    pairs = ints(0, 1, 1, 0)
    for how in ("sum", "mean"):
        assert torch.autograd.gradcheck(
            lambda x, how=how: surrogate.clip(
                unit.combine(x, pairs, EVERY, how), tensor(1, -1, -1, 1), 0.2, 0.2
            ),
            (tensor(0.03, -0.08, 0.02, 0.04).requires_grad_(),),
            eps=1e-6,
            atol=1e-8,
        )


# -- invariants ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["sum", "mean"])
@pytest.mark.parametrize("form", ["sequence", "token"])
def test_order_packing_and_micro_batches_change_nothing(how, form):
    torch.manual_seed(1)
    log = torch.randn(60, dtype=torch.float64)
    which = torch.randint(0, 7, (60,)) * 13 + 5
    counted = torch.rand(60) < 0.7
    whole = unit.combine(log, which, counted, how, form)
    order = torch.randperm(60)
    shuffled = unit.combine(log[order], which[order], counted[order], how, form)
    assert torch.allclose(shuffled, whole[order], atol=1e-14)
    for name in which.unique():
        part = which == name
        alone = unit.combine(log[part], which[part], counted[part], how, form)
        assert torch.allclose(alone, whole[part], atol=1e-14)


def test_tokens_that_are_no_decision_enter_neither_sum_nor_length():
    log = tensor(0.1, 0.3, 9.0, math.nan).requires_grad_()
    counted = torch.tensor([True, True, False, False])
    for how, expected in (("sum", 0.4), ("mean", 0.2)):
        whole = unit.combine(log, ONE, counted, how)
        assert whole.tolist() == pytest.approx([expected] * 4)
        found = gradient(whole, log, tensor(1, 1, 1, 1))
        assert found[2:].tolist() == [0.0, 0.0] and torch.isfinite(found).all()


def test_a_unit_without_a_decision_has_ratio_one():
    counted = torch.tensor([False, False, True, True])
    log = tensor(5.0, 6.0, 0.1, 0.2).requires_grad_()
    for how in ("sum", "mean"):
        whole = unit.combine(log, ints(0, 0, 1, 1), counted, how)
        assert whole[:2].tolist() == [0.0, 0.0]
        assert torch.isfinite(gradient(whole, log, tensor(1, 1, 1, 1))).all()


def test_no_tokens_at_all():
    empty = torch.zeros(0)
    assert unit.combine(empty, empty.long(), empty.bool(), "mean").shape == (0,)


def test_one_nan_spoils_its_unit_and_no_other():
    found = unit.combine(tensor(math.nan, 0.1, 0.2, 0.3), ints(0, 0, 1, 1), EVERY, "mean")
    assert found.isnan().tolist() == [True, True, False, False]


def test_long_means_are_exact_enough_for_tiny_bounds():
    """100 000 tokens in single precision: a running float32 sum would be off by 1e-4."""
    log = torch.full((100_000,), 0.1)
    zeros = torch.zeros(100_000, dtype=torch.int64)
    found = unit.combine(log, zeros, zeros == 0, "mean")
    assert found.dtype == torch.float32
    assert found[0].item() == pytest.approx(0.1, rel=1e-7)


@pytest.mark.parametrize("extreme", [50.0, -50.0])
def test_extremes_stay_finite(extreme):
    log = torch.full((4,), extreme, requires_grad=True)
    for how in ("sum", "mean"):
        for form in ("sequence", "token"):
            whole = unit.combine(log, ONE, EVERY, how, form)
            loss = surrogate.clip(whole, torch.tensor([1.0, -1.0, 1.0, -1.0]), *GSPO)
            assert torch.isfinite(loss).all()
            assert torch.isfinite(torch.autograd.grad(loss.sum(), log)[0]).all()


def test_no_valid_token_is_still_refused_by_the_reducer():
    with pytest.raises(ContractViolation):
        coefficients(index([0], [0], [0.0]), Reduction("response"))
