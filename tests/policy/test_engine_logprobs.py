"""With equal weights the engine and a full forward pass say the same log-probs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from engine_bench import VOCABULARY, perturbed, policy_of, qwen, ragged, request, run, worst
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from hexad.contract.sampling import Sampling
from hexad.policy.engine import Stop
from hexad.policy.local import LocalEngine

SHAPES = {
    "grouped": {},
    "multi-head": {"num_key_value_heads": 4},
    "multi-query": {"num_key_value_heads": 1},
    "wide heads": {"head_dim": 32, "hidden_size": 48},
    "another theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "biased, untied": {"attention_bias": True, "tie_word_embeddings": False},
    "loose norms": {"rms_norm_eps": 1e-2},
}
WINDOW = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
SCALED = {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_lean_path_equals_the_full_forward(shape: str) -> None:
    model = qwen(**SHAPES[shape])
    engine = LocalEngine(policy_of(model), rows=16)
    requests = ragged(40)
    assert engine.path == "lean"
    assert worst(model, requests, run(engine, requests)) < 1e-4


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_log_probs_are_of_the_tempered_distribution(temperature: float) -> None:
    model = qwen()
    requests = ragged(20, sampling=Sampling(temperature))
    done = run(LocalEngine(policy_of(model), rows=8), requests)
    assert worst(model, requests, done) < 1e-4


def test_requests_of_several_temperatures_share_a_batch() -> None:
    model = qwen()
    requests = [ragged(1, number, sampling=Sampling(0.5 + number / 4))[0] for number in range(8)]
    assert worst(model, requests, run(LocalEngine(policy_of(model), rows=8), requests)) < 1e-4


def test_field_case_o04_the_tempered_log_prob_is_recorded() -> None:
    """Logits [2, 1, 0] at T = 0.5: log mu(1) = -2.142932, not the raw -1.407606."""
    model = qwen(vocab_size=3, tie_word_embeddings=False, num_hidden_layers=1)
    with torch.no_grad():
        model.model.norm.weight.zero_()
        model.lm_head.weight.zero_()
        model.model.norm.weight[0] = 1.0
        # One hidden unit of known size through the last norm: all layers silenced.
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.fill_(1.0)
        model.lm_head.weight[:, 0] = torch.tensor([2.0, 1.0, 0.0])
    sampling = Sampling(temperature=0.5)
    requests = [request([0], str(i), sampling=sampling, max_tokens=1) for i in range(64)]
    done = run(LocalEngine(policy_of(model), rows=64), requests)
    seen = {int(each.ids[0]): float(each.logprobs[0]) for each in done}
    assert seen[1] == pytest.approx(-2.142932, abs=2e-6)
    assert seen[0] == pytest.approx(-0.142932, abs=2e-6)


def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
    )
    return perturbed(LlamaForCausalLM(config))


def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=2, initializer_range=0.2
    )
    return perturbed(GPT2LMHeadModel(config))


OTHERS = {
    "llama": llama,
    "gpt2": gpt2,
    "sliding window": lambda: qwen(**WINDOW),
    "scaled rope": lambda: qwen(**SCALED),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_take_the_generic_path_and_agree_too(name: str) -> None:
    model = OTHERS[name]()
    engine = LocalEngine(policy_of(model), rows=8)
    requests = ragged(12)
    assert engine.path == "generic"
    done = run(engine, requests)
    assert worst(model, requests, done) < 1e-4
    again = run(LocalEngine(policy_of(model), rows=8), requests)
    assert [c.logprobs.tobytes() for c in done] == [c.logprobs.tobytes() for c in again]


def test_the_generic_path_samples_without_dropout_and_leaves_the_mode_alone() -> None:
    model = gpt2()
    engine = LocalEngine(policy_of(model), rows=4)
    model.train()
    requests = ragged(4)
    done = run(engine, requests)
    assert model.training
    assert worst(model.eval(), requests, done) < 1e-4


def test_the_paths_agree_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    model, requests = qwen(), ragged(10)
    lean = run(LocalEngine(policy_of(model), rows=8), requests)
    monkeypatch.setattr("hexad.policy.qwen.lean_shaped", lambda model: False)
    engine = LocalEngine(policy_of(model), rows=8)
    assert engine.path == "generic"
    for left, right in zip(lean, run(engine, requests), strict=True):
        assert left.ids.tolist() == right.ids.tolist()
        assert np.allclose(left.logprobs, right.logprobs, atol=1e-4)


def test_the_bfloat16_gap_is_measurable_and_small(record_property: object) -> None:
    model = qwen(initializer_range=0.1).bfloat16()
    engine = LocalEngine(policy_of(model), rows=16)
    requests = ragged(16)
    done = run(engine, requests)
    gap = worst(model, requests, done)
    assert engine.path == "lean"
    assert all(each.logprobs.dtype == np.float32 for each in done)
    assert 1e-4 < gap < 0.3


def test_a_long_prompt_is_prefilled_in_chunks() -> None:
    model = qwen()
    generator = np.random.default_rng(0)
    lengths = [5, 255, 256, 257, 300, 470]
    requests = [
        request(generator.integers(0, VOCABULARY, length), str(length), max_tokens=4)
        for length in lengths
    ]
    done = run(LocalEngine(policy_of(model, 512), rows=8), requests)
    assert worst(model, requests, done) < 1e-4


def test_the_context_fills_up_and_ends_by_length() -> None:
    model = qwen()
    engine = LocalEngine(policy_of(model, 20), rows=2)
    each = request(range(1, 15), max_tokens=50)
    (done,) = run(engine, [each])
    assert len(done.ids) == 6 and done.stop is Stop.LENGTH
    assert worst(model, [each], [done]) < 1e-4
