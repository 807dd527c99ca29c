"""The cut distribution: hand-computed sets and numbers, order of the cuts, ties, batches."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hexad.contract.sampling import Sampling
from hexad.policy.transforms import distribution

SIXTEENTHS = torch.tensor([[8.0, 4.0, 2.0, 1.0, 1.0]]).log()
"""Probabilities 1/2, 1/4, 1/8, 1/16, 1/16."""
GRAMMAR = "start: /a*/"


def support(logits, allowed=None, **cuts):
    if allowed is not None:
        cuts["grammar"] = GRAMMAR
        mask = torch.zeros(logits.shape, dtype=torch.bool)
        mask[:, allowed] = True
        allowed = mask
    logprobs, kept = distribution(logits, Sampling(**cuts), allowed)
    assert torch.equal(kept, logprobs > -torch.inf)
    torch.testing.assert_close(logprobs.exp().sum(-1), torch.ones(len(logits)))
    return kept[0].nonzero()[:, 0].tolist(), logprobs[0, kept[0]].exp().tolist()


@pytest.mark.parametrize(
    ("cuts", "ids", "probabilities"),
    [
        ({"top_k": 2}, [0, 1], [2 / 3, 1 / 3]),
        ({"top_k": 3}, [0, 1, 2], [4 / 7, 2 / 7, 1 / 7]),
        # the tie at the edge: the lower id stays
        ({"top_k": 4}, [0, 1, 2, 3], [8 / 15, 4 / 15, 2 / 15, 1 / 15]),
        ({"top_k": 5}, [0, 1, 2, 3, 4], [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16]),
        ({"top_k": 99}, [0, 1, 2, 3, 4], [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16]),
        # 1/2 does not reach 0.6: the token that reaches it stays
        ({"top_p": 0.6}, [0, 1], [2 / 3, 1 / 3]),
        ({"top_p": 0.8}, [0, 1, 2], [4 / 7, 2 / 7, 1 / 7]),
        ({"top_p": 0.4}, [0], [1.0]),
        ({"top_p": 0.9}, [0, 1, 2, 3], [8 / 15, 4 / 15, 2 / 15, 1 / 15]),
        # the threshold is 0.3 of 1/2 = 0.15
        ({"min_p": 0.3}, [0, 1], [2 / 3, 1 / 3]),
        ({"min_p": 0.2}, [0, 1, 2], [4 / 7, 2 / 7, 1 / 7]),
        # squares: 64 16 4 1 1 of 86
        ({"temperature": 0.5, "top_k": 2}, [0, 1], [0.8, 0.2]),
    ],
)
def test_sets_and_probabilities_by_hand(cuts, ids, probabilities):
    found_ids, found = support(SIXTEENTHS, **cuts)
    assert found_ids == ids
    assert found == pytest.approx(probabilities, rel=1e-5)


def test_top_p_follows_top_k_and_sees_it_renormalised():
    """Of 2/3, 1/3 the first reaches 0.6 alone; of 1/2, 1/4, ... it does not."""
    assert support(SIXTEENTHS, top_k=2, top_p=0.6)[0] == [0]
    assert support(SIXTEENTHS, top_p=0.6)[0] == [0, 1]


def test_top_p_follows_the_grammar_and_sees_it_renormalised():
    """Of 4/7, 2/7, 1/7 (ids 1, 2, 3) the first reaches 0.55 alone."""
    assert support(SIXTEENTHS, [1, 2, 3], top_p=0.55)[0] == [1]
    assert support(SIXTEENTHS, [1, 2, 3], top_p=0.6)[0] == [1, 2]


def test_top_k_follows_the_grammar():
    assert support(SIXTEENTHS, [2, 3, 4], top_k=2)[0] == [2, 3]
    assert support(SIXTEENTHS, [4, 3], top_k=3)[0] == [3, 4]


def test_min_p_is_relative_to_the_likeliest_that_is_left():
    """Without id 0 the threshold is 0.3 of 1/4 = 0.075, not 0.15."""
    ids, found = support(SIXTEENTHS, [1, 2, 3, 4], min_p=0.3)
    assert (ids, found) == ([1, 2], pytest.approx([2 / 3, 1 / 3]))


def test_temperature_comes_before_every_cut():
    """T = 2: square roots, 2.83 2 1.41 1 1. T = 0.5: squares, 64 of 86 reach 0.7 alone."""
    assert support(SIXTEENTHS, min_p=0.6)[0] == [0]
    assert support(SIXTEENTHS, min_p=0.6, temperature=2.0)[0] == [0, 1]
    assert support(SIXTEENTHS, top_p=0.7)[0] == [0, 1]
    assert support(SIXTEENTHS, top_p=0.7, temperature=0.5)[0] == [0]


def test_a_grammar_alone_renormalises():
    ids, found = support(SIXTEENTHS, [1, 4])
    assert (ids, found) == ([1, 4], pytest.approx([0.8, 0.2]))
    assert support(SIXTEENTHS, [3]) == ([3], [1.0])


def test_ties_rank_by_id_and_an_exact_border_stops_there():
    flat = torch.zeros(1, 4)
    assert support(flat, top_p=0.5)[0] == [0, 1]
    assert support(flat, top_p=0.500001)[0] == [0, 1, 2]
    assert support(flat, top_k=3)[0] == [0, 1, 2]
    assert support(torch.tensor([[0.0, 1.0, 0.0, 1.0]]), top_k=3)[0] == [0, 1, 3]
    assert support(torch.tensor([[0.0, 1.0, 0.0, 1.0]]), top_k=2, top_p=0.3)[0] == [1]
    assert support(flat, min_p=0.999)[0] == [0, 1, 2, 3]


def test_many_ties_keep_the_lowest_ids():
    flat = torch.zeros(1, 4096)
    assert support(flat, top_p=0.25)[0] == list(range(1024))
    assert support(flat, top_k=2048, top_p=0.5)[0] == list(range(1024))


def test_a_token_of_exactly_the_share_stays():
    logits = torch.tensor([[0.0, -1.0, -1.001]], dtype=torch.float64)
    share = logits[0, 1].exp().item()
    assert distribution(logits, Sampling(min_p=share))[1].tolist() == [[True, True, False]]


def test_a_cut_that_takes_nothing_leaves_the_bits_of_the_full_distribution():
    logits = torch.randn(5, 37, generator=torch.Generator().manual_seed(0))
    full, _ = distribution(logits, Sampling(temperature=0.7))
    for cut in ({"top_k": 37}, {"top_k": 40}, {"top_p": 1 - 1e-12}, {"min_p": 1e-30}):
        logprobs, kept = distribution(logits, Sampling(temperature=0.7, **cut))
        assert kept.all()
        assert torch.equal(logprobs, full)


def test_the_grammar_and_what_it_allows_go_together():
    with pytest.raises(ValueError, match="go together"):
        distribution(SIXTEENTHS, Sampling(grammar=GRAMMAR))
    with pytest.raises(ValueError, match="go together"):
        distribution(SIXTEENTHS, Sampling(top_k=2), torch.ones(1, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="allows no token"):
        distribution(SIXTEENTHS, Sampling(grammar=GRAMMAR), torch.zeros(1, 5, dtype=torch.bool))


def reference(logits, allowed, cuts):
    """The same set, one token at a time, in Python floats."""
    scores = {i: x / cuts.temperature for i, x in enumerate(logits) if allowed[i]}
    ranked = sorted(scores, key=lambda i: (-scores[i], i))
    if cuts.top_k:
        ranked = ranked[: cuts.top_k]
    weights = {i: math.exp(scores[i] - scores[ranked[0]]) for i in ranked}
    goal, reached, nucleus = cuts.top_p * sum(weights.values()), 0.0, []
    for i in ranked:
        if cuts.top_p < 1.0 and nucleus and reached >= goal:
            break
        nucleus.append(i)
        reached += weights[i]
    return {i for i in nucleus if weights[i] >= cuts.min_p}


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    top_k=st.sampled_from([0, 2, 5, 11, 30]),
    top_p=st.sampled_from([1.0, 0.91, 0.37]),
    min_p=st.sampled_from([0.0, 0.013, 0.21]),
    temperature=st.sampled_from([1.0, 0.31, 1.9]),
    grammar=st.booleans(),
)
def test_sets_equal_those_of_a_plain_reference(seed, top_k, top_p, min_p, temperature, grammar):
    source = torch.Generator().manual_seed(seed)
    logits = torch.randn(7, 23, generator=source, dtype=torch.float64) * 2
    allowed = torch.rand(7, 23, generator=source) < 0.5 if grammar else torch.ones(7, 23) > 0
    allowed[:, 3] = True
    text = GRAMMAR if grammar else None
    sampling = Sampling(temperature, top_k, top_p, min_p, text)
    _, kept = distribution(logits, sampling, allowed if grammar else None)
    for row in range(7):
        expected = reference(logits[row].tolist(), allowed[row].tolist(), sampling)
        assert set(kept[row].nonzero()[:, 0].tolist()) == expected


GRID = list(itertools.product([0, 3, 40], [1.0, 0.8], [0.0, 0.05], [1.0, 0.6], [False, True]))


@pytest.mark.parametrize(("top_k", "top_p", "min_p", "temperature", "grammar"), GRID)
def test_a_row_has_the_same_bits_alone_and_in_any_batch(top_k, top_p, min_p, temperature, grammar):
    source = torch.Generator().manual_seed(top_k)
    logits = torch.randn(9, 131, generator=source) * 3
    allowed = torch.rand(9, 131, generator=source) < torch.linspace(0.02, 0.9, 9)[:, None]
    allowed[:, 7] = True
    sampling = Sampling(temperature, top_k, top_p, min_p, GRAMMAR if grammar else None)
    together = distribution(logits, sampling, allowed if grammar else None)
    for row in range(9):
        one = slice(row, row + 1)
        alone = distribution(logits[one], sampling, allowed[one] if grammar else None)
        assert torch.equal(alone[0], together[0][one])
        assert torch.equal(alone[1], together[1][one])
        assert torch.isfinite(alone[0][alone[1]]).all()
