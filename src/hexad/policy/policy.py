"""A policy: model and tokenizer that belong together, with everything that names them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hexad.contract.digest import digest
from hexad.contract.faults import UserError
from hexad.contract.messages import ToolSchema
from hexad.contract.sampling import Sampling
from hexad.policy import adapter as adapters
from hexad.policy import grammar
from hexad.policy.adapter import Base
from hexad.policy.chat import Chat
from hexad.policy.quiet import quiet
from hexad.policy.transforms import require_replayable


@dataclass(frozen=True, eq=False)
class Policy:
    """Made by ``load_policy``. The learner changes the tensors of ``model`` in place.

    ``name`` is what the user called it. ``stop_ids`` are all ids that end a turn: those of the
    model's ``generation_config`` and the template's close token, sorted. ``max_context`` is the
    number of positions of the model. ``adapter`` is the digest of what a LoRA adapter is (rank,
    scale, modules), or ``none``; ``base`` is what it adds to.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    stop_ids: tuple[int, ...]
    max_context: int
    adapter: str = "none"
    base: Base | None = None

    @property
    def precision(self) -> str:
        """The number format of the model's weights, e.g. ``float32``."""
        return str(self.model.dtype).removeprefix("torch.")

    @cached_property
    def tokenizer_digest(self) -> str:
        """Digest of what turns text into ids: the whole fast tokenizer."""
        return digest(self.tokenizer.backend_tokenizer.to_str().encode())

    @cached_property
    def template_digest(self) -> str:
        """Digest of the chat template and of the special tokens that it can name."""
        names = {key: str(value) for key, value in self.tokenizer.special_tokens_map.items()}
        return digest({"template": self.tokenizer.chat_template, "special": names})

    def chat(self, tools: tuple[ToolSchema, ...]) -> Chat:
        """The conversation form for ``tools``. Raises ``UserError`` for a template without them."""
        return Chat(self.tokenizer, tools, self.stop_ids)

    def behaviour(self, sampling: Sampling, chat: Chat) -> Sampling:
        """``sampling`` with its grammar written out, as engines take it.

        Raises ``UserError`` for a distribution that this model's rollouts could not record, and for
        a grammar that cannot be read.
        """
        head = self.model.get_output_embeddings()
        rows = len(self.tokenizer) if head is None else int(head.weight.shape[0])
        require_replayable(sampling, vocabulary=rows)
        if sampling.grammar is None:
            return sampling
        text = grammar.written(sampling.grammar, chat, self.tokenizer)
        grammar.Grammars(self.tokenizer, rows, self.stop_ids).matcher(text, self.stop_ids)
        return replace(sampling, grammar=text)

    def weights(self) -> dict[str, torch.Tensor]:
        """What training may change, live tensors by name: all weights, or those of the adapter."""
        return adapters.moving(self.model)

    def lineage(self) -> str:
        """Digest of the weights; see :func:`weights_digest`. Of a base that stays, once."""
        if self.base is None:
            return weights_digest(self.model)
        return digest({"base": self.base.digest, "adapter": _digest(self.weights())})

    def require_lineage(self, wanted: str) -> None:
        """Raise ``UserError`` unless the weights are those of digest ``wanted``.

        A resume restores what was trained; the rest is what ``name`` holds today.
        """
        if self.lineage() != wanted:
            raise UserError(
                f"{self.name} holds other weights than when the run began",
                where="policy.model",
                fix="put the weights back, or start a new run",
            )

    def save(self, folder: Path | str) -> None:
        """Write the Hugging Face layout: safetensors, configs, tokenizer and template.

        Of a policy with an adapter only the adapter is written, in PEFT's layout.

        ``generation_config`` carries the stop ids, so that others stop where we do.
        """
        with quiet():
            if self.base is None:
                self.model.save_pretrained(folder)
            else:
                adapters.save(self.model, Path(folder), self.base)
        self.tokenizer.save_pretrained(folder)


def weights_digest(module: nn.Module) -> str:
    """SHA-256 over names, types, shapes and bytes of the weights, in the order of the names."""
    return _digest(module.state_dict())


def _digest(weights: Mapping[str, torch.Tensor]) -> str:
    total = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        plain = tensor.detach().cpu().contiguous()
        total.update(f"{name} {plain.dtype} {tuple(plain.shape)}\n".encode())
        total.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
