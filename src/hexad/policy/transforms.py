"""The transform between logits and the distribution sampled from, and what cannot be replayed."""

from __future__ import annotations

import math
from typing import Any

import torch

from hexad.contract.faults import UserError
from hexad.contract.sampling import Sampling

_INERT: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "bad_words_ids": (),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "sequence_bias": ({},),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1.0,),
    "watermarking_config": (),
    "remove_invalid_values": (False,),
    "num_beams": (1,),
    "penalty_alpha": (0.0,),
}
"""Fields of ``generation_config`` that change the distribution by themselves, with inert values."""


def require_replayable(sampling: Sampling, generation_config: Any = None) -> None:
    """Raise ``UserError`` for a behaviour distribution that training cannot reproduce exactly.

    The recipe states temperature, top_k, top_p and min_p, so the defaults that a model's
    ``generation_config`` suggests for *those* are not used and not judged. Its history-dependent
    processors (a repetition penalty, n-gram blocking, ...) have no counterpart in the recipe: the
    model's author made them part of the model, no engine here applies them, so they are refused.
    """
    _require_temperature(sampling.temperature)
    cuts = {"top_k": sampling.top_k != 0, "top_p": sampling.top_p < 1.0}
    cuts |= {"min_p": sampling.min_p > 0.0, "grammar": sampling.grammar is not None}
    for name in (name for name, used in cuts.items() if used):
        raise UserError(
            f"{name} cuts the support, and the cut cannot be replayed yet",
            where=f"policy.sampling.{name}",
            fix=f"leave {name} out: sampling from the full vocabulary is exact",
        )
    for name, inert in _INERT.items():
        value = getattr(generation_config, name, None)
        if value is not None and value not in inert:
            raise UserError(
                f"{name} = {value} of the model's generation_config cannot be replayed in training",
                where=f"generation_config.json: {name}",
                fix=f"remove {name} from generation_config.json",
            )


def log_softmax(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """log softmax(logits / temperature) over the last axis: the log-probs of the full vocabulary.

    Computed in float32, or in float64 if the logits are. Shape as given. Raises ``UserError`` for
    a transform that cuts the support.
    """
    require_replayable(sampling)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(wide / sampling.temperature, dim=-1)


def _require_temperature(temperature: float) -> None:
    if math.isfinite(temperature) and temperature > 0:
        return
    greedy = temperature == 0
    raise UserError(
        "greedy rollouts have no usable ratio"
        if greedy
        else f"temperature {temperature} is not a positive number",
        where="policy.sampling.temperature",
        fix="set a temperature above 0; 1.0 samples from the model's own distribution",
    )
