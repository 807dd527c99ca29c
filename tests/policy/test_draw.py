"""Counter-based uniforms and the inverse-CDF draw."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from hexad.policy.draw import pick, uniforms
from hexad.policy.engine import DrawKey

KEY = DrawKey(0, "task", 0)
PINNED = 0.9875532406594048
"""Stored episodes replay only while this number stays."""


def test_the_number_of_a_position_does_not_depend_on_where_the_block_starts() -> None:
    whole = uniforms(KEY, 0, 64)
    for start in (0, 1, 2, 3, 4, 5, 31, 60):
        assert np.array_equal(uniforms(KEY, start, 4), whole[start : start + 4])
    assert np.array_equal(np.concatenate([uniforms(KEY, p, 1) for p in range(64)]), whole)


def test_every_field_of_the_key_names_another_stream() -> None:
    others = [
        DrawKey(1, "task", 0),
        DrawKey(0, "other", 0),
        DrawKey(0, "task", 1),
        DrawKey(0, "task", 0, attempt=1),
        DrawKey(0, "task", 0, segment=1),
    ]
    base = uniforms(KEY, 0, 8)
    assert np.array_equal(base, uniforms(DrawKey(0, "task", 0), 0, 8))
    assert all(not np.isin(uniforms(other, 0, 8), base).any() for other in others)


def test_the_stream_is_pinned() -> None:
    assert uniforms(KEY, 5, 2).tolist() == uniforms(KEY, 0, 7)[5:].tolist()
    words = np.random.Philox(key=KEY.seed(), counter=0).random_raw(4)
    assert uniforms(KEY, 0, 4).tolist() == [(int(word) >> 11) / 2**53 for word in words]
    assert uniforms(KEY, 0, 1)[0] == PINNED


def test_numbers_are_uniform_across_positions_and_across_keys() -> None:
    along = uniforms(KEY, 0, 20_000)
    across = np.concatenate([uniforms(DrawKey(0, str(task), 3), 17, 1) for task in range(5_000)])
    for sample in (along, across):
        assert sample.min() >= 0.0 and sample.max() < 1.0
        counts, _ = np.histogram(sample, bins=50, range=(0, 1))
        assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(("start", "count"), [(-1, 1), (0, -1)])
def test_negative_positions_are_refused(start: int, count: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        uniforms(KEY, start, count)


def test_draws_follow_the_distribution() -> None:
    logprobs = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5]).log_softmax(-1)
    u = torch.from_numpy(uniforms(KEY, 0, 20_000))
    drawn = pick(logprobs.expand(len(u), -1), u)
    counts = np.bincount(drawn.numpy(), minlength=5)
    expected = logprobs.double().softmax(-1).numpy() * len(u)
    assert stats.chisquare(counts, expected).pvalue > 1e-3


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 16, 100, 512, 1000])
def test_the_draw_is_the_inverse_of_the_cumulative_distribution(vocabulary: int) -> None:
    torch.manual_seed(vocabulary)
    logprobs = torch.randn(50, vocabulary).log_softmax(-1)
    u = torch.rand(50, dtype=torch.float64)
    cumulative = logprobs.double().exp().cumsum(-1)
    goal = u[:, None] * cumulative[:, -1:]
    expected = (cumulative <= goal).sum(-1)
    assert torch.equal(pick(logprobs, u), expected)


BORDERS = [0.0, 2.0**-53, 0.5, 1.0 - 2.0**-53]


@pytest.mark.parametrize("u", BORDERS)
@pytest.mark.parametrize("vocabulary", [3, 64, 513])
def test_a_token_of_probability_zero_is_never_drawn(u: float, vocabulary: int) -> None:
    torch.manual_seed(1)
    logits = torch.randn(200, vocabulary)
    impossible = torch.rand(200, vocabulary) < 0.6
    impossible[:, 0] = impossible[:, -1] = True
    impossible[torch.arange(200), torch.randint(1, vocabulary - 1, (200,))] = False
    logprobs = logits.masked_fill(impossible, float("-inf")).log_softmax(-1)
    drawn = pick(logprobs, torch.full((200,), u, dtype=torch.float64))
    assert not impossible[torch.arange(200), drawn].any()


def test_unnormalised_rounding_stays_inside_the_support() -> None:
    """A float32 softmax over many ids does not sum to 1; the last id must not collect the rest."""
    logprobs = torch.full((1, 4096), -np.log(4000.0), dtype=torch.float32)
    logprobs[0, 4000:] = float("-inf")
    u = torch.tensor([1.0 - 2.0**-53], dtype=torch.float64)
    assert pick(logprobs, u).item() == 3999


def test_rows_are_drawn_independently_of_their_company() -> None:
    torch.manual_seed(2)
    logprobs, u = torch.randn(40, 300).log_softmax(-1), torch.rand(40, dtype=torch.float64)
    together = pick(logprobs, u)
    single = torch.cat([pick(logprobs[i : i + 1], u[i : i + 1]) for i in range(40)])
    assert torch.equal(together, single)
