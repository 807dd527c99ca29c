"""The built-in models: small, Qwen3-shaped, initialised by seed, with a shipped tokenizer."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from hexad.contract.faults import UserError

PREFIX = "builtin:"
ASSETS = Path(__file__).parent / "assets"
END_OF_TEXT, END_OF_TURN = "<|endoftext|>", "<|im_end|>"

_SHAPES = {
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    },
    "small": {
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 16,
    },
}
MAX_CONTEXT = 2048
"""Positions of the built-in models."""


def tokenizer() -> PreTrainedTokenizerFast:
    """The shipped byte-level BPE tokenizer with its chat template (see tools/make_tokenizer.py)."""
    return PreTrainedTokenizerFast(
        tokenizer_file=str(ASSETS / "tokenizer.json"),
        chat_template=(ASSETS / "chat_template.jinja").read_text(encoding="utf-8"),
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        model_max_length=MAX_CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def config(name: str, vocabulary: int) -> Qwen3Config:
    """The configuration of ``builtin:NAME``. Raises ``UserError`` for another name.

    Weights start with standard deviation 0.5 / sqrt(width). Qwen3's 0.02 suits widths near 1000; at
    width 64 it made demonstrations take about 1.5 times as many steps (measured).
    """
    if name not in _SHAPES:
        known = ", ".join(PREFIX + each for each in _SHAPES)
        raise UserError(
            f"there is no model {PREFIX}{name}", where="policy.model", fix=f"use one of {known}"
        )
    shape = _SHAPES[name]
    return Qwen3Config(
        **shape,
        initializer_range=0.5 / math.sqrt(shape["hidden_size"]),
        vocab_size=vocabulary,
        max_position_embeddings=MAX_CONTEXT,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )


def model(name: str, *, vocabulary: int, seed: int) -> PreTrainedModel:
    """``builtin:NAME`` in float32 on the CPU, initialised from ``seed`` alone.

    The global random state is left as it was.
    """
    shape = config(name, vocabulary)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM._from_config(shape, dtype=torch.float32, attn_implementation="sdpa")
