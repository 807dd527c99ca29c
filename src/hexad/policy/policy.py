"""A policy: model and tokenizer that belong together, with everything that names them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hexad.contract.digest import digest
from hexad.contract.messages import ToolSchema
from hexad.contract.sampling import Sampling
from hexad.policy import grammar
from hexad.policy.chat import Chat
from hexad.policy.quiet import quiet
from hexad.policy.transforms import require_replayable


@dataclass(frozen=True, eq=False)
class Policy:
    """Made by ``load_policy``. The learner changes the tensors of ``model`` in place.

    ``name`` is what the user called it. ``stop_ids`` are all ids that end a turn: those of the
    model's ``generation_config`` and the template's close token, sorted. ``max_context`` is the
    number of positions of the model. ``adapter`` is the digest of an adapter, or ``none``.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    stop_ids: tuple[int, ...]
    max_context: int
    adapter: str = "none"

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

    def lineage(self) -> str:
        """Digest of the weights; see :func:`weights_digest`."""
        return weights_digest(self.model)

    def save(self, folder: Path | str) -> None:
        """Write the Hugging Face layout: safetensors, configs, tokenizer and template.

        ``generation_config`` carries the stop ids, so that others stop where we do.
        """
        with quiet():
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def weights_digest(module: nn.Module) -> str:
    """SHA-256 over names, types, shapes and bytes of the weights, in the order of the names."""
    total = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        plain = tensor.detach().cpu().contiguous()
        total.update(f"{name} {plain.dtype} {tuple(plain.shape)}\n".encode())
        total.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
