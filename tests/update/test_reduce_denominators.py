import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hexad.contract.faults import ContractViolation
from hexad.update.reduce import Index, Reduction, coefficients

REDUCTIONS = [
    Reduction("token"),
    Reduction("response"),
    Reduction("segment"),
    Reduction("episode"),
    Reduction("prompt", inner="token"),
    Reduction("prompt", inner="episode"),
    Reduction("pair"),
    Reduction("fixed", length=10),
]


def index(rows):
    """``rows``: (episode, group, turn, [weights]); one row each, weight 0 is not valid."""
    flat = [(r, e, g, t, w) for r, (e, g, t, ws) in enumerate(rows) for w in ws]
    row, episode, group, turn, weight = (list(column) for column in zip(*flat, strict=True))
    weights = torch.tensor(weight, dtype=torch.float32)
    ints = [torch.tensor(column) for column in (row, turn, episode, group)]
    return Index(*ints, weights > 0, weights)


def loss(rows, terms, reduction):
    flat = torch.tensor([t for row in terms for t in row], dtype=torch.float64)
    return float((coefficients(index(rows), reduction) * flat).sum())


O05_ROWS = [(0, 0, 0, [1] * 2), (1, 0, 0, [1] * 8), (2, 1, 0, [1] * 2)]
O05_TERMS = [[4.0] * 2, [1.0] * 8, [1.0] * 2]


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        (Reduction("token"), 1.5),
        (Reduction("response"), 2.0),
        (Reduction("segment"), 2.0),
        (Reduction("episode"), 2.0),
        (Reduction("prompt", inner="token"), 1.3),
        (Reduction("prompt", inner="episode"), 1.75),
        (Reduction("fixed", length=10), 0.6),
    ],
)
def test_field_case_o05(reduction, expected):
    assert loss(O05_ROWS, O05_TERMS, reduction) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("lengths", "values", "reduction", "expected"),
    [
        ([1, 4], [2.0, 1.0], Reduction("response"), 1.5),
        ([1, 4], [2.0, 1.0], Reduction("token"), 1.2),
        ([1, 4], [2.0, 1.0], Reduction("fixed", length=4), 0.75),
        ([2, 8], [1.0, 0.25], Reduction("token"), 0.4),
        ([2, 8], [1.0, 0.25], Reduction("episode"), 0.625),
        ([2, 8], [1.0, 0.25], Reduction("fixed", length=10), 0.2),
    ],
)
def test_golden_reductions(lengths, values, reduction, expected):
    rows = [(i, i, 0, [1] * n) for i, n in enumerate(lengths)]
    terms = [[v] * n for n, v in zip(lengths, values, strict=True)]
    assert loss(rows, terms, reduction) == pytest.approx(expected, abs=1e-12)


def test_one_episode_with_two_segments():
    rows, terms = [(0, 0, 0, [1, 1]), (0, 0, 1, [1])], [[1.0, 3.0], [9.0]]
    assert loss(rows, terms, Reduction("token")) == pytest.approx(13 / 3)
    assert loss(rows, terms, Reduction("episode")) == pytest.approx(13 / 3)
    assert loss(rows, terms, Reduction("segment")) == pytest.approx(5.5)
    assert loss(rows, terms, Reduction("response")) == pytest.approx(5.5)


def test_a_pair_is_one_term_however_long_its_sides_are():
    """Two pairs whose terms are 3 and 1: 3 + 9 tokens of one, 1 + 1 of the other."""
    rows = [(0, 0, 0, [1] * 3), (1, 0, 0, [1] * 9), (2, 1, 0, [1]), (3, 1, 0, [1])]
    terms = [[3.0] * 3, [3.0] * 9, [1.0], [1.0]]
    assert loss(rows, terms, Reduction("pair")) == pytest.approx(2.0, abs=1e-12)


def test_a_response_is_one_turn_of_one_episode():
    """Two turns in one row are two responses; equal turn numbers of two episodes are two too."""
    ids = [torch.tensor(v) for v in ([0, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0])]
    where = Index(*ids, torch.ones(4, dtype=torch.bool), torch.ones(4))
    assert coefficients(where, Reduction("response")).tolist() == pytest.approx(
        [1 / 3, 1 / 6, 1 / 6, 1 / 3]
    )


def test_weights_are_in_both_parts():
    """contract.md 2.2: sum w l / sum w."""
    rows, terms = [(0, 0, 0, [0.5, 1.5]), (1, 1, 0, [3.0])], [[2.0, 4.0], [1.0]]
    assert loss(rows, terms, Reduction("token")) == pytest.approx((1 + 6 + 3) / 5)
    assert loss(rows, terms, Reduction("episode")) == pytest.approx((3.5 + 1.0) / 2)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_an_empty_unit_leaves_n(reduction):
    """A faulted episode, and observations around it, are in neither numerator nor N."""
    with_empty = [O05_ROWS[0], (7, 5, 3, [0, 0, 0]), *O05_ROWS[1:]]
    terms = [O05_TERMS[0], [1e30, float("inf"), -9.0], *O05_TERMS[1:]]
    coefficient = coefficients(index(with_empty), reduction)
    assert coefficient[2:5].tolist() == [0.0, 0.0, 0.0]
    flat = torch.tensor([t for row in terms for t in row], dtype=torch.float64)
    kept = coefficient > 0
    expected = loss(O05_ROWS, O05_TERMS, reduction)
    assert float((coefficient[kept] * flat[kept]).sum()) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_zero_units_raise_with_the_denominators_name(reduction):
    with pytest.raises(ContractViolation, match=f"`{reduction.denominator}`"):
        coefficients(index([(0, 0, 0, [0, 0])]), reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS[:-1])
def test_a_constant_term_has_that_loss(reduction):
    assert float(coefficients(index(O05_ROWS), reduction).sum()) == pytest.approx(1.0)


def test_options_belong_to_one_denominator():
    for options in (
        {"denominator": "prompt"},
        {"denominator": "token", "inner": "token"},
        {"denominator": "fixed"},
        {"denominator": "episode", "length": 5},
    ):
        with pytest.raises(ValueError, match="belongs to"):
            Reduction(**options)


row = st.tuples(
    st.integers(0, 3),
    st.integers(0, 2),
    st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=1, max_size=4),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(row, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_order_and_padding_change_nothing(raw, random):
    rows = [(episode, episode % 2, turn, ws) for episode, turn, ws in raw]
    rows.append((9, 3, 0, [1.0]))
    terms = [[random.random() for _ in ws] for *_, ws in rows]
    order = list(range(len(rows)))
    random.shuffle(order)
    padded = [(e, g, t, [*ws, 0.0, 0.0]) for e, g, t, ws in rows]
    widened = [[*row, 7.0, 7.0] for row in terms]
    for reduction in REDUCTIONS:
        base = loss(rows, terms, reduction)
        assert loss([rows[i] for i in order], [terms[i] for i in order], reduction) == (
            pytest.approx(base, abs=1e-12)
        )
        assert loss(padded, widened, reduction) == pytest.approx(base, abs=1e-12)
