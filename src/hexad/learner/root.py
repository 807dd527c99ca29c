"""The one module through which the learner calls the model."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hexad.contract.faults import ContractViolation
from hexad.learner.pack import Sets


class Wants(NamedTuple):
    """What a caller needs beyond log-probs and entropies. Nothing is computed for nobody."""

    entropy_gradient: bool = False
    """The entropy carries a gradient: it is in the loss, not only a statistic."""
    raw: bool = False
    """Log-probs of the whole vocabulary, too, at temperature 1: imitation is of the model."""
    hidden: bool = False
    """The hidden states that the logits are made of: a value head reads them."""


NOTHING_MORE = Wants()


class Read(NamedTuple):
    """``logprob`` [N] and ``entropy`` [N]; ``raw`` [N] and ``hidden`` [N, width] where wanted.

    ``outside`` [N], under recorded sets: the probability that the policy gives to tokens outside
    each. It grows where the weights leave what sampling had kept: no ratio can tell.
    """

    logprob: Tensor
    entropy: Tensor
    raw: Tensor | None = None
    hidden: Tensor | None = None
    outside: Tensor | None = None


class Root(nn.Module):
    """Wraps a Hugging Face causal LM; the place where DDP, FSDP, LoRA and compile attach.

    Logits exist only at the selected positions: a hook selects the hidden states on their way into
    the model's output embeddings, so whatever the model does to its logits afterwards (scale,
    soft cap) still applies. A model without output embeddings computes them all.
    """

    model: Any

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        ids: Tensor,
        select: Tensor,
        targets: Tensor,
        temperature: float,
        sets: Sets | None = None,
        wants: Wants = NOTHING_MORE,
    ) -> Read:
        """Log-probs [N] of ``targets`` and entropies [N], of ``softmax(logits / temperature)``.

        ids int64 [B, L], right-padded; select int64 [N] indexes the flattened [B * L] positions;
        targets int64 [N]. The softmax is over the recorded ``sets``, or over the whole vocabulary
        without them, in float32 (float64 for a float64 model). The entropy, in nats, is a
        statistic without a gradient unless ``wants`` says otherwise.
        """
        logits, hidden = self._logits(ids, select)
        raw = None
        if wants.raw:
            raw = torch.log_softmax(logits, dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        if temperature != 1.0:
            logits = logits / temperature
        outside = None
        if sets is not None:
            logprob, entropy = over_sets(logits, sets, gradient=wants.entropy_gradient)
            outside = outside_sets(logits, sets)
        else:
            logs = torch.log_softmax(logits, dim=-1)
            logprob = logs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
            with torch.set_grad_enabled(wants.entropy_gradient and torch.is_grad_enabled()):
                entropy = -(logs.exp() * logs).sum(-1)
        if wants.hidden and hidden is None:
            raise ContractViolation("a model without output embeddings has no shared hidden states")
        return Read(logprob, entropy, raw, hidden if wants.hidden else None, outside)

    def _logits(self, ids: Tensor, select: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits [N, V] at the selected positions, float32 or float64, and what they came from."""
        fired: list[Tensor] = []

        def pick(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            hidden = args[0].reshape(-1, args[0].shape[-1]).index_select(0, select)
            fired.append(hidden)
            return (hidden.unsqueeze(0), *args[1:])

        head = self.model.get_output_embeddings()
        handle = head.register_forward_pre_hook(pick) if head is not None else None
        try:
            logits = self.model(input_ids=ids, use_cache=False).logits
        finally:
            if handle is not None:
                handle.remove()
        flat: Tensor = logits.reshape(-1, logits.shape[-1])
        if not fired:
            flat = flat.index_select(0, select)
        if len(flat) != len(select):
            raise ContractViolation(f"{len(flat)} rows of logits for {len(select)} positions")
        wide = flat.to(torch.promote_types(flat.dtype, torch.float32))
        return wide, fired[0] if fired else None


def over_sets(logits: Tensor, sets: Sets, *, gradient: bool = False) -> tuple[Tensor, Tensor]:
    """Log-probs [N] of the targets and entropies [N], each normalised over its own recorded set.

        log p(a) = z_a - log sum_{b in S} exp z_b,    gradient on z_b: 1[b = a] - p(b), b in S

    ``logits`` z [N, V]. The set is a fact of the sample: it stays what it was however the weights
    move, so only differences inside it matter, and mass that the policy moves out of it neither
    raises nor lowers the result. No -inf is ever formed: memory and time are those of the sets'
    own sizes. A set of one gives exactly 0, with gradient exactly 0. With ``gradient`` the entropy
    carries one too.
    """
    owner = torch.repeat_interleave(sets.lengths)
    picked = logits.reshape(-1).gather(0, owner * logits.shape[-1] + sets.ids)
    highest = torch.segment_reduce(picked.detach(), "max", lengths=sets.lengths)
    shifted = picked - highest[owner]
    total = torch.segment_reduce(shifted.exp(), "sum", lengths=sets.lengths)
    logs = shifted - total.log()[owner]
    with torch.set_grad_enabled(gradient and torch.is_grad_enabled()):
        entropy = -torch.segment_reduce(logs.exp() * logs, "sum", lengths=sets.lengths)
    return logs[sets.place], entropy


@torch.no_grad()
def outside_sets(logits: Tensor, sets: Sets) -> Tensor:
    """Probability [N] outside each recorded set, of ``softmax(logits)``, [N, V]; no gradient."""
    owner = torch.repeat_interleave(sets.lengths)
    logs = torch.log_softmax(logits, dim=-1).reshape(-1)
    inside = logs.gather(0, owner * logits.shape[-1] + sets.ids).exp()
    return (1.0 - torch.segment_reduce(inside, "sum", lengths=sets.lengths)).clamp_min(0.0)
