"""What cannot be replayed is refused; log-probs are of the tempered distribution."""

import math

import pytest
import torch
from transformers import GenerationConfig

from hexad.contract.faults import UserError
from hexad.contract.sampling import Sampling
from hexad.policy.transforms import log_softmax, require_replayable


def test_log_probs_are_of_the_tempered_distribution():
    """Field case O04: logits [ln 4, 0] give 4:1 at T = 1 and 2:1 at T = 2."""
    logits = torch.tensor([math.log(4.0), 0.0])
    at_one = log_softmax(logits, Sampling()).exp()
    at_two = log_softmax(logits, Sampling(temperature=2.0)).exp()
    torch.testing.assert_close(at_one, torch.tensor([0.8, 0.2]))
    torch.testing.assert_close(at_two, torch.tensor([2 / 3, 1 / 3]))


def test_log_probs_are_at_least_float32():
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    assert log_softmax(logits.bfloat16(), Sampling()).dtype == torch.float32
    assert log_softmax(logits.double(), Sampling()).dtype == torch.float64
    assert log_softmax(logits, Sampling()).shape == (2, 3, 5)


@pytest.mark.parametrize(
    ("sampling", "word"),
    [
        (Sampling(temperature=0.0), "greedy rollouts have no usable ratio"),
        (Sampling(temperature=-1.0), "not a positive number"),
        (Sampling(temperature=math.nan), "not a positive number"),
        (Sampling(temperature=math.inf), "not a positive number"),
        (Sampling(top_k=5), "top_k cuts the support, and the cut cannot be replayed yet"),
        (Sampling(top_p=0.9), "top_p"),
        (Sampling(min_p=0.1), "min_p"),
        (Sampling(grammar="root ::= x"), "grammar"),
    ],
)
def test_a_transform_that_cannot_be_replayed_is_refused(sampling, word):
    with pytest.raises(UserError, match=word):
        require_replayable(sampling)
    with pytest.raises(UserError, match=word):
        log_softmax(torch.zeros(3), sampling)


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
