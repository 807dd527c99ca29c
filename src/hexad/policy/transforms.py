"""The transform between logits and the distribution sampled from, and what cannot be replayed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from hexad.contract.faults import UserError
from hexad.contract.sampling import Sampling
from hexad.contract.support import MAX_SUPPORT

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


def require_replayable(
    sampling: Sampling,
    generation_config: Any = None,
    vocabulary: int | None = None,
    *,
    trained: bool = True,
) -> None:
    """Raise ``UserError`` for a behaviour distribution that training cannot reproduce exactly.

    Greedy decoding (a set of one, ``top_k`` 1) is refused only where it would be ``trained`` on.

    A distribution that cuts the support must be recordable in a ``vocabulary``: at most
    ``MAX_SUPPORT`` ids a token. Only top_k bounds the set; top_p, min_p and a grammar do not.

    The recipe states temperature, top_k, top_p and min_p, so the defaults that a model's
    ``generation_config`` suggests for *those* are not used and not judged. Its history-dependent
    processors (a repetition penalty, n-gram blocking, ...) have no counterpart in the recipe: the
    model's author made them part of the model, no engine here applies them, so they are refused.
    """
    _require_temperature(sampling.temperature)
    _require_cuts(sampling if trained or sampling.top_k != 1 else replace(sampling, top_k=0))
    if vocabulary is not None and not sampling.full_support:
        largest = min(sampling.top_k or vocabulary, vocabulary)
        if largest > MAX_SUPPORT:
            raise UserError(
                f"up to {largest} of {vocabulary} tokens may be kept at a position; at most "
                f"{MAX_SUPPORT} can be recorded",
                where="policy.sampling.top_k",
                fix=f"set top_k to at most {MAX_SUPPORT} beside the other cuts, or cut nothing",
            )
    for name, inert in _INERT.items():
        value = getattr(generation_config, name, None)
        if value is not None and value not in inert:
            raise UserError(
                f"{name} = {value} of the model's generation_config cannot be replayed in training",
                where=f"generation_config.json: {name}",
                fix=f"remove {name} from generation_config.json",
            )


def distribution(
    logits: torch.Tensor, sampling: Sampling, allowed: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The distribution sampled from: log-probs and kept set, both ``[N, V]``.

    ``logits`` are ``[N, V]`` and finite; ``allowed`` (bool ``[N, V]``, some token in every row) is
    what the grammar permits; it is given exactly where ``sampling`` has one. In this order, each
    on the renormalised outcome of the one before:

        grammar       keep what is allowed
        temperature   z := logits / T
        top_k         keep the k likeliest
        top_p         keep the shortest run of the likeliest whose probability reaches p, with the
                      token that reaches it
        min_p         keep tokens of at least min_p times the likeliest kept one's probability
        renormalise   log-probs of softmax over the kept set, -inf elsewhere

    Equally likely tokens rank by id, the lowest first, so sets are exact under ties. Computed in
    float32, or float64 for float64 logits. A row's bits depend on that row alone. Raises
    ``UserError`` for what cannot be replayed, ``ValueError`` for a row where nothing is allowed.
    """
    require_replayable(sampling, vocabulary=logits.shape[-1], trained=False)
    if (allowed is None) != (sampling.grammar is None):
        raise ValueError("the allowed tokens and the grammar go together")
    scores = (logits if logits.dtype == torch.float64 else logits.float()) / sampling.temperature
    if sampling.full_support:
        return torch.log_softmax(scores, -1), torch.ones_like(scores, dtype=torch.bool)
    if allowed is not None:
        if not bool(allowed.any(-1).all()):
            raise ValueError("the grammar allows no token in some row")
        scores = scores.masked_fill(~allowed, -torch.inf)
    width = min(sampling.top_k or scores.shape[-1], scores.shape[-1])
    if width < scores.shape[-1]:
        scores = scores.masked_fill(~_likeliest(scores, width), -torch.inf)
    if sampling.top_p < 1.0:
        scores = scores.masked_fill(~_nucleus(scores, sampling.top_p, width), -torch.inf)
    if sampling.min_p > 0.0:
        share = (scores - scores.amax(-1, keepdim=True)).exp()
        scores = scores.masked_fill(share < sampling.min_p, -torch.inf)
    return torch.log_softmax(scores, -1), scores > -torch.inf


def _likeliest(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Bool ``[N, V]``: the ``count`` highest scores of each row, the lowest ids among equals."""
    edge = scores.topk(count).values[:, -1:]
    above, equal = scores > edge, scores == edge
    room = count - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1) <= room))


def _nucleus(scores: torch.Tensor, mass: float, width: int) -> torch.Tensor:
    """Bool ``[N, V]``: tokens with less than ``mass`` ranked before them.

    At most ``width`` scores of a row are finite; it is fixed by the transform and not by the rows,
    so that sums have the same length in any batch.
    """
    places = None
    if width < scores.shape[-1]:
        places = scores.topk(width).indices.sort(-1).values
    few = scores if places is None else scores.gather(-1, places)
    ranked, order = few.sort(stable=True, dim=-1, descending=True)
    share = ranked.softmax(-1).double()
    before = share.cumsum(-1) - share
    where = order if places is None else places.gather(-1, order)
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, where, before < mass)


def _require_cuts(sampling: Sampling) -> None:
    """A cut leaves at least two tokens to choose from, or the grammar decides alone."""
    top_k, top_p, min_p = sampling.top_k, sampling.top_p, sampling.min_p
    wrong = {
        "top_k": (top_k, top_k < 0, top_k == 1),
        "top_p": (top_p, not 0.0 <= top_p <= 1.0, top_p == 0.0),
        "min_p": (min_p, not 0.0 <= min_p <= 1.0, min_p == 1.0),
    }
    for name, (value, outside, greedy) in wrong.items():
        if outside or greedy:
            raise UserError(
                f"{name} = {value} keeps one token: greedy rollouts have no usable ratio"
                if greedy
                else f"{name} = {value} is out of range",
                where=f"policy.sampling.{name}",
                fix="set top_k to 0 or at least 2, top_p in (0, 1], min_p in [0, 1)",
            )


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
