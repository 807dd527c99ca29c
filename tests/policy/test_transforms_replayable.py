"""What cannot be replayed is refused; log-probs are of the tempered distribution."""

import math

import pytest
import torch
from transformers import GenerationConfig

from hexad.contract.faults import UserError
from hexad.contract.sampling import Sampling
from hexad.contract.support import MAX_SUPPORT
from hexad.policy.transforms import distribution, require_replayable


def test_log_probs_are_of_the_tempered_distribution():
    """Field case O04: logits [ln 4, 0] give 4:1 at T = 1 and 2:1 at T = 2."""
    logits = torch.tensor([[math.log(4.0), 0.0]])
    at_one = distribution(logits, Sampling())[0].exp()
    at_two = distribution(logits, Sampling(temperature=2.0))[0].exp()
    torch.testing.assert_close(at_one, torch.tensor([[0.8, 0.2]]))
    torch.testing.assert_close(at_two, torch.tensor([[2 / 3, 1 / 3]]))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_k=3, top_p=0.9)])
def test_log_probs_are_at_least_float32(sampling):
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    assert distribution(logits.bfloat16(), sampling)[0].dtype == torch.float32
    assert distribution(logits.double(), sampling)[0].dtype == torch.float64
    assert distribution(logits, sampling)[0].shape == (6, 5)


@pytest.mark.parametrize(
    ("sampling", "word"),
    [
        (Sampling(temperature=0.0), "greedy rollouts have no usable ratio"),
        (Sampling(temperature=-1.0), "not a positive number"),
        (Sampling(temperature=math.nan), "not a positive number"),
        (Sampling(temperature=math.inf), "not a positive number"),
        (Sampling(top_k=1), "top_k = 1 keeps one token: greedy"),
        (Sampling(top_k=-1), "top_k = -1 is out of range"),
        (Sampling(top_p=0.0), "top_p = 0.0 keeps one token: greedy"),
        (Sampling(top_p=1.5), "top_p = 1.5 is out of range"),
        (Sampling(top_p=math.nan), "top_p = nan is out of range"),
        (Sampling(min_p=1.0), "min_p = 1.0 keeps one token: greedy"),
        (Sampling(min_p=-0.1), "min_p = -0.1 is out of range"),
    ],
)
def test_a_transform_that_cannot_be_replayed_is_refused(sampling, word):
    with pytest.raises(UserError, match=word):
        require_replayable(sampling)
    if sampling.top_k != 1:  # computed for auxiliary rollouts
        with pytest.raises(UserError, match=word):
            distribution(torch.zeros(1, 3), sampling)


def test_greedy_decoding_is_for_what_is_never_trained_on():
    require_replayable(Sampling(top_k=1), vocabulary=10**6, trained=False)
    with pytest.raises(UserError, match="greedy rollouts have no usable ratio"):
        require_replayable(Sampling(temperature=0.0), trained=False)
    logprobs, kept = distribution(torch.tensor([[1.0, 3.0, 3.0, 2.0]]), Sampling(top_k=1))
    assert kept.tolist() == [[False, True, False, False]]
    assert logprobs.tolist() == [[-math.inf, 0.0, -math.inf, -math.inf]]


@pytest.mark.parametrize(
    "cut", [{"top_p": 0.9}, {"min_p": 0.1}, {"grammar": "start: /a*/"}, {"top_k": MAX_SUPPORT + 1}]
)
def test_a_support_that_may_exceed_the_cap_is_refused(cut):
    large = 2 * MAX_SUPPORT
    with pytest.raises(UserError, match=f"at most {MAX_SUPPORT} can be recorded"):
        require_replayable(Sampling(**cut), vocabulary=large)
    require_replayable(Sampling(**cut | {"top_k": MAX_SUPPORT}), vocabulary=large)
    require_replayable(Sampling(**cut), vocabulary=MAX_SUPPORT)
    require_replayable(Sampling(), vocabulary=large)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repetition_penalty", 1.1),
        ("no_repeat_ngram_size", 3),
        ("suppress_tokens", [7]),
        ("bad_words_ids", [[1, 2]]),
        ("min_new_tokens", 5),
        ("sequence_bias", [[[1], 2.0]]),
    ],
)
def test_a_processor_of_the_generation_config_is_refused(name, value):
    with pytest.raises(UserError, match=f"{name} = "):
        require_replayable(Sampling(), GenerationConfig(**{name: value}))


def test_inert_and_suggested_values_of_the_generation_config_pass():
    suggested = GenerationConfig(
        do_sample=True, temperature=0.6, top_k=20, top_p=0.95, repetition_penalty=1.0
    )
    require_replayable(Sampling(), suggested)
    require_replayable(Sampling(), GenerationConfig())
    require_replayable(Sampling(temperature=0.7), GenerationConfig(no_repeat_ngram_size=0))
