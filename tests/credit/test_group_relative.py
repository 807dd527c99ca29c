import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hexad.credit.group_relative import dr_grpo, grpo, reinforce, rloo, usable

NAN = math.nan


def run(estimator, rewards, group=None, **options):
    score = torch.tensor([NAN if r is None else r for r in rewards], dtype=torch.float64)
    scored = torch.tensor([r is not None for r in rewards])
    ids = torch.tensor(group if group is not None else [0] * len(rewards))
    return estimator(score, scored, ids, **options).tolist()


def sample(*args):
    return grpo(*args, std="sample")


def batch(*args):
    return reinforce(*args, baseline="batch")


ALL = [rloo, grpo, sample, dr_grpo]


@pytest.mark.parametrize(
    ("estimator", "rewards", "expected"),
    [
        (grpo, [1, 1, 0, 0], [1, 1, -1, -1]),
        (sample, [1, 1, 0, 0], [0.8660254038, 0.8660254038, -0.8660254038, -0.8660254038]),
        (rloo, [1, 1, 0, 0], [2 / 3, 2 / 3, -2 / 3, -2 / 3]),
        (grpo, [1, 0, 0, 1], [1, -1, -1, 1]),
        (dr_grpo, [1, 0, 0, 1], [0.5, -0.5, -0.5, 0.5]),
        (rloo, [1, 0, 0, 1], [2 / 3, -2 / 3, -2 / 3, 2 / 3]),
        (sample, [1, 0, 0, 0], [1.5, -0.5, -0.5, -0.5]),
        (grpo, [1, 0, 0, 0], [3**0.5, *[-(3**-0.5)] * 3]),
        (rloo, [1, 0, 0, 0], [1, *[-1 / 3] * 3]),
        (dr_grpo, [1, 0, 0, 0], [0.75, *[-0.25] * 3]),
        (reinforce, [1, 0, 0, 1], [1, 0, 0, 1]),
        (batch, [1, 0, 1, 1], [0.25, -0.75, 0.25, 0.25]),
    ],
)
def test_golden_numbers(estimator, rewards, expected):
    assert run(estimator, rewards) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (dr_grpo, [1 / 3, 0, -2 / 3, 1 / 3]),
        (grpo, [0.7071067812, 0, -1.4142135624, 0.7071067812]),
        (sample, [0.5773502692, 0, -1.1547005384, 0.5773502692]),
        (rloo, [0.5, 0, -1, 0.5]),
        (batch, [1 / 3, 0, -2 / 3, 1 / 3]),
        (reinforce, [1, 0, 0, 1]),
    ],
)
@pytest.mark.parametrize("missing", [None, NAN, math.inf, -math.inf])
def test_a_missing_member_moves_nobody(estimator, expected, missing):
    """O08 items 1 and 5: not scored, NaN and infinite are all missing."""
    assert run(estimator, [1, missing, 0, 1]) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("estimator", ALL)
def test_one_scored_member_has_no_signal(estimator):
    assert run(estimator, [1, None, None, None]) == [0, 0, 0, 0]
    assert run(estimator, [0.7]) == [0]


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("value", [1.0, 0.3, 0.1 + 0.2, -7.7])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_flat_group_is_exactly_zero(estimator, value, size):
    assert run(estimator, [value] * size) == [0.0] * size


@pytest.mark.parametrize("estimator", ALL)
def test_float_noise_is_not_blown_up(estimator):
    assert max(map(abs, run(estimator, [0.1 + 0.2, 0.3, 0.3, 0.3]))) < 1e-6


@pytest.mark.parametrize("estimator", [*ALL, reinforce, batch])
def test_nothing_scored_is_zero_and_finite(estimator):
    assert run(estimator, [None] * 4) == [0, 0, 0, 0]


def test_the_threshold_is_the_zero_branch():
    assert run(grpo, [0.5, 0.5 + 1e-3], threshold=1e-3) == [0, 0]
    assert run(grpo, [0.5, 0.5 + 1e-3]) == pytest.approx([-1, 1])


@pytest.mark.parametrize(
    ("rewards", "group", "expected"),
    [
        ([0, 0, 1, 1], [7, 7, 9, 9], [0, 0, 0, 0]),
        ([0, 1], [5, 5], [-1, 1]),
        ([0, 1, 0, 1], [3, 1, 3, 1], [0, 0, 0, 0]),
        ([1, 0, 1], [2, 4, 4], [0, -1, 1]),
    ],
)
def test_groups_are_carried_never_inferred(rewards, group, expected):
    """O09: same text, other order, lost member."""
    assert run(rloo, rewards, group) == pytest.approx(expected, abs=1e-12)


def test_a_failure_of_the_infrastructure_is_not_a_reward():
    """O16: whatever stands in for the missing reward leaves the others unchanged."""
    assert run(dr_grpo, [1, 0, None, None]) == [0.5, -0.5, 0, 0]
    assert run(rloo, [None, -1, -1, None]) == [0, 0, 0, 0]
    score = torch.tensor([1.0, 0.0, 123.0, -9.0], dtype=torch.float64)
    scored = torch.tensor([True, True, False, False])
    assert dr_grpo(score, scored, torch.zeros(4, dtype=torch.int64)).tolist() == [0.5, -0.5, 0, 0]


def test_a_score_that_is_not_a_number_is_missing():
    assert usable(torch.tensor([1.0, NAN]), torch.tensor([True, True])).tolist() == [True, False]


@pytest.mark.parametrize("estimator", [*ALL, reinforce])
def test_wrong_shapes_and_types_are_refused(estimator):
    good = torch.zeros(2, dtype=torch.float64)
    with pytest.raises(ValueError, match="equal length"):
        estimator(good, torch.ones(3, dtype=torch.bool), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="float64"):
        estimator(good.float(), torch.ones(2, dtype=torch.bool), torch.zeros(2, dtype=torch.int64))


members = st.lists(
    st.tuples(
        st.sampled_from([None, 0.0, 1.0, 0.5, 0.25, 100.0, -3.0]),
        st.integers(min_value=0, max_value=3),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(members, st.randoms(use_true_random=False))
def test_invariants(rows, random):
    rewards, group = [r for r, _ in rows], [g for _, g in rows]
    order = list(range(len(rows)))
    random.shuffle(order)
    for estimator in ALL:
        base = run(estimator, rewards, group)
        assert all(map(math.isfinite, base))
        for wanted in set(group):
            members = [a for a, r, g in zip(base, rewards, group, strict=True) if g == wanted]
            assert sum(members) == pytest.approx(0, abs=1e-9)
        assert all(a == 0 for a, r in zip(base, rewards, strict=True) if r is None)
        moved = run(estimator, [None if r is None else r + 8.0 for r in rewards], group)
        assert moved == pytest.approx(base, abs=1e-9)
        mixed = run(estimator, [rewards[i] for i in order], [group[i] * 11 + 5 for i in order])
        assert mixed == pytest.approx([base[i] for i in order], abs=1e-9)
        scaled = run(estimator, [None if r is None else r * 4.0 for r in rewards], group)
        factor = 1.0 if estimator in (grpo, sample) else 4.0
        assert scaled == pytest.approx([factor * a for a in base], abs=1e-9)
