"""Small random models, requests and reference log-probs shared by the engine tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from hexad.contract.sampling import Sampling
from hexad.policy import builtin
from hexad.policy.engine import Completion, DrawKey, Request
from hexad.policy.local import LocalEngine
from hexad.policy.policy import Policy

VOCABULARY = 512


def policy_of(model: Any, max_context: int = 256) -> Policy:
    return Policy(model.eval(), builtin.tokenizer(), "test", (1,), max_context)


def perturbed(model: Any, seed: int = 0) -> Any:
    """Random weights everywhere: unit norms and zero biases would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model


def qwen(seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "tie_word_embeddings": True,
        "initializer_range": 0.2,
        "max_position_embeddings": 512,
    }
    return perturbed(Qwen3ForCausalLM(Qwen3Config(**{**settings, **changes})), seed)


def request(ids: Sequence[int] | np.ndarray, name: str = "a", **changes: Any) -> Request:
    settings: dict[str, Any] = {
        "ids": np.asarray(ids, np.int32),
        "sampling": Sampling(),
        "key": DrawKey(0, name, 0),
        "max_tokens": 12,
        "stop_ids": (),
        "session": name,
    }
    return Request(**{**settings, **changes})


def ragged(count: int, seed: int = 0, **changes: Any) -> list[Request]:
    """Requests of random prompts, lengths and limits."""
    generator = np.random.default_rng(seed)
    return [
        request(
            generator.integers(0, VOCABULARY, generator.integers(2, 50)),
            f"{seed}/{number}",
            **{"max_tokens": int(generator.integers(1, 40)), **changes},
        )
        for number in range(count)
    ]


def run(engine: Any, requests: Sequence[Request]) -> list[Completion]:
    async def together() -> list[Completion]:
        return await asyncio.gather(*[engine.sample(each) for each in requests])

    return asyncio.run(together())


def alone(policy: Policy, each: Request, **changes: Any) -> Completion:
    return run(LocalEngine(policy, rows=1, **changes), [each])[0]


def bits(completions: Sequence[Completion]) -> list[tuple[bytes, bytes]]:
    return [(each.ids.tobytes(), each.logprobs.tobytes()) for each in completions]


def forward(model: Any, asked: Request, given: Completion) -> np.ndarray:
    """Log-probs of ``given`` by one full forward pass of the Hugging Face model."""
    ids = torch.from_numpy(np.concatenate((asked.ids, given.ids)).astype(np.int64))
    with torch.no_grad():
        logits = model(ids[None]).logits[0, len(asked.ids) - 1 : -1].double()
    logprobs = (logits / asked.sampling.temperature).log_softmax(-1)
    return logprobs.gather(1, ids[len(asked.ids) :, None])[:, 0].numpy()


def worst(model: Any, asked: Sequence[Request], given: Sequence[Completion]) -> float:
    """The largest |log-ratio| between the engine and the full forward pass."""
    pairs = zip(asked, given, strict=True)
    return max(float(np.abs(forward(model, a, g) - g.logprobs).max()) for a, g in pairs)
